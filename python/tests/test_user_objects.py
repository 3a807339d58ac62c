"""A user's object belongs to the user: the SDK looks up only documented names on models, and each may be odd."""

import ast
import pathlib
import tempfile
from typing import Any, Iterator, List, Set

import pytest
from user_models import FORMS
from worker import ANSWER, DONE, ERROR, LOADED, PREDICT, ROOT, UNLOAD, Worker, frame

#: The names that `python/mlserver` looks up on objects of users, and that these may use for themselves.
OWN_NAMES = {"metadata", "name", "ready", "settings", "version", "unload"}

#: Those that are the documented interface, which the server calls or reads because the user has defined them for it.
INTERFACE = {
    "load": "called to load the model; a value that is not a function fails with its name",
    "predict": "called for requests",
    "predict_stream": "called for streams",
}

#: What Python itself has for each object or class, or what belongs to the `LoadedModel` of the worker.
OF_PYTHON = {"__init__", "__module__", "__mro__", "__name__", "__new__", "__qualname__"}
OF_LOADED_MODEL = {
    "find_predict", "folder", "handlers", "has_warned", "instance", "is_inline", "loop", "predict_is_async", "run",
    "run_plain", "threads",
}  # fmt: skip

#: What the adapter has for the routes of KServe's scripts, and their order.
OF_ADAPTER = {"add_handlers", "position"}

#: What KServe documents for its models, which its adapter asks of them.
OF_KSERVE = {
    "_grpc_client", "_grpc_client_stub", "_http_client", "_http_client_instance", "_explainer_client",
    "enable_latency_logging", "engine", "explain", "explainer_host", "get_input_types", "get_output_types", "healthy",
    "postprocess", "preprocess", "required_response_headers", "start", "start_engine", "stop", "stop_engine", "use_ssl",
    "predictor_config", "predictor_host", "validate", "__annotations__", "__call__", "__dict__",
}  # fmt: skip

#: Names of further lookups that the old names of the worker had: models of users have them.
FORMER = {"_steps", "_v1_handlers", "bind", "steps", "v1_handlers", "engine", "handlers", "healthy", "threads"}

#: The variables that hold an object of a user.
_OBJECTS = {"instance", "model", "cls"}


def _is_object(node: ast.AST) -> bool:
    """Returns whether an expression is an object of a user, or its type."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "type" and len(node.args) == 1:
        return _is_object(node.args[0])
    if isinstance(node, ast.Attribute):
        return node.attr == "instance" or (node.attr == "model" and isinstance(node.value, ast.Name))
    return isinstance(node, ast.Name) and node.id in _OBJECTS


def _looked_up(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is_object(node.value):
            yield node.attr
        if isinstance(node, ast.Call) and len(node.args) > 1 and _is_object(node.args[0]):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            name = node.args[1]
            if called in ("getattr", "hasattr", "setattr", "getattr_static") and isinstance(name, ast.Constant):
                yield name.value


def _files() -> List[pathlib.Path]:
    folder = ROOT / "python" / "mlserver"
    # `_kserve` is what users import; it has models of its own.
    files = [file for file in folder.rglob("*.py") if folder / "_kserve" not in file.parents]
    # What these call `cls`, `model` or `instance` is a type or an object of the SDK.
    others = {"_dump", "_frameworks", "_model", "_payload", "_pydantic", "_tensor", "_validate", "codecs", "dataplane", "grpc"}
    others |= {"_pydantic1", "model_repository", "repository", "settings"}
    # A model of a scorer is in another process.
    others |= {"_scoring", "beam", "dask", "ray", "scoring", "spark"}
    return [file for file in files if not others & {file.stem, *file.relative_to(folder).parts}]


def test_each_name_that_is_looked_up_is_listed():
    found: Set[str] = set()
    where = {}
    for file in _files():
        names = set(_looked_up(ast.parse(file.read_text())))
        where.update(dict.fromkeys(names, file.name))
        found |= names
    listed = OWN_NAMES | INTERFACE.keys() | OF_PYTHON | OF_LOADED_MODEL | OF_ADAPTER | OF_KSERVE
    new = {name: where[name] for name in found - listed}
    assert not new, new
    assert (OWN_NAMES | INTERFACE.keys()) - found == set(), "the table lists a name that nothing looks up"


def test_search_finds_lookups():
    text = "getattr(instance, 'a', 0); model.instance.b; hasattr(type(instance), 'c'); self.model.d; cls.e; other.f"
    assert set(_looked_up(ast.parse(text))) == {"a", "b", "c", "d", "e"} | {"instance"}


REQUEST = {"model": 7, "id": "r", "inputs": []}


def _works(worker: Worker, implementation: str, is_unloaded: bool = True) -> Any:
    loaded = worker.load(f"user_models.{implementation}")
    assert loaded.kind == LOADED, loaded.head
    assert loaded.head["ready"] is True
    worker.send(frame(PREDICT, 512, REQUEST))
    answer = worker.receive()
    assert answer.kind == ANSWER, answer.head
    worker.send(frame(UNLOAD, 768, {"model": 7}))
    ended = worker.receive()
    assert (ended.kind == DONE) == is_unloaded, ended.head
    return loaded.head["metadata"]


@pytest.mark.parametrize("form", FORMS)
def test_names_may_be_the_users_own(form):
    with tempfile.TemporaryFile() as output, Worker(output=output) as worker:
        for name in sorted(OWN_NAMES | FORMER):
            if form == "instance" and name in ("name", "settings", "version"):
                continue  # read-only properties
            metadata = _works(worker, f"{form}_{name}", is_unloaded=name != "unload" or form == "delegates")
            assert (metadata["name"], metadata["platform"]) == ("m", "")
        output.seek(0)
        text = output.read().decode()
    warned = text.count("The attribute `metadata` of model 'm'")
    # `delegates` has the methods of the base class.
    assert warned == (0 if form == "delegates" else 1), text


def test_metadata_may_be_odd():
    with tempfile.TemporaryFile() as output, Worker(output=output) as worker:
        for name in ("OddMetadata", "ExitingMetadata", "WrongMetadata"):
            assert _works(worker, name)["platform"] == ""
        assert _works(worker, "DictMetadata")["platform"] == "mine"
        output.seek(0)
        assert output.read().count(b"The attribute `metadata` of model 'm'") == 3


@pytest.mark.parametrize("name", ["ReadOnlyReady", "WithoutInit", "UnhelpfulAttribute"])
def test_odd_models_load(name):
    with Worker() as worker:
        _works(worker, name)


def test_ready_may_be_computed():
    with Worker() as worker:
        assert worker.load("user_models.ReadyByProperty").head["ready"] is False


def test_value_in_place_of_load_is_named():
    with Worker() as worker:
        failed = worker.load("user_models.list_load")
        assert failed.kind == ERROR
        assert "`load` of the model is of type `list`" in failed.head["message"]
