"""Reads the arguments of a custom handler from path, query, headers and body, with FastAPI's rules for signatures.

FastAPI need not be installed. If a model's environment has FastAPI, Starlette or pydantic, then `Query`, `Header`, `Cookie`,
`Path`, `Body`, `Depends`, Starlette's `Request` and pydantic models are supported.
"""

import asyncio
import dataclasses
import inspect
import json
import re
import typing
import uuid
from typing import Any, Awaitable, Callable, Dict, NamedTuple, Optional, Tuple

from .._hints import hints_of, single
from .._validate import Problems, Validator, from_pydantic, is_union, validator_for
from ..errors import MLServerError
from ..rest.requests import Request

_MISSING: Any = object()

_PARAMETER = re.compile(r"{([a-zA-Z_]\w*)(?::([a-zA-Z_]\w*))?}")
_CONVERTERS = {"int": int, "float": float, "uuid": uuid.UUID}

#: The source of an argument, by its FastAPI declaration.
_DECLARATIONS = {
    "Path": "path",
    "Query": "query",
    "Header": "header",
    "Cookie": "cookie",
    "Body": "body",
    "Depends": "depends",
}

#: Runs a function of the model with keyword arguments, on the event loop or on the model's thread.
Run = Callable[[Callable[..., Any], Dict[str, Any]], Awaitable[Any]]


class Argument(NamedTuple):
    """One argument: its source, and its validator."""

    name: str
    #: "path", "query", "header", "cookie", "body", "request", "starlette" or "depends".
    source: str
    #: Its name in the source.
    key: str
    validate: Validator
    default: Callable[[], Any]
    required: bool = False
    #: Whether it takes all values of its name.
    many: bool = False
    #: Whether it is a field of the body even if it is the only body argument.
    embed: bool = False
    #: The function that computes it.
    dependency: "Optional[Signature]" = None
    #: The class of Starlette's request.
    kind: Any = None


class Signature:
    """The signature of a handler or dependency."""

    def __init__(self, function: Callable[..., Any], path: str) -> None:
        """Reads the signature of `function`, which handles `path`.

        Raises `MLServerError` for an unsupported argument.
        """
        self.function = function
        converters = dict(_PARAMETER.findall(path))
        try:
            hints = hints_of(function, include_extras=True)
        except NameError as error:
            message = f"cannot read the arguments of handler `{function.__name__}`: {error}"
            raise MLServerError(message, 500) from error
        self._arguments = [
            _argument(function, parameter, single(hints.get(parameter.name, parameter.empty)), converters, path)
            for parameter in inspect.signature(function).parameters.values()
            if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        ]
        bodies = [argument for argument in self._arguments if argument.source == "body"]
        self._reads_body = bool(bodies)
        self._embeds = len(bodies) > 1 or any(argument.embed for argument in bodies)
        returned = hints.get("return", Any)
        if isinstance(returned, (tuple, list)):
            returned = Any
        plain = returned in (Any, None, type(None), inspect.Signature.empty) or is_response_class(returned)
        #: Validates the result; `None` if it may be any value.
        self.returns: Optional[Validator] = None if plain else validator_for(returned, enums_as_values=False)

    async def read(self, request: Request, run: Run) -> Dict[str, Any]:
        """Returns the arguments for a request, by name.

        Raises `MLServerError` with status 422 and all problems of the request.
        """
        problems = Problems()
        body = _body(request, await request.body()) if self._reads_body else None
        values = {}
        for argument in self._arguments:
            if argument.dependency is not None:
                dependency = argument.dependency
                values[argument.name] = await run(dependency.function, await dependency.read(request, run))
            else:
                values[argument.name] = self._value(argument, request, body, problems)
        if problems.found:
            message = "; ".join(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in problems.found)
            raise MLServerError(message, 422)
        return values

    def _value(self, argument: Argument, request: Request, body: Any, problems: Problems) -> Any:
        source, key = argument.source, argument.key
        if source == "request":
            return request
        if source == "starlette":
            return argument.kind(scope_of(request), receiver(request))
        loc: Tuple[Any, ...] = (source, key)
        if source == "body":
            if self._embeds:
                value = body.get(key) if isinstance(body, dict) else None
            else:
                value, loc = body, ("body",)
            if value is None:
                value = _MISSING
        elif source == "path":
            value = request.path_params.get(key, _MISSING)
        elif source == "cookie":
            value = request.cookies.get(key, _MISSING)
        else:
            found = request.query_params if source == "query" else request.headers
            value = found.getlist(key) if argument.many else found.get(key, _MISSING)
            if value == []:
                value = _MISSING
        if value is not _MISSING:
            return argument.validate(value, loc, problems)
        if argument.required:
            problems.add("missing", loc, "Field required", None)
        return argument.default()


def _argument(
    function: Any, parameter: inspect.Parameter, hint: Any, converters: Dict[str, str], path: str
) -> Argument:
    name, default = parameter.name, parameter.default
    declaration: Any = None
    for extra in getattr(hint, "__metadata__", ()):
        if _declaration_name(extra):
            declaration = extra
    if hasattr(hint, "__metadata__"):
        hint = typing.get_args(hint)[0]
    if _declaration_name(default):
        declaration, default = default, parameter.empty
    kind = _declaration_name(declaration)
    if kind is not None and kind not in _DECLARATIONS:
        raise _unsupported(function, name, f"{kind} is not supported; read the body of a `Request` instead")
    if kind == "Depends":
        dependency = declaration.dependency or hint
        if inspect.isgeneratorfunction(dependency) or inspect.isasyncgenfunction(dependency):
            raise _unsupported(function, name, "dependencies that yield are not supported")
        return Argument(name, "depends", name, _any, _none, dependency=Signature(dependency, path))
    if hint is Request:
        return Argument(name, "request", name, _any, _none)
    if _is_from(hint, "starlette.requests", "HTTPConnection"):
        return Argument(name, "starlette", name, _any, _none, kind=hint)
    if _is_from(hint, "starlette.", "WebSocket", "BackgroundTasks", "Response"):
        raise _unsupported(function, name, f"{hint.__name__} is not supported")
    if kind is not None:
        source = _DECLARATIONS[kind]
    elif name in converters:
        source = "path"
    elif hint is parameter.empty or _is_scalar(hint):
        source = "query"
    else:
        source = "body"
    key = getattr(declaration, "alias", None) or name
    if kind == "Header" and declaration.convert_underscores and not declaration.alias:
        key = key.replace("_", "-")
    if default is parameter.empty and declaration is not None and not _is_undefined(declaration.default):
        default = declaration.default
    make = getattr(declaration, "default_factory", None)
    if hint is parameter.empty:
        hint = _CONVERTERS.get(converters.get(name, ""), Any if source == "body" else str)
    return Argument(
        name,
        source,
        key,
        _validator(hint, declaration),
        make or (lambda: None if default is parameter.empty else default),
        required=default is parameter.empty and make is None,
        many=source in ("query", "header") and not _is_scalar(hint),
        embed=bool(getattr(declaration, "embed", None)),
    )


def _unsupported(function: Any, name: str, reason: str) -> MLServerError:
    return MLServerError(f"unsupported argument `{name}` of handler `{function.__name__}`: {reason}", 500)


def _declaration_name(value: Any) -> Optional[str]:
    """Returns the class name of a FastAPI declaration (in an argument's default or annotation), and `None` for others."""
    for base in type(value).__mro__:
        if base.__module__ == "fastapi.params" and not base.__name__.startswith("Param"):
            return base.__name__
    return None


def _is_undefined(default: Any) -> bool:
    return default is ... or type(default).__name__ in ("PydanticUndefinedType", "UndefinedType")


def _is_from(hint: Any, module: str, *names: str) -> bool:
    bases = hint.__mro__ if isinstance(hint, type) else ()
    return any(base.__module__.startswith(module) and base.__name__ in names for base in bases)


def is_response_class(hint: Any) -> bool:
    """Returns whether a class is a response class of the SDK or of Starlette."""
    return _is_from(hint, "starlette.responses", "Response") or _is_from(hint, "mlserver.rest.responses", "Response")


def _is_scalar(hint: Any) -> bool:
    """Returns whether one string of a query can be converted to this type. Other types are read from the body."""
    if is_union(hint):
        return all(_is_scalar(arg) for arg in typing.get_args(hint))
    kind = typing.get_origin(hint) or hint
    if not isinstance(kind, type):
        return True
    if issubclass(kind, (str, bytes)):
        return True
    compound = (typing.get_origin(typing.Mapping[str, int]), typing.get_origin(typing.Iterable[int]))
    is_model = hasattr(kind, "model_validate") or hasattr(kind, "parse_obj")
    return not (issubclass(kind, compound) or is_model or dataclasses.is_dataclass(kind))  # type: ignore[arg-type]


def _validator(hint: Any, declaration: Any) -> Validator:
    """Returns the validator of an argument. pydantic checks the constraints in a FastAPI declaration."""
    if declaration is not None:
        try:
            from pydantic import TypeAdapter
            from typing_extensions import Annotated  # a requirement of pydantic
        except ImportError:
            pass
        else:
            return from_pydantic(TypeAdapter(Annotated[hint, declaration]).validate_python)
    return validator_for(hint, enums_as_values=False)


def _any(value: Any, _loc: Any, _problems: Problems) -> Any:
    return value


def _none() -> Any:
    return None


def _body(request: Request, body: bytes) -> Any:
    """Parses a body as JSON, unless its content type is another one."""
    if not body:
        return None
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        return body
    try:
        return json.loads(body)
    except ValueError as error:
        raise MLServerError(f"the body is not JSON: {error}", 422) from None


def scope_of(request: Request) -> Dict[str, Any]:
    """Returns the ASGI scope of a request."""
    url = request.url
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": "http",
        "path": url.path,
        "raw_path": url.path.encode(),
        "query_string": url.query.encode(),
        "root_path": "",
        "headers": request.headers.raw,
        "server": (url.hostname, url.port or 80),
        "client": None,
        "path_params": request.path_params,
        "state": {},
    }


def receiver(request: Request) -> Callable[[], Awaitable[Dict[str, Any]]]:
    """Returns the ASGI receive function for the body of a request."""
    sent = False

    async def receive() -> Dict[str, Any]:
        nonlocal sent
        if sent:
            # Waits forever: if the client disconnects, the call is cancelled.
            await asyncio.get_running_loop().create_future()
        sent = True
        return {"type": "http.request", "body": await request.body(), "more_body": False}

    return receive


__all__ = ["Argument", "Run", "Signature", "is_response_class", "receiver", "scope_of"]
