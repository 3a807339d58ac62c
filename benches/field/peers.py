"""The servers of the comparison: how each is started for throughput, and what it is sent."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
APPS = HERE / "apps"
#: Processes of each server, one for each core: all of them recommend it for code that computes.
PROCESSES = os.cpu_count() or 1
MODELS = ("xgboost", "sklearn", "echo")
ROW_COUNTS = (1, 1000)
COLUMNS = 20

Rows = list[list[float]]


@dataclass
class Setup:
    """What is needed to start a server."""

    #: The folder of its virtual environment, or of our executable.
    home: Path
    #: The folder of trained models.
    models: Path
    ports: list[int]
    ours: Path

    def program(self, name: str) -> str:
        """A program of the environment."""
        return str(self.home / "bin" / name)

    def app(self, name: str, *arguments: object) -> list[str]:
        """A script of `apps`, run by the environment's Python."""
        return [self.program("python"), str(APPS / name), *map(str, arguments)]


@dataclass
class Peer:
    """A server."""

    name: str
    label: str
    #: Configuration and the page of its documentation that recommends it.
    configuration: str
    page: str
    commands: Callable[[Setup], list[list[str]]]
    #: Path of a model's route, and which of the ports it is on.
    path: Callable[[str], str] = lambda model: f"/{model}"
    port: Callable[[str], int] = lambda model: 0
    write: Callable[[str, Rows], bytes] = lambda model, rows: json.dumps({"rows": rows}).encode()
    read: Callable[[dict], object] = lambda body: body["predictions"]
    environment: Callable[[Setup], dict[str, str]] = lambda setup: {}
    #: Writes files of models in formats of its own, before the first start.
    prepare: list[str] = field(default_factory=list)
    #: Whether it loads Python's shared library, which has to be the one of its interpreter.
    shared_library: bool = False


# --- bodies ----------------------------------------------------------------------------------------------------------


def v2(name: str, model: str, rows: Rows) -> bytes:
    """A request of the Open Inference Protocol."""
    datatype = "FP32" if model == "xgboost" else "FP64"
    data = [value for row in rows for value in row]
    return json.dumps(
        {"inputs": [{"name": name, "shape": [len(rows), COLUMNS], "datatype": datatype, "data": data}]}
    ).encode()


def outputs(body: dict) -> object:
    """The first output of a response of the Open Inference Protocol."""
    return body["outputs"][0]["data"]


# --- starts ----------------------------------------------------------------------------------------------------------


def write_mlserver_models(folder: Path, models: Path, batching: dict[str, object]) -> str:
    """Writes the folder that MLServer and this server start with."""
    implementations = {
        "xgboost": ("mlserver_xgboost.XGBoostModel", str(models / "xgboost.json")),
        "sklearn": ("mlserver_sklearn.SKLearnModel", str(models / "sklearn.joblib")),
        "echo": ("mlserver_models.Echo", None),
    }
    for name, (implementation, uri) in implementations.items():
        home = folder / name
        home.mkdir(parents=True, exist_ok=True)
        settings: dict[str, object] = {"name": name, "implementation": implementation, **batching}
        if uri is not None:
            settings["parameters"] = {"uri": uri}
        (home / "model-settings.json").write_text(json.dumps(settings))
    (folder / "echo" / "mlserver_models.py").write_text((APPS / "mlserver_models.py").read_text())
    return str(folder)


def mlserver_environment(setup: Setup) -> dict[str, str]:
    """Settings that MLServer and this server share."""
    http_port, grpc_port, metrics_port = setup.ports[:3]
    return {
        "MLSERVER_HOST": "127.0.0.1",
        "MLSERVER_HTTP_PORT": str(http_port),
        "MLSERVER_GRPC_PORT": str(grpc_port),
        "MLSERVER_METRICS_PORT": str(metrics_port),
        "MLSERVER_DEBUG": "false",
        "MLSERVER_PARALLEL_WORKERS": str(PROCESSES),
    }


def ours(setup: Setup) -> list[list[str]]:
    """Our server. The models in Python run on the interpreter of the environment, in which only NumPy is needed."""
    return [[str(setup.ours), "start", write_mlserver_models(setup.models / "ours", setup.models, {})]]


def mlserver(setup: Setup) -> list[list[str]]:
    """The original."""
    batching: dict[str, object] = {"max_batch_size": 16, "max_batch_time": 0.001}
    return [
        [setup.program("mlserver"), "start", write_mlserver_models(setup.models / "mlserver", setup.models, batching)]
    ]


def mlflow(setup: Setup) -> list[list[str]]:
    """A scoring server for each model."""
    options = ["--env-manager", "local", "--host", "127.0.0.1", "--workers", str(PROCESSES)]
    serve = [setup.program("mlflow"), "models", "serve", *options]
    return [
        [*serve, "--model-uri", str(setup.models / f"mlflow-{model}"), "--port", str(port)]
        for model, port in zip(MODELS, setup.ports)
    ]


def mlflow_environment(setup: Setup) -> dict[str, str]:
    """The scoring server starts programs of its environment by their names."""
    path = f"{setup.home / 'bin'}:{os.environ['PATH']}"
    return {
        "PATH": path,
        "MLFLOW_TRACKING_URI": f"sqlite:///{setup.models / 'mlflow.db'}",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }


def fastapi(setup: Setup) -> list[list[str]]:
    """Uvicorn with a process for each core."""
    options = [
        "--app-dir",
        str(APPS),
        "--host",
        "127.0.0.1",
        "--port",
        str(setup.ports[0]),
        "--workers",
        str(PROCESSES),
    ]
    return [[setup.program("uvicorn"), "fastapi_app:app", *options, "--log-level", "warning", "--no-access-log"]]


def bentoml(setup: Setup) -> list[list[str]]:
    """A service from its source."""
    options = ["--working-dir", str(APPS), "--host", "127.0.0.1", "--port", str(setup.ports[0])]
    return [[setup.program("bentoml"), "serve", "bentoml_app:Field", *options]]


def bentoml_environment(setup: Setup) -> dict[str, str]:
    """BentoML keeps its files below the trained models."""
    return {
        "PATH": f"{setup.home / 'bin'}:{os.environ['PATH']}",
        "BENTOML_HOME": str(setup.models / "bentoml"),
        "BENTOML_DO_NOT_TRACK": "True",
    }


def pytriton_environment(setup: Setup) -> dict[str, str]:
    """Triton loads the shared library of the environment's Python, which may not be where the system looks for libraries."""
    question = "import sysconfig; print(sysconfig.get_config_var('LIBDIR'))"
    asked = subprocess.run([setup.program("python"), "-c", question], capture_output=True, text=True, check=True)
    return {"LD_LIBRARY_PATH": asked.stdout.strip()}


PEERS = {
    peer.name: peer
    for peer in (
        Peer(
            "ours",
            "mlserver",
            f"XGBoost and scikit-learn natively, the echo with {PROCESSES} workers",
            "Performance tuning",
            ours,
            path=lambda model: f"/v2/models/{model}/infer",
            write=lambda model, rows: v2("x", model, rows),
            read=outputs,
            environment=lambda setup: {
                **mlserver_environment(setup),
                "MLSERVER_PYTHON_EXECUTABLE": setup.program("python"),
            },
        ),
        Peer(
            "mlserver",
            "MLServer 1.7.1",
            f"{PROCESSES} parallel workers, adaptive batching (16 requests, 1 ms), debug off",
            "Parallel Inference; Adaptive Batching",
            mlserver,
            path=lambda model: f"/v2/models/{model}/infer",
            write=lambda model, rows: v2("x", model, rows),
            read=outputs,
            environment=mlserver_environment,
        ),
        Peer(
            "kserve",
            "KServe 0.21.0",
            f"custom models over V1, `workers` {PROCESSES}, without logs of requests",
            "Python Model Serving Runtime: Parallel Inference",
            lambda setup: [setup.app("kserve_app.py", setup.ports[0], "--log_config_file", APPS / "kserve_logs.yaml")],
            path=lambda model: f"/v1/models/{model}:predict",
            write=lambda model, rows: json.dumps({"instances": rows}).encode(),
            # Its release warns about FastAPI's in each request.
            environment=lambda setup: {"PYTHONWARNINGS": "ignore"},
        ),
        Peer(
            "mlflow",
            "MLflow 3.17.2",
            f"`mlflow models serve` of its own flavors, `--workers {PROCESSES}`, one server for each model",
            "Deploy MLflow Model as a Local Inference Server",
            mlflow,
            path=lambda model: "/invocations",
            port=MODELS.index,
            write=lambda model, rows: json.dumps({"inputs": rows}).encode(),
            environment=mlflow_environment,
            prepare=["mlflow_models.py"],
        ),
        Peer(
            "bentoml",
            "BentoML 1.4.40",
            f"adaptive batching, `workers` {PROCESSES}, metrics and access log off",
            "Adaptive batching; Parallelize requests handling",
            bentoml,
            read=lambda body: body,
            environment=bentoml_environment,
        ),
        Peer(
            "litserve",
            "LitServe 0.2.19",
            f"`workers_per_device` {PROCESSES}, `fast_queue`; without batching, which was slower here",
            "Autoscaling; Batching",
            lambda setup: [setup.app("litserve_app.py", setup.ports[0])],
        ),
        Peer(
            "ray",
            "Ray Serve 2.60.0",
            f"{PROCESSES} replicas, `RAY_SERVE_THROUGHPUT_OPTIMIZED` and HAProxy, without dashboard",
            "Performance Tuning",
            lambda setup: [setup.app("ray_app.py", setup.ports[0])],
            environment=lambda setup: {
                "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
                "RAY_SERVE_ENABLE_HA_PROXY": "1",
                "RAY_USAGE_STATS_ENABLED": "0",
            },
        ),
        Peer(
            "mosec",
            "mosec 0.9.8",
            f"{PROCESSES} workers for each model, batches of 16 within 1 ms",
            "README; Server configuration",
            lambda setup: [setup.app("mosec_app.py", "--address", "127.0.0.1", "--port", setup.ports[0])],
        ),
        Peer(
            "pytriton",
            "PyTriton 0.7.0",
            f"{PROCESSES} instances of each model, dynamic batcher with a queue delay of 0.1 ms, V2 JSON",
            "Binding Model to Triton; Deploying Models",
            lambda setup: [setup.app("pytriton_app.py", *setup.ports[:3])],
            environment=pytriton_environment,
            shared_library=True,
            path=lambda model: f"/v2/models/{model}/infer",
            write=lambda model, rows: v2("x", model, rows),
            read=outputs,
        ),
        Peer(
            "fastapi",
            "FastAPI 0.165.0",
            f"plain handlers, Uvicorn with `--workers {PROCESSES}`, without access log",
            "Server Workers; Concurrency and async / await",
            fastapi,
        ),
    )
}

#: Servers that are not measured, and why.
LEFT_OUT = {
    "Triton Inference Server with its C++ backends (FIL)": (
        "published as a container only, and this comparison uses none; PyTriton has the same server with models in Python"
    ),
    "TorchServe": "archived by its authors, and without a runtime for these models",
    "Seldon Core, KServe's controllers": "need a cluster; the servers that they start are the ones above",
}
