"""Scripts that end in `kserve.ModelServer().start([...])`, in the process of a worker."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List

import pytest
from mlserver import _kserve_imports, _kserve_script
from mlserver._kserve_script import ScriptError, take
from mlserver.testing import InferenceFailed, LoadFailed, serve

SCRIPT = """
import sys
import threading
import kserve

runs = open("runs", "a")
runs.write("x")
runs.close()

class Plus(kserve.Model):
    def __init__(self, name, amount):
        super().__init__(name)
        self.amount = amount

    def load(self):
        self.ready = True

    def predict(self, payload, headers=None):
        values = [value + self.amount for value in payload.inputs[0].data]
        output = kserve.InferOutput("sum", [len(values)], "INT64", values)
        return kserve.InferResponse(payload.id, self.name, [output])

"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], str]]:
    """Writes a script that ends in the given lines, and returns its path. Restores what running it changes."""
    _kserve_imports.install()
    import kserve.model_server  # type: ignore[import-not-found,import-untyped,unused-ignore]

    monkeypatch.setattr(kserve.model_server.ModelServer, "start", kserve.model_server.ModelServer.start)
    # Made when a script uses it, and then kept.
    monkeypatch.setitem(vars(kserve.model_server), "app", None)
    monkeypatch.delitem(vars(kserve.model_server), "app")
    monkeypatch.setattr(signal, "signal", signal.signal)
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.chdir(tmp_path)

    def write(ending: str) -> str:
        (tmp_path / "model.py").write_text(SCRIPT + ending)
        return str(tmp_path / "model.py")

    yield write
    assert not _kserve_script._runs


def runs() -> int:
    return len(Path("runs").read_text())


def test_take_runs_a_script_once_for_all_of_its_models(script: Callable[[str], str]) -> None:
    path = script("kserve.ModelServer().start([Plus('a', 1), Plus('b', 2)])\nopen('ended', 'w').close()")
    _position, first, _predictor, end_first = take(path, [], "a")
    _position, second, _predictor, end_second = take(path, [], "b")
    assert (first.amount, second.amount, runs()) == (1, 2, 1)
    end_first()
    assert not Path("ended").exists(), "`start` returns once all models are unloaded"
    end_second()
    assert Path("ended").exists()


def test_take_runs_a_script_again_for_a_reload(script: Callable[[str], str]) -> None:
    path = script("kserve.ModelServer().start([Plus('a', 1)])")
    _position, old, _predictor, end_old = take(path, [], "a")
    script("kserve.ModelServer().start([Plus('a', 7)])")
    _position, new, _predictor, end_new = take(path, [], "a")
    assert (old.amount, new.amount, runs()) == (1, 7, 2)
    end_old()
    end_new()


def test_take_passes_arguments_and_main_module(script: Callable[[str], str]) -> None:
    path = script(
        "assert __name__ == '__main__' and sys.modules['__main__'].Plus is Plus\n"
        "assert sys.argv == [__file__, '--amount', '3'], sys.argv\n"
        "kserve.ModelServer().start([Plus('a', int(sys.argv[2]))])"
    )
    _position, model, _predictor, end = take(path, ["--amount", "3"], "a")
    assert (model.amount, type(model).__module__) == (3, "__main__")
    end()


@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        ("", "it ended without calling"),
        ("1 / 0", "it raised ZeroDivisionError: division by zero before"),
        ("sys.exit('no data')", "it exited with 'no data' before"),
        ("kserve.ModelServer().start([])", "got no models"),
        ("kserve.ModelServer().start([object()])", "got a model without a name: object"),
        ("kserve.ModelServer().start([Plus('c', 1), Plus('d', 1)])", "it no longer starts model `a`, but starts `c`, `d`"),
    ],
)
def test_take_tells_why_a_script_has_no_such_model(script: Callable[[str], str], ending: str, expected: str) -> None:
    path = script(ending)
    before = set(threading.enumerate())
    for _ in range(2):
        with pytest.raises(ScriptError) as raised:
            take(path, [], "a")
        assert expected in str(raised.value)
    assert set(threading.enumerate()) <= before, "the threads of failed scripts have ended"
    if "1 / 0" in ending:
        assert isinstance(raised.value.__cause__, ZeroDivisionError)


def test_script_model_answers_and_is_unloaded(script: Callable[[str], str]) -> None:
    path = script("kserve.ModelServer().start([Plus('a', 1)])\nopen('ended', 'w').close()")
    name = "mlserver._kserve_script.ScriptModel"
    extra = {"script": path, "arguments": [], "name": "a"}
    with serve(name, name="a", parameters={"extra": extra}) as model:
        request = {"inputs": [{"name": "x", "shape": [2], "datatype": "INT64", "data": [1, 2]}]}
        assert model.infer(request).outputs[0].data.root == [2, 3]
    assert Path("ended").exists()
    extra["name"] = "other"
    with pytest.raises(LoadFailed, match="it no longer starts model `other`, but starts `a`"):
        serve(name, name="other", parameters={"extra": extra})


OPENAI = """
from kserve.protocol.rest.openai import OpenAIGenerativeModel

class Echo(OpenAIGenerativeModel):
    loads = 0

    def load(self):
        self.loads += 1

    async def create_completion(self, request, raw_request=None, context=None):
        return {"choices": [{"text": f"{request.prompt} {self.loads}"}]}

    async def create_chat_completion(self, request, raw_request=None, context=None):
        raise NotImplementedError

echo = Echo("e")
"""


@pytest.mark.parametrize("models", ["[echo]", "echo", "{'e': echo}", "[echo, Plus('a', 1)]"])
def test_script_starts_models_of_openais_api(script: Callable[[str], str], models: str) -> None:
    path = script(f"{OPENAI}\necho.load()\nkserve.ModelServer().start({models})")
    assert described(path, [])["models"][0] == "e"
    extra = {"script": path, "arguments": [], "name": "e"}
    with serve("mlserver._kserve_script.ScriptModel", name="e", parameters={"extra": extra}) as model:
        assert model.ready
        reply = model.call("POST", "/openai/v1/completions", json={"model": "e", "prompt": "hi"})
    # The script has called `load`.
    assert json.loads(reply.body)["choices"] == [{"index": 0, "text": "hi 1"}]


def described(path: str, arguments: List[str]) -> Dict[str, Any]:
    """Runs a script as the server does to find its models."""
    ours, theirs = socket.socketpair()
    root = str(Path(_kserve_script.__file__).parent.parent)
    program = "import sys; sys.path.pop(0); from mlserver._kserve_script import main; main()"
    command = [sys.executable, "-c", program, "describe", path, *arguments]
    environment = {**os.environ, "PYTHONPATH": root}
    subprocess.run(command, stdin=theirs, env=environment, check=True, timeout=60, stderr=subprocess.DEVNULL)
    theirs.close()
    with ours, ours.makefile("rb") as answers:
        found: Dict[str, Any] = json.loads(answers.read())
    return found


def test_describe_reports_models_and_options_that_are_not_the_defaults(script: Callable[[str], str]) -> None:
    path = script(
        "args, _ = kserve.model_server.parser.parse_known_args()\n"
        "kserve.ModelServer(workers=3, grpc_port=8081, enable_docs_url=True, grace_period=5).start([Plus(args.model_name, 1)])"
    )
    assert described(path, ["--model_name", "m", "--http_port", "9000"]) == {
        "models": ["m"],
        "options": {"http_port": 9000, "workers": 3, "enable_docs_url": True, "grace_period": 5},
    }
    assert described(path, []) == {
        "models": ["model"],
        "options": {"workers": 3, "enable_docs_url": True, "grace_period": 5},
    }


APP = """
from kserve.model_server import app

@app.get("/about/{name}")
def about(name: str, size: int = 1):
    return {"about": name, "size": size}

@app.post("/sum")
async def add(numbers: list[int]):
    return sum(numbers)

"""

STARTS = "kserve.ModelServer().start([Plus('a', 1)])"


@pytest.mark.needs("fastapi")
def test_routes_of_the_application_are_served(script: Callable[[str], str]) -> None:
    middleware = (
        "@app.middleware('http')\n"
        "async def mark(request, call_next):\n"
        "    response = await call_next(request)\n"
        "    response.headers['x-marked'] = request.url.path\n"
        "    return response\n\n"
    )
    path = script(APP + middleware + STARTS)
    extra = {"script": path, "arguments": [], "name": "a"}
    with serve("mlserver._kserve_script.ScriptModel", name="a", parameters={"extra": extra}) as model:
        reply = model.call("GET", "/about/demo?size=3")
        assert (reply.status, reply.json()) == (200, {"about": "demo", "size": 3})
        assert reply.headers["x-marked"] == "/about/demo"
        assert model.call("POST", "/sum", json=[1, 2]).json() == 3
        assert model.call("POST", "/sum", json=["no"]).status == 422
        request = {"inputs": [{"name": "x", "shape": [1], "datatype": "INT64", "data": [1]}]}
        assert model.infer(request).outputs[0].data.root == [2]


@pytest.mark.needs("fastapi")
def test_describe_reports_how_the_application_is_used(script: Callable[[str], str]) -> None:
    uses = (
        "from fastapi.middleware.cors import CORSMiddleware\n"
        "from starlette.middleware.gzip import GZipMiddleware\n"
        "app.add_middleware(CORSMiddleware, allow_origins=['https://a.example'], allow_methods=('GET',), max_age=5)\n"
        "app.add_middleware(GZipMiddleware)\n"
        "app.mount('/files', object())\n"
    )
    assert described(script(APP + uses + STARTS), [])["options"] == {
        "cors_settings": {"allow_origins": ["https://a.example"], "allow_methods": ["GET"], "max_age": 5},
        "app: Mount /files, middleware GZipMiddleware": True,
    }
    assert described(script(APP + STARTS), [])["options"] == {}


def test_application_without_fastapi_has_no_effect(
    script: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fastapi", None)
    path = script("sys.modules['fastapi'] = None\n" + APP + STARTS)
    found = described(path, [])
    assert found["models"] == ["a"]
    (use,) = found["options"]
    assert use.startswith("app: ")
    assert "get" in use
    assert "post" in use
    extra = {"script": path, "arguments": [], "name": "a"}
    with serve("mlserver._kserve_script.ScriptModel", name="a", parameters={"extra": extra}) as model:
        with pytest.raises(InferenceFailed) as refused:
            model.call("GET", "/about/demo")
        assert refused.value.status == 404
        request = {"inputs": [{"name": "x", "shape": [1], "datatype": "INT64", "data": [1]}]}
        assert model.infer(request).outputs[0].data.root == [2]


def test_describe_reports_what_went_wrong(script: Callable[[str], str]) -> None:
    failure = described(script("raise ValueError('x' * 100000)"), [])["failure"]
    assert failure.startswith("it raised ValueError: xxx")
    assert len(failure) < 3000
    assert "without calling" in described(script(""), [])["failure"]
    # A child of the script has nothing to tell.
    assert "without calling" in described(script("import os\nif os.fork(): os.wait()\nelse: 1 / 0"), [])["failure"]
