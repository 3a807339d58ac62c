"""The exception of models that answer OpenAI's API."""

from http import HTTPStatus
from typing import Any, Union

from .types import Error, ErrorResponse

__all__ = ["OpenAIError", "create_error_response"]


class OpenAIError(Exception):
    """An error with its answer: an `ErrorResponse`, or a message, which is answered with status 500."""

    def __init__(self, response: Union[str, ErrorResponse]) -> None:
        self.response: Any = response

    def __str__(self) -> str:
        error = getattr(self.response, "error", None)
        return str(getattr(error, "message", self.response))


def create_error_response(
    message: str,
    err_type: str = "BadRequestError",
    param: str = "",
    status_code: HTTPStatus = HTTPStatus.BAD_REQUEST,
) -> ErrorResponse:
    """Returns the answer to a request that failed."""
    code = str(int(status_code))
    return ErrorResponse(error=Error(message=message, type=err_type, param=param, code=code))
