"""The errors of codecs. Their default status is 400, because most are caused by the request."""

from typing import Any, Dict, List, Optional

from ..errors import MLServerError
from ..types import RequestInput

__all__ = ["CodecError", "CodecNotFound", "InputMissing", "InputsNotFound", "OutputNotFound", "TensorDecodeError"]


class CodecError(MLServerError):
    """A payload cannot be encoded or decoded."""

    def __init__(self, msg: str) -> None:
        super().__init__(f"There was an error encoding / decoding the payload: {msg}", 400)


class TensorDecodeError(CodecError, ValueError):
    """The data of a tensor does not match its datatype and shape."""


class CodecNotFound(MLServerError):
    """No codec matches the payload."""

    def __init__(
        self,
        name: Optional[str] = None,
        payload_type: Optional[str] = None,
        is_input: bool = False,
        is_request: bool = False,
    ) -> None:
        side = "input" if is_input else "output"
        level = ("request" if is_input else "response") if is_request else "field"
        traits = []
        if name:
            traits.append(f"with name '{name}'")
        if payload_type:
            traits.append(f"{'and' if name else 'with'} type {payload_type}")
        super().__init__(f"Codec not found for {side} {level} {' '.join(traits)}", 400)


class OutputNotFound(MLServerError):
    """A model returned a value that does not match its signature."""

    def __init__(self, output_idx: int, output_type: Any, output_hints: List[Any]) -> None:
        expected = ", ".join(f"'{hint}'" for hint in output_hints)
        super().__init__(
            f"Unexpected output value at position '{output_idx}' ({output_type})."
            f" Expected outputs are {expected} outputs.",
            400,
        )


class InputsNotFound(MLServerError):
    """A request has inputs that are not in the model's signature."""

    def __init__(self, inputs: List[RequestInput], input_hints: Dict[str, Any]) -> None:
        names = ", ".join(f"'{tensor.name}'" for tensor in inputs)
        available = ", ".join(f"'{name}'" for name in input_hints)
        super().__init__(f"Input {names} was not found. Available inputs are {available}.", 400)


class InputMissing(MLServerError):
    """A request lacks an input that the model's signature requires."""

    def __init__(self, name: str, input_hints: Dict[str, Any]) -> None:
        expected = ", ".join(f"'{each}'" for each in input_hints)
        super().__init__(f"Input '{name}' is missing. Expected inputs are {expected}.", 400)
