"""Headers as gRPC metadata."""

from typing import Any, Dict, Tuple

__all__ = ["to_headers", "to_metadata"]


def to_headers(context: Any) -> Dict[str, str]:
    """Returns the metadata of a call, from its context, as headers."""
    metadata = context.invocation_metadata()
    return dict(metadata) if metadata is not None else {}


def to_metadata(headers: Dict[str, str]) -> Tuple[Tuple[str, str], ...]:
    """Returns headers as metadata, whose names are in small letters."""
    return tuple((name.lower(), value) for name, value in headers.items())
