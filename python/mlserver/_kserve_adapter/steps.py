"""The steps of a request, and their order."""

import inspect
from typing import Any, Callable, Dict, NamedTuple, Optional, Tuple

from ..errors import MLServerError
from .openai import answers_openai
from .package import Package, is_default


class Step(NamedTuple):
    """One step of a request."""

    function: Callable[..., Any]
    is_async: bool
    #: How many of payload, headers and response headers it takes.
    arity: int


class Pipeline:
    """The steps of `:predict` or `:explain`."""

    def __init__(self, model: Any, package: Package, main: str) -> None:
        self.before = _step(model, "preprocess", package, 2)
        count = 3 if getattr(model, "required_response_headers", False) else 2
        self.main = _step(model, main, package, count if main == "predict" else 2, is_optional=False)
        self.after = _step(model, "postprocess", package, count)
        self.is_async = any(step is not None and step.is_async for step in (self.before, self.main, self.after))


class Code:
    """The code of a model that requests run: its own `__call__`, or its steps. Raises `TypeError` if it has neither."""

    def __init__(self, model: Any, package: Package) -> None:
        #: The model's own `__call__`, unless it is that of the base class.
        self.call: Optional[Callable[..., Any]] = None
        #: How many arguments it takes.
        self.arity = 0
        #: The steps of both verbs, if the model does not have its own `__call__`.
        self.pipelines: Dict[str, Pipeline] = {}
        self.predict_is_async = self.explain_is_async = True
        if not callable(model):
            if answers_openai(type(model)):
                return
            raise TypeError(f"`{type(model).__qualname__}` has neither `predict` nor `__call__`: extend `kserve.Model`")
        if not is_default(model, "__call__"):
            self.call = model
            function = inspect.unwrap(type(model).__call__)
            is_coroutine = inspect.iscoroutinefunction(function)
            # Its steps may be plain functions, which would block the event loop.
            has_plain = any(
                hasattr(model, each) and not inspect.iscoroutinefunction(inspect.unwrap(getattr(model, each)))
                for each in ("preprocess", "predict", "postprocess", "explain")
            )
            self.arity = arity_of(model, 3)
            self.predict_is_async = self.explain_is_async = is_coroutine and not has_plain
        else:
            self.pipelines = {name: Pipeline(model, package, name) for name in ("predict", "explain")}
            self.predict_is_async = self.pipelines["predict"].is_async
            self.explain_is_async = self.pipelines["explain"].is_async and not lacks_explainer(model)


def lacks_explainer(model: Any) -> bool:
    """Returns whether a model has neither `explain` nor an explainer to ask."""
    return is_default(model, "explain") and getattr(model, "explainer_host", None) is None


def _step(model: Any, name: str, package: Package, count: int, is_optional: bool = True) -> Optional[Step]:
    """Returns a step; `None` if it is that of the base class, which returns its argument."""
    function = getattr(model, name, None)
    if function is None:
        return None
    if is_optional and is_default(model, name):
        return None
    original = inspect.unwrap(function)
    is_async = inspect.iscoroutinefunction(original) or inspect.isasyncgenfunction(original)
    return Step(function, is_async, arity_of(function, count))


def arity_of(function: Callable[..., Any], most: int) -> int:
    """Returns how many positional arguments a function takes, up to `most`."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return most
    count = 0
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            return most
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            count += 1
    return min(max(count, 1), most)


def single_result(result: Any) -> Any:
    if inspect.isgenerator(result) or hasattr(result, "__aiter__"):
        message = "the model answers with a stream: send the request to `infer_stream` or `generate_stream`"
        raise MLServerError(message, 501)
    return result


def with_headers(result: Any) -> Tuple[Any, Optional[Dict[str, str]]]:
    """Returns result and headers of a model's `__call__`, which may return both."""
    if isinstance(result, tuple) and len(result) == 2 and (result[1] is None or isinstance(result[1], dict)):
        return result
    return result, None


def log_latency(headers: Dict[str, str], verb: str, before: float, main: float, after: float) -> None:
    import logging

    took = {"predict": 0.0, "explain": 0.0, verb: round(1000 * main, 9)}
    logging.getLogger("kserve.trace").info(
        "requestId: %s, preprocess_ms: %s, explain_ms: %s, predict_ms: %s, postprocess_ms: %s",
        headers.get("x-request-id", "N.A."),
        round(1000 * before, 9),
        took["explain"],
        took["predict"],
        round(1000 * after, 9),
    )
