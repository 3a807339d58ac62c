"""Arguments and results of custom handlers, with the semantics of FastAPI in MLServer 1.7.1."""

import asyncio
import json
import uuid
from typing import Any, Dict, List, Optional, Union

import pytest
from mlserver import MLModel, ModelSettings
from mlserver._replies import Reply
from mlserver._worker.handlers import Handler, invoke
from mlserver.errors import MLServerError
from mlserver.handlers import custom_handler, get_custom_handlers
from mlserver.rest import Request, Response
from mlserver.types import InferenceRequest

JSON = [("content-type", "application/json")]


async def run(function: Any, arguments: Dict[str, Any]) -> Any:
    result = function(**arguments)
    return await result if asyncio.iscoroutine(result) else result


def call(
    function: Any,
    path: str = "/h",
    *,
    query: str = "",
    headers: Any = JSON,
    body: Any = b"",
    path_params: Optional[Dict[str, str]] = None,
) -> Reply:
    """Calls a handler, and joins the pieces of a reply. A body that is not bytes is sent as JSON."""
    head = {"method": "POST", "path": path, "query": query, "headers": headers, "path_params": path_params or {}}
    content = body if isinstance(body, bytes) else json.dumps(body).encode()

    async def joined() -> Reply:
        reply = await invoke(Handler(path, "post", function), head, content, run)
        if isinstance(reply, Reply):
            return reply
        return Reply(reply.status, reply.headers, b"".join([piece async for piece in reply.pieces]))

    return asyncio.run(joined())


def value(function: Any, path: str = "/h", **sent: Any) -> Any:
    reply = call(function, path, **sent)
    assert (reply.status, reply.headers) == (200, JSON)
    return json.loads(reply.body)


def refusal(function: Any, path: str = "/h", **sent: Any) -> str:
    with pytest.raises(MLServerError) as error:
        call(function, path, **sent)
    assert error.value.status_code == 422
    return str(error.value)


# Bodies


def test_single_non_scalar_argument_is_body():
    async def doubled(payload: List[int]):
        return [2 * number for number in payload]

    assert value(doubled, body=[1, "2", 3.0]) == [2, 4, 6]
    assert value(doubled, body=[1], headers=[]) == [2]
    assert value(doubled, body=[1], headers=[("Content-Type", "application/x+json; charset=utf-8")]) == [2]
    message = "body.1: Input should be a valid integer, unable to parse string as an integer"
    assert refusal(doubled, body=[1, "x"]) == message
    assert refusal(doubled, body={}) == "body: Input should be a valid list"
    assert refusal(doubled) == "body: Field required"
    assert refusal(doubled, body=None) == "body: Field required"
    assert refusal(doubled, body=b"{").startswith("the body is not JSON: ")
    assert (
        refusal(doubled, body=b"[1]", headers=[("content-type", "text/plain")]) == "body: Input should be a valid list"
    )


def test_several_body_arguments_are_fields_of_body():
    def both(a: dict, b: Optional[List[int]] = None):
        return [a, b]

    assert value(both, body={"a": {"x": 1}, "b": [2]}) == [{"x": 1}, [2]]
    assert value(both, body={"a": {}}) == [{}, None]
    assert refusal(both, body={"b": 3}) == "body.a: Field required; body.b: Input should be a valid list"


def test_payload_type_argument_accepts_nulls():
    async def echo(payload: InferenceRequest) -> InferenceRequest:
        return payload

    tensor = {"name": "x", "shape": [1], "datatype": "INT64", "data": [1]}
    answer = value(echo, body={"inputs": [tensor]})
    assert answer == {"id": None, "parameters": None, "inputs": [{**tensor, "parameters": None}], "outputs": None}
    assert "body.inputs.0.shape: Field required" in refusal(echo, body={"inputs": [{"name": "x"}]})


# Path and query


def test_scalar_arguments_come_from_path_or_query():
    def items(item: int, word: str = "none", flag: bool = False, ratio: Optional[float] = None):
        return [item, word, flag, ratio]

    path, found = "/items/{item}", {"item": "5"}
    assert value(items, path, path_params=found) == [5, "none", False, None]
    assert value(items, path, path_params=found, query="word=a&word=b&flag=yes&ratio=1.5") == [5, "b", True, 1.5]
    assert value(items, path, path_params=found, query="word=") == [5, "", False, None]
    assert refusal(items, path, path_params={"item": "x"}, query="flag=x") == (
        "path.item: Input should be a valid integer, unable to parse string as an integer; "
        "query.flag: Input should be a valid boolean, unable to interpret input"
    )


def test_arguments_without_annotation_are_strings():
    def bare(number, word, *rest, **more):
        return [number, word, list(rest), more]

    assert value(bare, "/{number:int}", path_params={"number": "7"}, query="word=7&other=1") == [7, "7", [], {}]
    assert refusal(bare, "/{number:int}", path_params={"number": "7"}) == "query.word: Field required"


def test_union_of_scalars_is_read_from_query():
    def either(x: Union[int, str], u: Union[str, List[str], None] = None):
        return [x, u]

    assert value(either, query="x=a") == ["a", None]
    assert value(either, query="x=1", body=["b"]) == ["1", ["b"]]


def test_string_annotations_are_resolved():
    def later(number: "int", texts: "List[str]"):
        return [number, texts]

    assert value(later, query="number=1", body=["a"]) == [1, ["a"]]


# The request


def test_request_has_attributes_of_starlette_request():
    async def look(request: Request):
        with pytest.raises(KeyError):
            request.headers["absent"]
        return {
            "method": request.method,
            "url": [str(request.url), request.url.path, request.url.query, request.url.port, str(request.base_url)],
            "headers": [request.headers.get("X-A"), request.headers.getlist("x-a"), "X-A" in request.headers],
            "query": [request.query_params["a"], request.query_params.getlist("a"), dict(request.query_params)],
            "cookies": request.cookies,
            "json": await request.json(),
            "body": (await request.body()).decode(),
            "stream": b"".join([part async for part in request.stream()]).decode(),
            "gone": await request.is_disconnected(),
        }

    headers = [("host", "there:81"), ("x-a", "1"), ("x-a", "2"), ("cookie", 'k=v; z="1"')]
    assert value(look, query="a=1&a=%20b", headers=headers, body=b"[1]") == {
        "method": "POST",
        "url": ["http://there:81/h?a=1&a=%20b", "/h", "a=1&a=%20b", 81, "http://there:81/"],
        "headers": ["1", ["1", "2"], True],
        "query": [" b", ["1", " b"], {"a": " b"}],
        "cookies": {"k": "v", "z": "1"},
        "json": [1],
        "body": "[1]",
        "stream": "[1]",
        "gone": False,
    }


def test_request_form_reads_urlencoded_body():
    async def form(request: Request):
        return dict(await request.form())

    kind = [("content-type", "application/x-www-form-urlencoded")]
    assert value(form, headers=kind, body=b"a=1&b=%C3%A4") == {"a": "1", "b": "ä"}
    with pytest.raises(ValueError, match="multipart/form-data"):
        call(form, headers=[("content-type", "multipart/form-data; boundary=x")])


# Answers


@pytest.mark.parametrize(
    ("returned", "sent"),
    [
        (None, b"null"),
        ("hello", b'"hello"'),
        (b"abc", b'"abc"'),
        ([float("nan"), float("inf"), 1.1], b"[null,null,1.1]"),
        ({"u": uuid.UUID(int=5), "t": (1, 2)}, b'{"u":"00000000-0000-0000-0000-000000000005","t":[1,2]}'),
    ],
)
def test_handler_result_is_returned_as_json(returned: Any, sent: bytes):
    assert call(lambda: returned) == Reply(200, JSON, sent)


def test_return_annotation_validates_result():
    def numbers(texts: List[str]) -> List[int]:
        return texts  # type: ignore[return-value]

    assert value(numbers, body=["1"]) == [1]
    with pytest.raises(ValueError, match="the result of `numbers`"):
        call(numbers, body=["x"])


def test_response_sets_status_headers_and_media_type():
    class Text(Response):
        media_type = "text/plain"

        def render(self, content: Any) -> bytes:
            return bytes(content)

    assert call(lambda: Response({"a": b"x"}, 202, {"X-B": "c"})) == Reply(202, [("X-B", "c"), *JSON], b'{"a":"x"}')
    assert call(lambda: Text(b"\xff")) == Reply(200, [("content-type", "text/plain; charset=utf-8")], b"\xff")
    assert call(lambda: Text(b"", headers={"Content-Type": "x/y"})).headers == [("Content-Type", "x/y")]


def test_response_sets_cookies() -> None:
    response = Response("x", headers={"X-B": "c"})
    response.set_cookie("a", "1", max_age=5, expires=0, domain="d.org", secure=True, httponly=True, samesite="strict")
    response.set_cookie("b", "2", path=None, samesite=None)
    response.delete_cookie("c")
    pairs = call(lambda: response).headers
    assert pairs[0] == ("X-B", "c")
    first, second, third = (value for name, value in pairs if name == "set-cookie")
    assert first.startswith("a=1; Domain=d.org; expires=")
    assert first.endswith("GMT; HttpOnly; Max-Age=5; Path=/; SameSite=strict; Secure")
    assert second == "b=2"
    assert 'c=""' in third
    assert "Max-Age=0" in third
    response.init_headers({"X-C": "d"})
    assert dict(response.headers) == {"X-C": "d"}


def test_request_is_a_mapping_of_its_scope() -> None:
    request = Request("POST", "/a", "q=1", [("Host", "h:5")], b"x", {"p": 1})
    twin = Request(request.scope)
    assert (twin.method, twin.url, twin.path_params, twin.headers["host"]) == ("POST", "http://h:5/a?q=1", {"p": 1}, "h:5")
    assert (request["path"], dict(request.items())["query_string"], "server" in request) == ("/a", b"q=1", True)
    assert request != twin
    for name in ("app", "session", "user", "auth", "url_for"):
        with pytest.raises(AttributeError, match=f"`{name}` needs an application of Starlette"):
            getattr(request, name)


# Declarations


def test_get_custom_handlers_sorts_by_method_name():
    class Model(MLModel):
        @custom_handler("/b", "get")
        async def b(self) -> str:
            return self.name

        @custom_handler(rest_path="/a")
        async def a(self):
            pass

    handlers = get_custom_handlers(Model(ModelSettings(name="m", implementation=Model)))
    assert [(found.rest_path, found.rest_method, bound.__name__) for found, bound in handlers] == [
        ("/a", "POST", "a"),
        ("/b", "get", "b"),
    ]
    assert value(handlers[1][1]) == "m"


# Support for FastAPI, Starlette and pydantic, if they are installed


@pytest.mark.needs("fastapi")
def test_fastapi_declarations_are_supported():
    from fastapi import Body, Cookie, Depends, Header, Query

    async def twice(q: int = 3) -> int:
        return 2 * q

    def declared(
        x_token: str = Header(),
        agent: Optional[str] = Header(None, alias="user-agent"),
        many: List[int] = Query(default=[7]),
        small: int = Query(default=1, le=5),
        k: str = Cookie("none"),
        part: dict = Body(embed=True),
        made: int = Depends(twice),
    ):
        return [x_token, agent, many, small, k, part, made]

    headers = [("x-token", "t"), ("cookie", "k=v")]
    assert value(declared, headers=headers, body={"part": {}}) == ["t", None, [7], 1, "v", {}, 6]
    found = value(
        declared, headers=[*headers, ("user-agent", "me")], query="many=1&many=2&q=5", body={"part": {"a": 1}}
    )
    assert found == ["t", "me", [1, 2], 1, "v", {"a": 1}, 10]
    assert refusal(declared, headers=[], query="small=6", body={"part": {}}) == (
        "header.x-token: Field required; query.small: Input should be less than or equal to 5"
    )


@pytest.mark.needs("fastapi")
def test_unsupported_arguments_are_rejected_at_load():
    from fastapi import BackgroundTasks, Depends, File, Form

    def yielding():
        yield 1

    def form(name: str = Form()):
        pass

    def file(content: bytes = File()):
        pass

    def tasks(tasks: BackgroundTasks):
        pass

    def dependency(made: int = Depends(yielding)):
        pass

    for function in (form, file, tasks, dependency):
        with pytest.raises(MLServerError, match=rf"unsupported argument `\w+` of handler `{function.__name__}`"):
            Handler("/h", "POST", function)


@pytest.mark.needs("fastapi")
def test_starlette_request_and_responses_are_supported():
    from fastapi import HTTPException
    from starlette.requests import Request as StarletteRequest
    from starlette.responses import PlainTextResponse, RedirectResponse, StreamingResponse

    async def look(request: StarletteRequest):
        return [request.method, await request.json(), request.headers["x-a"], request.path_params, str(request.url)]

    headers = [("host", "there"), ("x-a", "1")]
    found = value(look, "/p/{x}", headers=headers, body=[1], path_params={"x": "y"}, query="a=1")
    assert found == ["POST", [1], "1", {"x": "y"}, "http://there/p/{x}?a=1"]

    async def parts():
        yield b"a"
        yield b"b"

    assert call(lambda: StreamingResponse(parts(), media_type="text/plain")).body == b"ab"
    plain = call(lambda: PlainTextResponse("ä", 201))
    assert (plain.status, dict(plain.headers)["content-type"]) == (201, "text/plain; charset=utf-8")
    assert dict(call(lambda: RedirectResponse("/there")).headers)["location"] == "/there"

    def conflict():
        raise HTTPException(409, {"why": "conf"}, headers={"X-E": "1"})

    assert call(conflict) == Reply(409, [("X-E", "1"), *JSON], b'{"error":"{\\"why\\": \\"conf\\"}"}')


@pytest.mark.needs("pydantic")
def test_pydantic_models_are_supported():
    from pydantic import BaseModel

    class Item(BaseModel):
        name: str
        price: Optional[float] = None

    def first(items: List[Item]) -> Item:
        assert all(isinstance(item, Item) for item in items)
        return items[0]

    assert value(first, body=[{"name": "x"}]) == {"name": "x", "price": None}
    assert refusal(first, body=[{"name": "x"}, {"price": 1}]) == "body.1.name: Field required"
