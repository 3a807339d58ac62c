"""Models of KServe that answer OpenAI's API."""

import importlib
from typing import Any, Callable, Dict, List, Optional, Tuple

from .._openai import METHODS, InvalidRequest, OpenAIHandler
from .._replies import RunPlain
from .failures import translated

_PACKAGE = "protocol.rest.openai"

#: The type of the request of each endpoint.
_REQUESTS = {
    "chat_completions": "ChatCompletionRequest",
    "completions": "CompletionRequest",
    "embeddings": "EmbeddingRequest",
    "rerank": "RerankRequest",
}


def answers_openai(cls: type) -> bool:
    """Returns whether a class extends KServe's `OpenAIModel`, of the real package or of ours."""
    return _package_of(cls) is not None


def is_proxy(cls: type) -> bool:
    """Returns whether a class extends KServe's `OpenAIProxyModel`, for which another server answers."""
    return _package_of(cls, "OpenAIProxyModel", "openai_proxy_model") is not None


def _package_of(cls: type, name: str = "OpenAIModel", file: str = "openai_model") -> Any:
    for base in cls.__mro__:
        package, _, module = base.__module__.rpartition(".")
        if base.__name__ == name and module == file and package.endswith(_PACKAGE):
            return package
    return None


def openai_handlers(model: Any, run_plain: RunPlain) -> List[OpenAIHandler]:
    """Returns the handlers of the endpoints that a model answers."""
    package = _package_of(type(model))
    if package is None:
        return []
    types = importlib.import_module(f"{package}.types")
    readers: Dict[str, Callable[[Dict[str, Any]], Any]] = {}

    def wrap(api: str, body: Dict[str, Any]) -> Any:
        if api not in readers:
            readers[api] = _reader(package, getattr(types, _REQUESTS[api]))
        return readers[api](body)

    return [
        OpenAIHandler(api, getattr(model, name), run_plain, wrap, _translated)
        for api, name in METHODS.items()
        if callable(getattr(type(model), name, None))
    ]


def _reader(package: str, request_type: Any) -> Callable[[Dict[str, Any]], Any]:
    """Returns what makes requests of bodies. It raises `InvalidRequest` for those that the type refuses."""
    if package == f"mlserver._kserve.{_PACKAGE}":
        return lambda body: request_type(**body)
    from pydantic import TypeAdapter, ValidationError  # installed with KServe's package

    # A type may be a union: vLLM has several for embeddings.
    adapter: Any = TypeAdapter(request_type)

    def read(body: Dict[str, Any]) -> Any:
        try:
            return adapter.validate_python(body)
        except ValidationError as error:
            raise _refusal(error.errors(), body) from None

    return read


def _refusal(errors: Any, body: Dict[str, Any]) -> InvalidRequest:
    """Returns the answer for the first error of pydantic, whose location may have names of types and validators, too."""
    first = errors[0]
    field, path = _place(first["loc"], body)
    if field is None:
        # That of an error which vLLM raises itself.
        field = getattr((first.get("ctx") or {}).get("error"), "parameter", None)
        path = field or ""
    message = str(first["msg"])
    if first["type"] == "value_error" and message.startswith("Value error, "):
        message = message[len("Value error, ") :]
    return InvalidRequest(f"`{path}`: {message}" if path else message, field)


def _place(location: Tuple[Any, ...], body: Dict[str, Any]) -> Tuple[Optional[str], str]:
    """Returns the field of a location, and its path."""
    for index, name in enumerate(location):
        if isinstance(name, str) and name in body:
            path, value = name, body[name]
            for part in location[index + 1 :]:
                # Members of a union are not in the body.
                if isinstance(part, int) and isinstance(value, list) and part < len(value):
                    path, value = f"{path}.{part}", value[part]
                elif isinstance(part, str) and isinstance(value, dict) and (part in value or part.isidentifier()):
                    path, value = f"{path}.{part}", value.get(part)
            return name, path
    names = [name for name in location if isinstance(name, str) and name.isidentifier()]
    return (names[-1], names[-1]) if names else (None, "")


def _translated(error: Exception) -> Exception:
    found = translated(error)
    if found is not error:
        found.__cause__ = error
    return found


__all__: List[str] = ["answers_openai", "openai_handlers"]
