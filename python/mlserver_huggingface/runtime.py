"""The runtime of transformers pipelines."""

from typing import Any, Dict, List, Optional, Tuple

from mlserver import MLModel
from mlserver._blocking import blocking
from mlserver._frameworks import import_framework, inference_errors
from mlserver.errors import InferenceError, MLServerError
from mlserver.logging import logger
from mlserver.types import InferenceRequest, InferenceResponse

from .codecs import HuggingfaceRequestCodec
from .metadata import METADATA, ONE_ARGUMENT, ROWS_AND_LABELS
from .pipeline import load_pipeline, task_of
from .settings import get_huggingface_settings

__all__ = ["HuggingFaceRuntime"]

#: Inputs that are positional arguments: a list of arguments, and one argument that is a list.
_ARGUMENTS = "args"
_FIRST = "array_inputs"
#: The name of the first argument of most pipelines in documentation; the real name depends on the version.
_INPUTS = "inputs"


class HuggingFaceRuntime(MLModel):
    """A pipeline. The inputs of requests are its arguments, and its results are returned as JSON."""

    @blocking
    async def load(self) -> bool:
        """Creates the pipeline."""
        settings = get_huggingface_settings(self.settings)
        self._task = task_of(settings)
        self._error = import_framework("transformers.pipelines.base", "transformers").PipelineException
        #: Whether requests share batches, so that results must have one row for each element.
        self._rows = self.settings.max_batch_size > 1
        if self._rows and self.settings.max_batch_time > 0 and self._task in ROWS_AND_LABELS:
            raise MLServerError(
                f"`{self._task}` cannot be batched: the labels of several requests would be mixed; "
                "set `max_batch_time` to 0",
                500,
            )
        self._pipeline = load_pipeline(settings, self.settings)
        inputs, outputs = METADATA.get(self._task, ([], []))
        self.inputs = [*(self.inputs or []), *inputs]
        self.outputs = [*(self.outputs or []), *outputs]
        return True

    @blocking
    async def unload(self) -> bool:
        """Frees the pipeline, and its cached memory on the GPU."""
        device = getattr(getattr(self, "_pipeline", None), "device", None)
        self._pipeline = None
        if getattr(device, "type", None) == "cuda":
            torch = import_framework("torch", "torch")
            torch.cuda.empty_cache()
        return True

    @blocking
    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Returns the result of the pipeline."""
        with inference_errors(self._error):
            arguments: Dict[str, Any] = self.decode_request(payload, default_codec=HuggingfaceRequestCodec)
            if not isinstance(arguments, dict):  # the request uses another codec
                arguments = {_FIRST: arguments}
            result = self._answer(arguments)
        return self.encode_response(result, default_codec=HuggingfaceRequestCodec)

    def _answer(self, arguments: Dict[str, Any]) -> Any:
        """Calls the pipeline. For several elements, returns a list with an item for each of them."""
        positional, named, count = self._split(arguments)
        try:
            result = self._pipeline(*positional, **named)
        except RuntimeError as error:
            raise self._too_long(positional, named) or error from error
        if count is None or (count == 1 and not self._rows):
            return result
        items = list(result) if isinstance(result, (list, tuple)) else [result]
        if count == 1 and len(items) != 1:
            # Pipelines unpack the result of a single element.
            items = [items]
        if len(items) != count:
            raise MLServerError(f"the pipeline returned {len(items)} results for {count} elements", 500)
        return items

    def _split(self, arguments: Dict[str, Any]) -> Tuple[List[Any], Dict[str, Any], Optional[int]]:
        """Returns the pipeline's positional and named arguments, and the number of elements if it is known."""
        named = dict(arguments)
        if _FIRST in named or (_INPUTS in named and _ARGUMENTS not in named):
            first = named.pop(_FIRST if _FIRST in named else _INPUTS)
            return [first, *_listed(named.pop(_ARGUMENTS, []))], named, len(first) if isinstance(first, list) else None
        if _ARGUMENTS in named:
            positional = _listed(named.pop(_ARGUMENTS))
            if len(positional) > 1 and self._task in ONE_ARGUMENT:
                return [positional], named, len(positional)
            return positional, named, 1 if len(positional) == 1 else None
        lengths = {len(value) for value in named.values() if isinstance(value, list)}
        if not named:
            raise InferenceError("the request has no inputs: expected the arguments of a pipeline")
        return [], named, lengths.pop() if len(lengths) == 1 else None

    def _too_long(self, positional: List[Any], named: Dict[str, Any]) -> Optional[InferenceError]:
        """Returns an error if a text has more tokens than the model accepts, because frameworks report it obscurely."""
        tokenizer = getattr(self._pipeline, "tokenizer", None)
        limit = getattr(self._pipeline.model.config, "max_position_embeddings", None)
        if tokenizer is None or not isinstance(limit, int):
            return None
        for value in [*positional, *named.values()]:
            for text in value if isinstance(value, list) else [value]:
                if isinstance(text, str) and (tokens := len(tokenizer(text)["input_ids"])) > limit:
                    logger.debug("A request was rejected.", exc_info=True)
                    return InferenceError(f"a text has {tokens} tokens, more than the {limit} that the model takes")
        return None


def _listed(value: Any) -> List[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]
