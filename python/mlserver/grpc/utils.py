"""Headers as gRPC metadata."""

from typing import Any, Dict, Tuple

from .._legacy import missing_names

__all__ = ["to_headers", "to_metadata"]

_missing_name = missing_names(__name__)


def __getattr__(name: str) -> Any:
    if name != "STATUS_CODE_MAPPING":
        return _missing_name(name)
    from grpc import StatusCode

    return {
        400: StatusCode.INVALID_ARGUMENT,
        404: StatusCode.NOT_FOUND,
        422: StatusCode.FAILED_PRECONDITION,
        500: StatusCode.INTERNAL,
    }


def to_headers(context: Any) -> Dict[str, str]:
    """Returns the metadata of a call, from its context, as headers: that of the client, and what the server will send."""
    sent = context.trailing_metadata() if hasattr(context, "trailing_metadata") else None
    return {name: value for metadata in (context.invocation_metadata(), sent) for name, value in metadata or ()}


def to_metadata(headers: Dict[str, str]) -> Tuple[Tuple[str, str], ...]:
    """Returns headers as metadata, whose names are in small letters."""
    return tuple((name.lower(), value) for name, value in headers.items())
