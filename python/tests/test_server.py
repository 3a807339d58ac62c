"""`MLServer`, which runs the executable, and the functions of `mlserver.cli`."""

import asyncio
import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import threading
import urllib.request
from typing import Any, Dict, List

import pytest
from executable import needs_executable
from mlserver import MLModel, MLServer, ModelSettings, Settings
from mlserver.cli.serve import load_settings
from mlserver.errors import MLServerError
from mlserver.server import find_executable

#: The executable of this project, as for the other tests that need it.
BINARY = os.environ.get("MLSERVER_BIN")

PACKAGE = pathlib.Path(__file__).resolve().parents[1]

#: Stands in for the executable: reports what it was given, and ends as the server does.
EXECUTABLE = f"""#!{sys.executable}
import json, os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
signal.signal(signal.SIGINT, lambda *_: sys.exit(0))
files = {{}}
if sys.argv[1:2] == ["start"]:
    for folder, _, names in os.walk(sys.argv[2], followlinks=True):
        for name in names:
            path = os.path.join(folder, name)
            files[os.path.relpath(path, sys.argv[2])] = open(path, errors="replace").read()
report = {{"arguments": sys.argv[1:], "files": files, "environment": dict(os.environ), "pid": os.getpid()}}
with open(os.environ["REPORT"] + ".part", "w") as file:
    json.dump(report, file)
os.rename(os.environ["REPORT"] + ".part", os.environ["REPORT"])
if "EXIT" in os.environ:
    sys.exit(int(os.environ["EXIT"]))
time.sleep(30)
"""


class Executable:
    def __init__(self, folder: pathlib.Path) -> None:
        self.path = folder / "mlserver"
        self.path.write_text(EXECUTABLE)
        self.path.chmod(0o755)
        self.report_path = folder / "report.json"

    async def report(self) -> Dict[str, Any]:
        for _ in range(1000):
            if self.report_path.exists():
                return dict(json.loads(self.report_path.read_text()))
            await asyncio.sleep(0.01)
        raise AssertionError("the executable was not started")


@pytest.fixture
def executable(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Executable:
    made = Executable(tmp_path)
    monkeypatch.setenv("MLSERVER_BIN", str(made.path))
    monkeypatch.setenv("REPORT", str(made.report_path))
    return made


class SumModel(MLModel):
    """A model at the top level of a module."""


async def started(executable: Executable, server: MLServer, models: List[ModelSettings]) -> Dict[str, Any]:
    """Starts and stops the server. Returns what the executable has reported."""
    task = asyncio.ensure_future(server.start(models))
    report = await executable.report()
    assert os.path.isdir(report["arguments"][1])
    await server.stop()
    await task
    assert not os.path.exists(report["arguments"][1])
    return report


def test_start_writes_settings_and_models(executable: Executable) -> None:
    settings = Settings(http_port=5000, metrics_endpoint=None, model_repository_root="/elsewhere")
    models = [
        ModelSettings(name="sum", implementation=SumModel, parameters={"version": "1", "uri": "data/model.bin"}),
        ModelSettings(name="../odd name", implementation="other.Model", max_batch_size=5),
        ModelSettings(name="sum", implementation=SumModel, parameters={"version": "2", "uri": "s3://bucket/model"}),
    ]
    report = asyncio.run(started(executable, MLServer(settings), models))
    files = {name: json.loads(text) for name, text in report["files"].items()}
    assert report["arguments"][0] == "start"
    assert files.pop("settings.json") == {"http_port": 5000, "metrics_endpoint": None, "load_models_at_startup": True}
    implementation = f"{SumModel.__module__}.SumModel"
    uri = os.path.join(os.getcwd(), "data/model.bin")
    assert files == {
        "sum/model-settings.json": {
            "name": "sum",
            "implementation": implementation,
            "parameters": {"version": "1", "uri": uri},
        },
        "model-1/model-settings.json": {"name": "../odd name", "implementation": "other.Model", "max_batch_size": 5},
        "model-2/model-settings.json": {
            "name": "sum",
            "implementation": implementation,
            "parameters": {"version": "2", "uri": "s3://bucket/model"},
        },
    }
    assert report["environment"]["MLSERVER_PYTHON_EXECUTABLE"] == sys.executable
    assert str(PACKAGE) in report["environment"]["PYTHONPATH"].split(os.pathsep)


def test_start_links_files_beside_models_that_come_from_files(executable: Executable, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "repository"
    (folder / "one" / "inner").mkdir(parents=True)
    (folder / "one" / "models.py").write_text("")
    for path, name in [("one", "one"), ("one/inner", "inner")]:
        (folder / path / "model-settings.json").write_text(json.dumps({"name": name, "implementation": "models.M"}))
    (folder / "settings.json").write_text('{"debug": true}')
    settings, models = asyncio.run(load_settings(str(folder)))
    assert (settings.debug, settings.model_repository_root) == (True, str(folder))
    assert sorted(model.name for model in models) == ["inner", "one"]
    report = asyncio.run(started(executable, MLServer(settings), models))
    assert sorted(report["files"]) == [
        "inner/model-settings.json",
        "one/model-settings.json",
        "one/models.py",
        "settings.json",
    ]
    parameters = json.loads(report["files"]["one/model-settings.json"])["parameters"]
    assert parameters["uri"] == str(folder / "one")


def test_start_without_models_links_repository(executable: Executable, tmp_path: pathlib.Path) -> None:
    root = tmp_path / "models" / "one"
    root.mkdir(parents=True)
    (root / "model-settings.json").write_text("{}")
    settings = Settings(model_repository_root=str(root.parent))
    report = asyncio.run(started(executable, MLServer(settings), []))
    assert json.loads(report["files"]["settings.json"]) == {"load_models_at_startup": False}
    assert report["files"]["models/one/model-settings.json"] == "{}"


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM])
def test_signal_stops_server_and_removes_folder(executable: Executable, sig: signal.Signals) -> None:
    code = "import asyncio, mlserver; asyncio.run(mlserver.MLServer(mlserver.Settings()).start()); print('ended')"
    process = subprocess.Popen([sys.executable, "-c", code], cwd=PACKAGE, stdout=subprocess.PIPE, text=True)
    try:
        report = asyncio.run(executable.report())
        process.send_signal(sig)
        output, _ = process.communicate(timeout=20)
    finally:
        process.kill()
    assert (process.returncode, output) == (0, "ended\n")
    assert not os.path.exists(report["arguments"][1])
    with pytest.raises(ProcessLookupError):
        os.kill(report["pid"], 0)


def test_cancelled_start_stops_server(executable: Executable) -> None:
    async def run() -> Dict[str, Any]:
        task = asyncio.ensure_future(MLServer(Settings()).start([]))
        report = await executable.report()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return report

    report = asyncio.run(run())
    assert not os.path.exists(report["arguments"][1])
    with pytest.raises(ProcessLookupError):
        os.kill(report["pid"], 0)


def test_stop_before_process_has_started_stops_it(executable: Executable) -> None:
    async def run() -> None:
        server = MLServer(Settings())
        await server.stop()
        task = asyncio.ensure_future(server.start([]))
        await asyncio.sleep(0)
        with pytest.raises(MLServerError, match="started already"):
            await server.start([])
        await server.stop()
        await asyncio.wait_for(task, 10)

    asyncio.run(run())


def test_start_works_in_other_threads(executable: Executable) -> None:
    found: List[Any] = []
    thread = threading.Thread(target=lambda: found.append(asyncio.run(started(executable, MLServer(Settings()), []))))
    thread.start()
    thread.join(20)
    assert found[0]["arguments"][0] == "start"


def test_start_reports_failure_of_server(executable: Executable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXIT", "1")
    with pytest.raises(MLServerError, match="exit code 1"):
        asyncio.run(MLServer(Settings()).start([]))


def test_start_rejects_models_that_workers_cannot_import(executable: Executable) -> None:
    class Local(MLModel):
        """Defined in a function."""

    with pytest.raises(MLServerError, match="top level of a module"):
        asyncio.run(MLServer(Settings()).start([ModelSettings(name="m", implementation=Local)]))


def test_class_of_running_script_is_imported_from_its_file(executable: Executable, tmp_path: pathlib.Path) -> None:
    script = tmp_path / "serving.py"
    script.write_text(
        "import asyncio\nfrom mlserver import MLModel, MLServer, ModelSettings, Settings\n"
        "class Model(MLModel):\n    pass\n"
        "asyncio.run(MLServer(Settings()).start([ModelSettings(name='m', implementation=Model)]))\n"
    )
    environment = {**os.environ, "EXIT": "0", "PYTHONPATH": str(PACKAGE)}
    subprocess.run([sys.executable, str(script)], env=environment, check=True, timeout=30)
    report = asyncio.run(executable.report())
    assert json.loads(report["files"]["m/model-settings.json"])["implementation"] == "serving.Model"
    assert str(tmp_path) in report["environment"]["PYTHONPATH"].split(os.pathsep)


def test_missing_executable_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setenv("MLSERVER_BIN", str(tmp_path / "none"))
    with pytest.raises(MLServerError, match="`MLSERVER_BIN` names"):
        find_executable()
    monkeypatch.delenv("MLSERVER_BIN")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr("sysconfig.get_path", lambda _name: str(tmp_path))
    with pytest.raises(MLServerError, match=r"cannot find the executable.*MLSERVER_BIN"):
        asyncio.run(MLServer(Settings()).start([]))


def test_cli_main_runs_executable(executable: Executable) -> None:
    code = "import sys; sys.argv = ['x', '--version', 'a b']; from mlserver.cli import main; main()"
    environment = {**os.environ, "EXIT": "5"}
    run = subprocess.run([sys.executable, "-c", code], cwd=PACKAGE, env=environment, timeout=30, check=False)
    assert run.returncode == 5
    assert asyncio.run(executable.report())["arguments"] == ["--version", "a b"]


@needs_executable
def test_start_serves_model_of_script(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "serving.py"
    script.write_text(
        textwrap.dedent(
            """
            import asyncio, socket, sys
            from mlserver import MLModel, MLServer, ModelSettings, Settings
            from mlserver.codecs import decode_args
            from typing import List

            class Model(MLModel):
                @decode_args
                async def predict(self, names: List[str]) -> List[str]:
                    return [f"Hi, {name}" for name in names]

            async def main():
                ports = dict(zip(("http_port", "grpc_port", "metrics_port"), map(int, sys.argv[1:])))
                await MLServer(Settings(host="127.0.0.1", **ports)).start(
                    [ModelSettings(name="greeter", implementation=Model)]
                )

            if __name__ == "__main__":
                asyncio.run(main())
            """
        )
    )
    ports = [_free_port() for _ in range(3)]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE), "MLSERVER_BIN": str(BINARY)}
    process = subprocess.Popen([sys.executable, str(script), *map(str, ports)], env=environment)
    try:
        tensor = {"name": "names", "datatype": "BYTES", "shape": [1], "data": ["Ada"]}
        answer = asyncio.run(_ask(f"http://127.0.0.1:{ports[0]}/v2/models/greeter/infer", {"inputs": [tensor]}))
        assert answer["outputs"][0]["data"] == ["Hi, Ada"]
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    finally:
        process.kill()


def _free_port() -> int:
    import socket

    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


async def _ask(url: str, body: Any) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    for _ in range(300):
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                return json.load(answer)
        except OSError:
            await asyncio.sleep(0.1)
    raise AssertionError(f"{url} does not answer")
