"""Logs, metrics, imports of user code, registries, and responses of custom handlers."""

import asyncio
import importlib
import io
import json
import logging
import os
import pathlib
import pickle
import sys
from http import HTTPStatus
from typing import Any, Iterator, List

import mlserver
import pytest
from mlserver import MLModel, ModelSettings, Settings
from mlserver._imports import import_object
from mlserver.context import model_context
from mlserver.errors import MLServerError, ModelNotFound
from mlserver.logging import ModelLoggerFormatter, configure_logger, install_handler
from mlserver.metrics import REGISTRY, Observation, set_sink
from mlserver.metrics.registry import MetricsRegistry
from mlserver.registry import MultiModelRegistry
from mlserver.repository import ModelRepositoryFactory
from mlserver.rest.responses import Response
from mlserver.settings import ModelParameters


def settings(**fields: Any) -> ModelSettings:
    return ModelSettings(**{"name": "m", "implementation": MLModel, **fields})


# Metrics


@pytest.fixture
def sunk() -> Iterator[List[Observation]]:
    observations: List[Observation] = []
    set_sink(observations.append)
    yield observations
    set_sink(None)


def test_sink_receives_every_observation(sunk: List[Observation]) -> None:
    mlserver.register("sunk_metric", "what it is")
    with model_context(settings(parameters={"version": "1"})):
        mlserver.log(sunk_metric=2, sunk_other=0.5)
    labels = {"model_name": "m", "model_version": "1"}
    assert sunk == [
        Observation("sunk_metric", "what it is", labels, 2.0),
        Observation("sunk_other", "TODO: Default description?", labels, 0.5),
    ]
    assert REGISTRY["sunk_metric"].labels("m", "1").count == 1


def test_histogram_counts_without_sink() -> None:
    with model_context(settings()):
        mlserver.log(kept_metric=0.01)
        mlserver.log(kept_metric=100)
    child = mlserver.register("kept_metric", "").labels(model_name="m", model_version="")
    assert (child.count, child.sum, child.buckets[1], child.buckets[-1]) == (2, 100.01, 1, 1)
    with child.time():
        pass
    assert child.count == 3


def test_histogram_rejects_invalid_values_and_labels() -> None:
    metric = mlserver.register("strict_metric", "")
    with pytest.raises(TypeError, match="strict_metric"):
        metric.labels("m", "").observe("x")  # type: ignore[arg-type]
    for labels in (("m",), ("m", "1", "2")):
        with pytest.raises(ValueError, match="model_name and model_version"):
            metric.labels(*labels)
    with pytest.raises(ValueError, match="label values"):
        metric.observe(1)


@pytest.mark.needs("prometheus_client")
def test_registry_is_a_registry_of_prometheus_client() -> None:
    import prometheus_client
    from mlserver.metrics.errors import MetricNotFound
    from mlserver.metrics.prometheus import families

    registry = MetricsRegistry()
    with pytest.raises(MetricNotFound):
        _ = registry["own_counter"]
    counter = prometheus_client.Counter("own_counter", "of the user", registry=registry)
    histogram = prometheus_client.Histogram("own_histogram", "", ["model_name"], registry=registry)
    assert isinstance(registry, prometheus_client.CollectorRegistry)
    assert isinstance(registry, MetricsRegistry)
    assert registry["own_counter_total"] is counter
    assert registry.get("own_histogram") is histogram
    assert "own_histogram" in registry
    assert [metric.name for metric in registry.collect()] == ["own_counter", "own_histogram"]
    counter.inc(2)
    assert registry.get_sample_value("own_counter_total") == 2
    assert b"own_counter_total 2.0" in prometheus_client.generate_latest(registry)
    with pytest.raises(ValueError, match="Duplicated"):
        prometheus_client.Counter("own_counter", "", registry=registry)
    registry.unregister(counter)
    assert not registry.exists("own_counter")

    shared = prometheus_client.Gauge("registered_gauge", "", registry=REGISTRY)
    try:
        shared.set(3)
        prometheus_client.REGISTRY.register(shared)
        assert [family["samples"] for family in families() if family["name"] == "registered_gauge"] == [
            [("registered_gauge", [], "3.0")]
        ]
        prometheus_client.REGISTRY.unregister(shared)
        assert [family["merge"] for family in families() if family["name"] == "registered_gauge"] == ["each"]
    finally:
        REGISTRY.unregister(shared)
    assert not any(family["name"] == "registered_gauge" for family in families())


@pytest.mark.needs("prometheus_client")
def test_registered_histogram_is_one_of_prometheus_client() -> None:
    import prometheus_client
    from mlserver.metrics.prometheus import families

    metric = mlserver.register("collected_metric", "what it is")
    assert isinstance(metric, prometheus_client.Histogram)
    assert mlserver.register("collected_metric", "") is metric
    with model_context(settings(parameters={"version": "1"})):
        mlserver.log(collected_metric=0.3)
    labels = {"model_name": "m", "model_version": "1"}
    assert REGISTRY.get_sample_value("collected_metric_count", labels) == 1
    assert REGISTRY.get_sample_value("collected_metric_sum", labels) == 0.3
    assert REGISTRY.get_sample_value("collected_metric_bucket", {**labels, "le": "0.25"}) == 0
    assert REGISTRY.get_sample_value("collected_metric_bucket", {**labels, "le": "+Inf"}) == 1
    with pytest.raises(ValueError, match="Duplicated"):
        prometheus_client.Counter("collected_metric", "", registry=REGISTRY)
    # The server has its observations already.
    assert not any(family["name"] == "collected_metric" for family in families())
    REGISTRY.unregister(metric)
    assert "collected_metric" not in REGISTRY


@pytest.mark.needs("prometheus_client")
def test_log_observes_histogram_that_user_registered() -> None:
    import prometheus_client

    labels = ["model_name", "model_version"]
    metric = prometheus_client.Histogram("users_own_metric", "", labels, registry=REGISTRY)
    try:
        with model_context(settings()):
            mlserver.log(users_own_metric=2)
        assert REGISTRY.get_sample_value("users_own_metric_sum", dict(zip(labels, ("m", "")))) == 2
        assert mlserver.register("users_own_metric", "") is metric
    finally:
        REGISTRY.unregister(metric)


def test_registry_without_client_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(AttributeError, match="`collect` of the metrics registry needs `prometheus_client`"):
        MetricsRegistry().collect()


@pytest.mark.needs("prometheus_client")
def test_prometheus_client_metrics_are_collected() -> None:
    import prometheus_client
    from mlserver.metrics.prometheus import families

    counter = prometheus_client.Counter("users_counter", "of the user", ["kind"])
    counter.labels("a").inc(3)
    prometheus_client.Gauge("users_gauge", "", multiprocess_mode="livesum").set(float("inf"))
    prometheus_client.Gauge("users_level", "").set(-1)
    prometheus_client.Histogram("users_histogram", "", buckets=[1]).observe(0.5)

    class Broken:
        def describe(self) -> Any:
            return []

        def collect(self) -> Any:
            raise RuntimeError("not today")

    prometheus_client.REGISTRY.register(Broken())  # type: ignore[arg-type]
    told = {family.pop("name"): family for family in families()}
    assert told == {
        "users_counter_total": {
            "help": "of the user",
            "kind": "counter",
            "merge": "sum",
            "samples": [("users_counter_total", [("kind", "a")], "3.0")],
        },
        "users_gauge": {"help": "", "kind": "gauge", "merge": "sum", "samples": [("users_gauge", [], "inf")]},
        "users_level": {"help": "", "kind": "gauge", "merge": "each", "samples": [("users_level", [], "-1.0")]},
        "users_histogram": {
            "help": "",
            "kind": "histogram",
            "merge": "sum",
            "samples": [
                ("users_histogram_bucket", [("le", "1.0")], "1.0"),
                ("users_histogram_bucket", [("le", "+Inf")], "1.0"),
                ("users_histogram_count", [], "1.0"),
                ("users_histogram_sum", [], "0.5"),
            ],
        },
    }


# Logs


def line(structured: bool, message: str, version: str = "") -> str:
    formatter = ModelLoggerFormatter(Settings(use_structured_logging=structured))
    record = logging.LogRecord("mlserver", logging.INFO, "", 0, message, (), None)
    parameters = {"version": version} if version else {}
    with model_context(settings(parameters=parameters)):
        return formatter.format(record)


def test_log_line_contains_model() -> None:
    assert line(False, "hello").endswith(" [mlserver][m] INFO - hello")
    assert line(False, "hello", "v1").endswith(" [mlserver][m:v1] INFO - hello")


def test_structured_log_line_is_json() -> None:
    told = json.loads(line(True, 'a "quoted"\nline', "v1"))
    assert told.pop("time")
    assert told == {
        "name": "mlserver",
        "level": "INFO",
        "message": 'a "quoted"\nline',
        "model_name": "m",
        "model_version": "v1",
    }


def test_installed_handler_receives_each_record_once(capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    install_handler(handler)
    try:
        configure_logger(Settings(debug=True))
        mlserver.logging.logger.debug("from the server")
        logging.getLogger("users.module").warning("from the user")
        assert stream.getvalue() == "from the server\nfrom the user\n"
    finally:
        install_handler(None)
        mlserver.logging.logger.setLevel(logging.NOTSET)
    assert capsys.readouterr().out == ""


def test_logging_settings_are_applied(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "logging.json"
    file.write_text(
        json.dumps({"version": 1, "disable_existing_loggers": False, "loggers": {"some.user": {"level": "ERROR"}}})
    )
    configure_logger(Settings(logging_settings=str(file)))
    assert logging.getLogger("some.user").level == logging.ERROR
    for handler in list(mlserver.logging.logger.handlers):
        mlserver.logging.logger.removeHandler(handler)
    mlserver.logging.logger.setLevel(logging.NOTSET)


# Users' code


def model_folder(root: pathlib.Path, name: str, answer: str) -> pathlib.Path:
    folder = root / name
    folder.mkdir()
    (folder / "models.py").write_text(
        "from mlserver import MLModel\nfrom helper import ANSWER\nclass M(MLModel):\n    answer = ANSWER\n"
    )
    (folder / "helper.py").write_text(f"ANSWER = {answer!r}\n")
    file = folder / "model-settings.json"
    file.write_text(json.dumps({"name": name, "implementation": "models.M"}))
    return file


def test_import_object_isolates_modules_of_folders(tmp_path: pathlib.Path) -> None:
    first = ModelSettings.parse_file(model_folder(tmp_path, "a", "of a"))
    second = ModelSettings.parse_file(model_folder(tmp_path, "b", "of b"))
    assert first.implementation.answer == "of a"  # type: ignore[attr-defined]
    assert second.implementation.answer == "of b"  # type: ignore[attr-defined]
    assert first.implementation is first.implementation

    (tmp_path / "a" / "helper.py").write_text("ANSWER = 'changed'\n")
    os.utime(tmp_path / "a" / "helper.py", (1, 1))
    again = ModelSettings.parse_file(tmp_path / "a" / "model-settings.json")
    assert again.implementation.answer == "changed"  # type: ignore[attr-defined]
    assert first.implementation.answer == "of a"  # type: ignore[attr-defined]


def test_import_object_reports_reason_of_failure(tmp_path: pathlib.Path) -> None:
    file = model_folder(tmp_path, "a", "x")
    for path, told in (("models.Missing", "has no `Missing`"), ("nowhere.M", "nowhere"), ("M", "not an import path")):
        found = ModelSettings.from_source({"implementation": path}, str(file))
        with pytest.raises(ImportError, match=told):
            _ = found.implementation


def test_settings_read_env_file(tmp_path: pathlib.Path) -> None:
    (tmp_path / ".env").write_text(
        "# comment\nexport MLSERVER_HTTP_PORT=81 # why\nMLSERVER_SERVER_NAME='a b'\nMLSERVER_EXTENSIONS=[\"x\"]\n"
    )
    found = Settings(grpc_port=5)
    assert (found.http_port, found.server_name, found.extensions, found.grpc_port) == (81, "a b", ["x"], 5)
    (tmp_path / ".env").write_text("MLSERVER_EXTENSIONS=a,b\n")
    with pytest.raises(ValueError, match="MLSERVER_EXTENSIONS is not valid JSON"):
        Settings()


def test_custom_model_repository_is_resolved(tmp_path: pathlib.Path) -> None:
    (tmp_path / "my_repository.py").write_text(
        "from mlserver.repository import ModelRepository\n"
        "class Mine(ModelRepository):\n"
        "    def __init__(self, root, suffix):\n"
        "        self.where = root + suffix\n"
        "    async def list(self):\n"
        "        return []\n"
        "    async def find(self, name):\n"
        "        return []\n"
    )
    import sys

    sys.path.insert(0, str(tmp_path))
    try:
        made: Any = ModelRepositoryFactory.resolve_model_repository(
            Settings(
                model_repository_implementation="my_repository.Mine",
                model_repository_root="/r",
                model_repository_implementation_args={"suffix": "!"},
            )
        )
    finally:
        sys.path.remove(str(tmp_path))
    assert made.where == "/r!"


# The registry


class Recording(MLModel):
    calls: List[str] = []

    async def load(self) -> bool:
        self.calls.append(f"load {self.version}")
        if self.version == "bad":
            raise RuntimeError("boom")
        return True

    async def unload(self) -> bool:
        self.calls.append(f"unload {self.version}")
        return True


def test_registry_loads_and_unloads_versions() -> None:
    async def scenario() -> None:
        Recording.calls.clear()
        registry = MultiModelRegistry()

        def version(name: str) -> ModelSettings:
            return settings(implementation=Recording, parameters={"version": name})

        first = await registry.load(version("2"))
        await registry.load(version("10"))
        assert (await registry.get_model("m")).version == "10"
        assert await registry.get_model("m", "2") is first
        again = await registry.load(version("2"))
        assert await registry.get_model("m", "2") is again
        assert not first.ready
        assert again.ready
        with pytest.raises(RuntimeError, match="boom"):
            await registry.load(version("bad"))
        assert len(await registry.get_models()) == 2
        await registry.unload_version("m", "10")
        assert (await registry.get_model("m")).version == "2"
        await registry.unload("m")
        with pytest.raises(ModelNotFound):
            await registry.get_model("m")
        assert Recording.calls == ["load 2", "load 10", "load 2", "unload 2", "load bad", "unload 10", "unload 2"]

    asyncio.run(scenario())


def test_rest_response_renders_body() -> None:
    response = Response({"a": b"\xc3\xa9", "b": [float("nan")]}, status_code=201, headers={"x": "y"})
    assert (response.body, response.status_code) == ('{"a":"é","b":[null]}'.encode(), 201)
    assert (response.headers, response.media_type) == ({"x": "y"}, "application/json")


def test_import_object_keeps_modules_of_other_folders_importable(tmp_path: pathlib.Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"only_{name}.py").write_text("class Item:\n    pass\n")
    first = import_object("only_a.Item", str(tmp_path / "a"))
    import_object("only_b.Item", str(tmp_path / "b"))
    assert isinstance(pickle.loads(pickle.dumps(first())), first)
    assert importlib.import_module("only_a").Item is first
    (tmp_path / "b" / "reads.py").write_text("import only_a\nItem = only_a.Item\n")
    with pytest.raises(ModuleNotFoundError, match="only_a"):
        import_object("reads.Item", str(tmp_path / "b"))
    assert import_object("only_a.Item", str(tmp_path / "a")) is not first


# Versions, settings, errors and headers


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        (["8", "v3", "7"], "v3"),
        (["10", "9", "!"], "10"),
        (["9", "10"], "10"),
        (["1.10", "1.9"], "1.9"),
        (["1", None], None),
    ],
)
def test_registry_default_is_that_of_original(versions: List[Any], expected: Any) -> None:
    async def default(order: List[Any]) -> Any:
        registry = MultiModelRegistry()
        for version in order:
            await registry.load(settings(parameters={"version": version}))
        return (await registry.get_model("m")).version

    for order in (versions, versions[::-1]):
        assert asyncio.run(default(order)) == expected


def test_settings_take_env_file_and_prefix(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "other.env"
    file.write_text("MLSERVER_HTTP_PORT=5555\nOWN_HTTP_PORT=6666\nMLSERVER_MODEL_NAME=m\nMLSERVER_MODEL_IMPLEMENTATION=a.B\n")
    (tmp_path / ".env").write_text("MLSERVER_HTTP_PORT=7777\n")
    assert Settings().http_port == 7777
    assert Settings(_env_file=file).http_port == 5555
    assert Settings(_env_file=[".env", str(file)]).http_port == 5555
    assert Settings(_env_file=str(file), _env_prefix="OWN_").http_port == 6666
    assert Settings(_env_file=None).http_port == 8080
    assert ModelSettings(_env_file=file).name == "m"
    parameters = ModelParameters(_env_file=file, uri="u")
    assert parameters.dict() == {"uri": "u"}
    with pytest.raises(TypeError, match="_secrets_dir"):
        Settings(_secrets_dir="/run/secrets")


def test_settings_keep_custom_server_settings() -> None:
    made = Settings()
    assert made._custom_rest_server_settings is None
    made._custom_rest_server_settings = {"workers": 1}
    assert made._custom_rest_server_settings == {"workers": 1}
    assert made.dict() == {}


def test_model_settings_take_their_source() -> None:
    values = {"_source": "/models/m/model-settings.json", "name": "m", "implementation": "a.B"}
    for made in (ModelSettings.model_validate(values), ModelSettings.parse_obj(values), ModelSettings(**values)):
        assert made._source == values["_source"]
        assert made.dict() == {"name": "m", "implementation": "a.B"}


def test_error_status_may_be_an_http_status() -> None:
    error = MLServerError("gone", HTTPStatus.NOT_FOUND)
    assert (error.status_code, type(error.status_code)) == (404, int)


@pytest.mark.needs("grpc", "google.protobuf")
def test_grpc_converters_and_headers_are_those_of_original() -> None:
    from mlserver.grpc import dataplane_pb2
    from mlserver.grpc.converters import ModelInferResponseConverter
    from mlserver.grpc.utils import to_headers

    message = dataplane_pb2.ModelInferResponse(model_name="m")
    assert ModelInferResponseConverter.to_types(message).model_version is None

    class Context:
        def invocation_metadata(self) -> Any:
            return (("a", "1"),)

        def trailing_metadata(self) -> Any:
            return (("b", "2"),)

    assert to_headers(Context()) == {"a": "1", "b": "2"}
