"""Everything that reads text skips a byte-order mark, and names UTF-16, as editors on Windows write them."""

import json
import logging
import pathlib
import sys
import types
from typing import Any, Callable, Dict, Iterator

import pytest
from mlserver import MLModel, ModelSettings, Settings
from mlserver import logging as mlserver_logging
from mlserver._kserve import logging as kserve_logging
from mlserver._kserve.model import Model
from mlserver._text import TextError, read_file, read_json, read_json_file, utf8
from mlserver._worker import static_checks
from mlserver.testing import serve
from mlserver.types import InferenceRequest

MARK = "\ufeff"
UTF16 = "it is UTF-16 text: save it as UTF-8"

#: What PowerShell's `>` writes.
Encode = Callable[[str], bytes]


def with_mark(text: str) -> bytes:
    return (MARK + text).encode()


def utf16(text: str) -> bytes:
    return text.encode("utf-16")


def test_mark_is_skipped_once_and_other_encodings_are_named(tmp_path: pathlib.Path):
    assert utf8(with_mark("{}")) == "{}"
    assert utf8(memoryview(with_mark(MARK + "1"))) == MARK + "1"
    assert utf8("é".encode()) == "é"
    assert utf8(b"") == ""
    for wide in (utf16("{}"), "{}".encode("utf-16-le"), "{}".encode("utf-16-be")):
        with pytest.raises(TextError, match="it is UTF-16 text"):
            utf8(wide)
    for wide in ("{}".encode("utf-32"), b"\0\0\xfe\xff\0\0\0{"):
        with pytest.raises(TextError, match="it is UTF-32 text"):
            utf8(wide)
    with pytest.raises(TextError, match="it is not UTF-8 text: byte 5 is invalid"):
        utf8(with_mark("ab") + b"\xff")
    assert read_json(with_mark("[1]")) == [1]
    path = tmp_path / "some.json"
    path.write_bytes(with_mark("[1]"))
    assert (read_file(path), read_json_file(str(path))) == ("[1]", [1])
    path.write_bytes(utf16("[1]"))
    with pytest.raises(TextError) as raised:
        read_file(path)
    assert str(raised.value) == f"cannot read `{path}`: {UTF16}"


class Echo(Model):
    """A model of KServe's classes that answers with its body."""

    def load(self) -> bool:
        self.ready = True
        return True

    async def predict(self, payload: Any, headers: Any = None) -> Any:
        return {"seen": repr(payload)}


class Chat(MLModel):
    async def create_chat_completion(self, request: Any) -> Any:
        message = {"role": "assistant", "content": request["messages"][0]["content"]}
        return {"choices": [{"message": message, "finish_reason": "stop"}]}


def post(model: Any, path: str, body: bytes, **headers: str) -> Any:
    """Returns the reply, or the error of the model."""
    try:
        sent = {"content-type": "application/json", **{name.replace("_", "-"): text for name, text in headers.items()}}
        return model.call("POST", path, body=body, headers=sent)
    except Exception as error:
        return error


def test_bodies_of_v1():
    with serve(Echo, name="m") as model:
        reply = post(model, "/v1/models/m:predict", with_mark('{"instances": [1]}'))
        assert reply.json() == {"seen": "{'instances': [1]}"}
        assert UTF16 in str(post(model, "/v1/models/m:predict", utf16('{"instances": [1]}')))


def test_data_of_events():
    event = {"ce_specversion": "1.0", "ce_id": "1", "ce_source": "s", "ce_type": "t"}
    with serve(Echo, name="m") as model:
        reply = post(model, "/v1/models/m:predict", with_mark('{"instances": [1]}'), **event)
        assert reply.status == 200, reply
        failed = post(model, "/v1/models/m:predict", utf16('{"instances": [1]}'), **event)
        assert UTF16 in str(failed)
        # Other data is passed on as it is, such as bytes of which every second one is zero.
        other = {**event, "content_type": "application/octet-stream"}
        data = "{}".encode("utf-16-le")
        reply = post(model, "/v1/models/m:predict", data, **other)
        assert reply.status == 200, reply


def test_bodies_of_openai():
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hä"}]}, ensure_ascii=False)
    with serve(Chat, name="m") as model:
        reply = post(model, "/openai/v1/chat/completions", with_mark(body))
        assert reply.json()["choices"][0]["message"]["content"] == "hä"
        failed = post(model, "/openai/v1/chat/completions", utf16(body))
        assert UTF16 in str(failed)
        assert failed.status == 400


@pytest.mark.parametrize("encode", [with_mark, utf16])
def test_dotenv(tmp_path: pathlib.Path, encode: Encode):
    (tmp_path / ".env").write_bytes(encode("MLSERVER_HTTP_PORT=9123\r\nMLSERVER_DEBUG=false\r\n"))
    if encode is utf16:
        with pytest.raises(TextError, match=rf"\.env`: {UTF16}"):
            Settings()
    else:
        assert (Settings().http_port, Settings().debug) == (9123, False)


@pytest.mark.parametrize("encode", [with_mark, utf16])
def test_settings(tmp_path: pathlib.Path, encode: Encode):
    path = tmp_path / "model-settings.json"
    path.write_bytes(encode('{"name": "m", "implementation": "models.M"}'))
    request = tmp_path / "request.json"
    request.write_bytes(encode('{"inputs": []}'))
    readers: Dict[str, Callable[[], Any]] = {
        "m": lambda: ModelSettings.parse_file(str(path)).name,
        "[]": lambda: InferenceRequest.parse_file(str(request)).inputs,
    }
    for expected, read in readers.items():
        if encode is utf16:
            with pytest.raises(TextError, match=UTF16):
                read()
        else:
            assert str(read()) == expected


def test_settings_of_tested_models(tmp_path: pathlib.Path):
    path = tmp_path / "model-settings.json"
    settings = '{"name": "own", "implementation": "marked_models.Own"}'
    path.write_bytes(with_mark(settings))
    (tmp_path / "marked_models.py").write_bytes(with_mark("from mlserver import MLModel\n\n\nclass Own(MLModel):\n    pass\n"))
    with serve(str(path)) as model:
        assert model.name == "own"
    path.write_bytes(utf16(settings))
    with pytest.raises(TextError, match=UTF16), serve(str(path)):
        pass


@pytest.fixture
def _same_loggers() -> Iterator[None]:
    """Undoes what a test configures."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:], root.level = handlers, level


JSON = '{"version": 1, "disable_existing_loggers": false, "loggers": {"marked": {"level": "ERROR"}}}'
INI = (
    "[loggers]\r\nkeys=root,marked\r\n[handlers]\r\nkeys=\r\n[formatters]\r\nkeys=\r\n[logger_root]\r\nhandlers=\r\n"
    "[logger_marked]\r\nlevel=ERROR\r\nhandlers=\r\nqualname=marked\r\n"
)


@pytest.mark.usefixtures("_same_loggers")
@pytest.mark.parametrize(("name", "text"), [("log.json", JSON), ("log.ini", INI), ("log.yaml", JSON)])
def test_logging_files(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str):
    # JSON is YAML, too, and these tests run without PyYAML.
    monkeypatch.setitem(sys.modules, "yaml", types.SimpleNamespace(safe_load=json.loads))
    readers = [kserve_logging.configure_logging]
    if name != "log.yaml":
        readers.append(mlserver_logging.apply_logging_file)
    path = tmp_path / name
    logger = logging.getLogger("marked")
    for read in readers:
        logger.setLevel(logging.NOTSET)
        path.write_bytes(with_mark(text))
        read(str(path))
        assert logger.level == logging.ERROR
        path.write_bytes(utf16(text))
        with pytest.raises(TextError, match=f"{name}`: {UTF16}"):
            read(str(path))


def test_requirements(tmp_path: pathlib.Path):
    path = tmp_path / "requirements.txt"
    (tmp_path / "models.py").write_text("class Own:\n    pass\n")

    def findings() -> Any:
        question = {"implementation": "models.Own", "folder": str(tmp_path), "paths": [], "modules": []}
        before = list(sys.path)
        try:
            found = static_checks.run({**question, "requirements": [str(path)], "hidden_headers": []})
        finally:
            sys.path[:] = before
        return [finding["text"] for finding in found if "requirements.txt" in finding["text"]]

    path.write_bytes(with_mark("no-such-package-of-ours==1\r\n"))
    assert findings() == [f"`{path}` requires `no-such-package-of-ours==1`, which is not installed for `{sys.executable}`"]
    path.write_bytes(utf16("pytest\r\n"))
    assert findings() == [f"`{path}` cannot be read: {UTF16}"]
