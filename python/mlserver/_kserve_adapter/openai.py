"""Models of KServe that answer OpenAI's API."""

import importlib
from typing import Any, Dict, List

from .._openai import METHODS, OpenAIHandler
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


def answers_openai(model: Any) -> bool:
    """Returns whether a model extends KServe's `OpenAIModel`, of the real package or of ours."""
    return _package_of(model) is not None


def _package_of(model: Any) -> Any:
    for base in type(model).__mro__:
        package, _, module = base.__module__.rpartition(".")
        if base.__name__ == "OpenAIModel" and module == "openai_model" and package.endswith(_PACKAGE):
            return package
    return None


def openai_handlers(model: Any, run_plain: RunPlain) -> List[OpenAIHandler]:
    """Returns the handlers of the endpoints that a model answers."""
    package = _package_of(model)
    if package is None:
        return []
    types = importlib.import_module(f"{package}.types")

    def wrap(api: str, body: Dict[str, Any]) -> Any:
        return getattr(types, _REQUESTS[api])(**body)

    return [
        OpenAIHandler(api, getattr(model, name), run_plain, wrap, _translated)
        for api, name in METHODS.items()
        if callable(getattr(type(model), name, None))
    ]


def _translated(error: Exception) -> Exception:
    found = translated(error)
    if found is not error:
        found.__cause__ = error
    return found


__all__: List[str] = ["answers_openai", "openai_handlers"]
