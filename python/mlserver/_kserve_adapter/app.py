"""What scripts add to `kserve.model_server.app`, a FastAPI application: its routes are custom handlers of a model."""

from typing import Any, Dict, List, Optional, Tuple

from .._worker.frames import Buffer

_CORS = (
    "allow_origins",
    "allow_origin_regex",
    "allow_credentials",
    "allow_methods",
    "allow_headers",
    "expose_headers",
    "max_age",
)


class AppHandler:
    """A route of an application, which runs with the application's middleware."""

    is_async = True
    #: Neither of KServe's V1 protocol nor of OpenAI's API.
    v1: Optional[str] = None
    openai: Optional[str] = None

    def __init__(self, app: Any, path: str, method: str) -> None:
        self._app = app
        self.name = f"app:{method}:{path}"
        self.path = path
        self.method = method

    async def invoke(self, head: Dict[str, Any], body: Buffer, run: Any) -> Any:
        """Answers a call. `run` runs functions of the model."""
        from .._worker.handlers import answer_asgi, request_of

        async def answer() -> Any:
            return await answer_asgi(self._app, request_of(head, body))

        return await run(answer, {})


def handlers_of(app: Any) -> List[AppHandler]:
    """Returns the handlers of the routes that a script has added."""
    return [AppHandler(app, path, method) for path, method in _routes(app)[0]]


def settings_of(app: Any) -> Dict[str, Any]:
    """Returns `cors_settings` if the script has added that middleware, and `app: …` with the uses that have no effect."""
    _, others = _routes(app)
    found: Dict[str, Any] = {}
    for middleware in getattr(app, "__dict__", {}).get("user_middleware", ()):
        cls = getattr(middleware, "cls", None)
        if getattr(cls, "__name__", "") == "CORSMiddleware":
            options = {**getattr(middleware, "options", {}), **getattr(middleware, "kwargs", {})}
            found["cors_settings"] = {
                name: list(value) if isinstance(value, (tuple, set)) else value
                for name, value in options.items()
                if name in _CORS and value is not None
            }
        else:
            others.append(f"middleware {getattr(cls, '__name__', cls)}")
    if others:
        found[f"app: {', '.join(others)}"] = True
    return found


def _routes(app: Any) -> Tuple[List[Tuple[str, str]], List[str]]:
    """Returns path and method of each route that can be served, and a description of the other uses."""
    served: List[Tuple[str, str]] = []
    others: List[str] = []
    uses = getattr(app, "__dict__", {}).get("uses")
    if uses is not None:  # FastAPI is not installed
        return served, list(uses)
    for route in getattr(app, "routes", ()):
        methods = getattr(route, "methods", None)
        if methods and type(route).__name__ == "APIRoute":
            served.extend((route.path, method) for method in sorted(methods) if method not in ("HEAD", "OPTIONS"))
        elif type(route).__name__ != "Route":  # those of the documentation
            others.append(f"{type(route).__name__} {getattr(route, 'path', '')}")
    return served, others
