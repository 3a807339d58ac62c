"""Calls a remote model over the V2 protocol."""

import json
import time
import urllib.error
import urllib.request
from typing import Any, Dict, Optional, Union

from mlserver._http import tls_context
from mlserver._tensor import is_array
from mlserver.codecs import NumpyCodec, StringCodec
from mlserver.errors import InferenceError
from mlserver.types import InferenceRequest, MetadataModelResponse, Parameters, RequestOutput, ResponseOutput
from mlserver.utils import generate_uuid

from .settings import AlibiExplainSettings

__all__ = ["RemoteModel"]

#: Seldon Core does not log the requests of explainers.
_SKIP_LOGGING = {"Seldon-Skip-Logging": "true"}
_INPUT = "predict"
_INFER = "/infer"
#: Seldon Core's pipelines have no metadata.
_PIPELINES = "/v2/pipelines/"
#: How long a call may take, and how long to wait until the model is ready, in seconds.
_TIMEOUT = 60.0
_READY_TIMEOUT = 30.0


class RemoteModel:
    """A function that returns the predictions of the explained model for rows or texts."""

    def __init__(self, settings: AlibiExplainSettings) -> None:
        self._uri = settings.infer_uri
        self._output = settings.infer_output
        verify: Union[bool, str] = True if settings.ssl_verify_path is None else settings.ssl_verify_path
        self._context = tls_context(verify) if self._uri.startswith("https:") else None
        self._input: Optional[str] = None

    def wait(self) -> None:
        """Waits until the model is ready: the server that loads the explainer may be loading the model, too."""
        end = time.monotonic() + _READY_TIMEOUT
        while True:
            try:
                self._input = self._first_input()
            except InferenceError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)
            else:
                return

    def __call__(self, data: Any) -> Any:
        """Returns the model's output for each row.

        Raises `InferenceError` if the call fails.
        """
        import numpy

        if self._input is None:
            self._input = self._first_input()
        texts = isinstance(data, list) and all(isinstance(item, str) for item in data)
        if texts:
            tensor = StringCodec.encode_input(self._input, data, use_bytes=False)
        else:
            tensor = NumpyCodec.encode_input(self._input, data if is_array(data) else numpy.array(data))
        request = InferenceRequest(
            id=generate_uuid(),
            parameters=Parameters(content_type=StringCodec.ContentType if texts else NumpyCodec.ContentType),
            inputs=[tensor],
            outputs=None if self._output is None else [RequestOutput(name=self._output)],
        )
        answer = self._call(self._uri, request.model_dump_json(exclude_none=True).encode())
        outputs = answer.get("outputs") or []
        if not outputs:
            raise InferenceError(f"Remote inference call failed: {self._uri} answered without outputs")
        array = NumpyCodec.decode_output(ResponseOutput.model_validate(outputs[0]))
        return array[..., 0] if array.ndim > 1 and array.shape[-1] == 1 else array

    def _first_input(self) -> str:
        """Returns the name of the model's first input, from its metadata."""
        if _PIPELINES in self._uri:
            return _INPUT
        uri = self._uri[: -len(_INFER)] if self._uri.endswith(_INFER) else self._uri
        inputs = MetadataModelResponse.model_validate(self._call(uri, None)).inputs
        return inputs[0].name if inputs else _INPUT

    def _call(self, uri: str, body: Optional[bytes]) -> Dict[str, Any]:
        # Unlike `HttpPool`, `urllib` follows redirects and uses the proxies of the environment, as `requests` does.
        headers = {"Content-Type": "application/json", **_SKIP_LOGGING}
        request = urllib.request.Request(uri, data=body, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT, context=self._context) as response:
                found: Dict[str, Any] = json.load(response)
                return found
        except urllib.error.HTTPError as error:
            raise InferenceError(f"Remote inference call failed with {error.code}, {error.reason}") from error
        except (OSError, ValueError) as error:
            raise InferenceError(f"Remote inference call failed: {uri}: {error}") from error
