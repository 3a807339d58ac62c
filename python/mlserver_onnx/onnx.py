"""The runtime of ONNX models."""

import os
from typing import Any, Dict, List, Optional, Tuple, Type

from mlserver import MLModel
from mlserver._frameworks import artifact, encode_array, import_framework, inference_errors, loading, runtime_settings
from mlserver.codecs import NumpyCodec
from mlserver.errors import InferenceError, MLServerError
from mlserver.logging import logger
from mlserver.types import (
    InferenceRequest,
    InferenceResponse,
    MetadataModelResponse,
    MetadataTensor,
    Parameters,
    RequestInput,
    RequestOutput,
    ResponseOutput,
)

from .graph import Graph, Tensor, check_external_data, read_graph, replace_maps
from .settings import OnnxSettings, providers, run_options, session_options

__all__ = ["PREDICT_OUTPUT", "WELLKNOWN_MODEL_FILENAMES", "OnnxModel"]

#: The name of the first output of the graph, which is returned if a request names none.
PREDICT_OUTPUT = "predict"
_WELL_KNOWN_NAMES = WELLKNOWN_MODEL_FILENAMES = ["model.onnx"]
_PLATFORM = "onnx"
_FRAME = "pd"
#: The exceptions of onnxruntime for requests that do not fit the graph.
_ERRORS = ("Fail", "InvalidArgument", "NotImplemented", "RuntimeException")


class OnnxModel(MLModel):
    """An ONNX graph, evaluated by onnxruntime. Inputs are found by name, and outputs are `predict` or the graph's own."""

    #: onnxruntime's exceptions for invalid data, once it is imported.
    _errors: Tuple[Type[Exception], ...] = ()
    _parameters: Dict[str, Any] = {}

    async def load(self) -> bool:
        """Loads the graph, and creates a session for it."""
        path = await artifact(self, _WELL_KNOWN_NAMES)
        runtime = import_framework("onnxruntime", "onnxruntime")
        onnx = import_framework("onnx", "onnx")
        states = import_framework("onnxruntime.capi.onnxruntime_pybind11_state", "onnxruntime")
        self._errors = tuple(getattr(states, name) for name in _ERRORS if hasattr(states, name))
        extra = self.settings.parameters.extra if self.settings.parameters is not None else None
        settings = runtime_settings(OnnxSettings, extra or {})
        self._run_options = run_options(runtime, settings)
        options = session_options(runtime, settings)
        chosen = providers(runtime, settings)
        with loading(path):
            model = onnx.load(path, load_external_data=False)
        is_external = check_external_data(onnx, model, path)
        labels = replace_maps(onnx, model)
        self._graph = read_graph(onnx, model, labels)
        self._parameters = _description(model)
        self._check_types(path)
        with loading(path):
            source = path
            if labels:
                if is_external:
                    onnx.external_data_helper.load_external_data_for_model(model, os.path.dirname(path))
                source = model.SerializeToString()
            del model
            self._session = runtime.InferenceSession(source, sess_options=options, **chosen)
        self._describe()
        self.ready = True
        return True

    def _check_types(self, path: str) -> None:
        """Raises `MLServerError` if requests cannot carry an input or the first output."""
        graph = self._graph
        if not graph.outputs:
            raise MLServerError(f"cannot load `{path}`: the graph has no outputs", 500)
        for what, tensors in (("input", graph.inputs), ("output", graph.outputs[:1])):
            for tensor in tensors:
                if tensor.datatype is None:
                    message = f"{what} `{tensor.name}` is of the type {tensor.type}, which requests cannot carry"
                    raise MLServerError(f"cannot load `{path}`: {message}", 500)
        ignored = [tensor.name for tensor in graph.outputs if tensor.datatype is None]
        if ignored:
            logger.warning(
                "Responses cannot carry the outputs %s of model '%s', which are ignored.", ignored, self.name
            )
        self._graph = Graph(
            graph.inputs, [tensor for tensor in graph.outputs if tensor.datatype is not None], graph.labels
        )

    def _describe(self) -> None:
        """Sets the metadata of inputs and outputs to those of the graph, if the settings have none."""
        if not self.inputs:
            self.inputs = [_metadata(tensor) for tensor in self._graph.inputs]
        if not self.outputs:
            self.outputs = [_metadata(tensor) for tensor in self._graph.outputs]
        self._wanted = [tensor.name for tensor in self._graph.inputs]

    async def metadata(self) -> MetadataModelResponse:
        """Returns the metadata of the graph. Those of the settings override them."""
        metadata = await super().metadata()
        metadata.platform = metadata.platform or _PLATFORM
        given = metadata.parameters
        metadata.parameters = Parameters(content_type=given.content_type if given is not None else None)
        for name, value in self._parameters.items():
            setattr(metadata.parameters, name, value)
        return metadata

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Returns the requested outputs, by default the first one as `predict`."""
        requested, names = self._requested(payload)
        with inference_errors(*self._errors):
            feed = self._feed(payload)
            values = self._session.run(list(dict.fromkeys(names)), feed, self._run_options)
            computed = dict(zip(dict.fromkeys(names), values))
            outputs = [self._output(output, name, computed[name]) for output, name in zip(requested, names)]
        return InferenceResponse(model_name=self.name, model_version=self.version, outputs=outputs)

    def _requested(self, payload: InferenceRequest) -> Tuple[List[RequestOutput], List[str]]:
        """Returns the outputs to compute, and their names in the graph."""
        own = [tensor.name for tensor in self._graph.outputs]
        if not payload.outputs:
            return [RequestOutput(name=PREDICT_OUTPUT)], own[:1]
        if len(payload.outputs) > len(own) + 1:
            raise InferenceError(
                f"{len(payload.outputs)} outputs are requested, but the model has {len(own) + 1}: request each once"
            )
        names = []
        for output in payload.outputs:
            if output.name not in own and output.name != PREDICT_OUTPUT:
                raise InferenceError(
                    f"OnnxModel only supports '{PREDICT_OUTPUT}' or model outputs ({output.name} was received)"
                )
            names.append(output.name if output.name in own else own[0])
        return payload.outputs, names

    def _feed(self, payload: InferenceRequest) -> Dict[str, Any]:
        """Returns the array of each input of the graph."""
        received = [each.name for each in payload.inputs]
        missing = [name for name in self._wanted if name not in received]
        if missing:
            raise InferenceError(
                f"Model expects input(s) named {self._wanted} but received {received}. Missing: {missing}"
            )
        is_frame = self._content_type(payload) == _FRAME
        feed = {}
        for tensor in self._graph.inputs:
            if received.count(tensor.name) > 1:
                raise InferenceError(f"the input `{tensor.name}` occurs twice")
            given = payload.inputs[received.index(tensor.name)]
            array = self._array(given, tensor)
            if is_frame and len(given.shape) == 1 and tensor.shape is not None and len(tensor.shape) == 2:
                array = array.reshape(-1, 1)
            feed[tensor.name] = array
        return feed

    def _content_type(self, payload: InferenceRequest) -> Optional[str]:
        if payload.parameters is not None and payload.parameters.content_type:
            return payload.parameters.content_type
        return self.settings.parameters.content_type if self.settings.parameters is not None else None

    def _array(self, given: RequestInput, tensor: Tensor) -> Any:
        """Returns an input as an array of the graph's type. Raises `InferenceError` if only one of them is text."""
        import numpy

        array = numpy.asarray(self.decode(given, default_codec=NumpyCodec))
        is_text = array.dtype.kind in "OSU"
        if is_text != (tensor.datatype == "BYTES"):
            found = getattr(given.datatype, "value", given.datatype)
            raise InferenceError(
                f"input `{tensor.name}` is {found}, but the model has {tensor.datatype} there: send that"
            )
        if is_text:
            texts = numpy.empty(array.size, dtype=object)
            texts[:] = [_text(value, tensor.name) for value in array.ravel().tolist()]
            return texts.reshape(array.shape)
        with numpy.errstate(all="ignore"):
            return array.astype(tensor.dtype, copy=False)

    def _output(self, output: RequestOutput, name: str, value: Any) -> ResponseOutput:
        encoded = encode_array(self, output, value)
        labels = self._graph.labels.get(name)
        if labels is not None:
            if encoded.parameters is None:
                encoded.parameters = Parameters()
            encoded.parameters.labels = labels
        return encoded


def _text(value: Any, name: str) -> str:
    """Returns a text of an input. Raises `InferenceError` if it is not one."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InferenceError(f"input `{name}` has a text that is not UTF-8: {error}") from error
    raise InferenceError(f"input `{name}` has the value {value!r}, which is not text")


def _metadata(tensor: Tensor) -> MetadataTensor:
    shape = [-1] if tensor.shape is None else tensor.shape
    return MetadataTensor(name=tensor.name, datatype=tensor.datatype, shape=shape)


def _description(model: Any) -> Dict[str, Any]:
    """Returns the parameters of the metadata: the opsets, the producer, and the metadata of the file."""
    described: Dict[str, Any] = {"opset": {each.domain or "ai.onnx": each.version for each in model.opset_import}}
    producer = f"{model.producer_name} {model.producer_version}".strip()
    if producer:
        described["producer"] = producer
    if model.metadata_props:
        described["metadata"] = {each.key: each.value for each in model.metadata_props}
    return described
