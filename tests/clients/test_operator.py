"""The configuration of the chart and of the Debian unit, with models that bring settings of their own."""

import json
import re
import shlex
import socket
import ssl
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import NamedTuple

import pytest
from conftest import BINARY, PATIENCE, ROOT, model
from test_chart import render, settings
from test_security import certificates

# Settings in the folder that would give rights to everybody, if they counted.
HOSTILE = [
    {"api_keys_file": None},
    {"api_keys_file": "own.json"},
    {"jwt_issuer": "https://evil.example", "jwks_file": "own.json"},
    {"tls_certificate": None, "tls_key": None},
    {"tls_client_scopes": {"*": ["admin"]}},
    {"host": "0.0.0.0"},
    {"http_port": 0},
    {"repository_api": True},
    {"admin_port": 0},
    {"metrics_endpoint": "/metrics"},
    {"cors_settings": {"allow_origins": ["*"]}},
    {"kafka_enabled": True},
]


class Deployment(NamedTuple):
    """A command with its environment, and the folder of the models."""

    command: list[str]
    environment: dict[str, str]
    models: Path


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def installed(etc: Path, own: dict[str, object]) -> None:
    """Writes the files that the operator's settings need."""
    subprocess.run([BINARY, "keys", "create", "--name", "ci", "--scope", "admin", "--file", "keys.json"], cwd=etc, check=True, capture_output=True)
    certificates(etc)
    ports = dict(zip(["http_port", "grpc_port", "metrics_port"], free_ports(3), strict=True))
    (etc / "settings.json").write_text(json.dumps({**own, **ports}))


def chart(etc: Path, models: Path) -> Deployment:
    objects = render("secured")
    own = settings(objects)
    own |= {"tls_certificate": str(etc / "server.pem"), "tls_key": str(etc / "server.key"), "api_keys_file": str(etc / "keys.json")}
    installed(etc, own)
    (container,) = objects["Deployment"]["spec"]["template"]["spec"]["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    environment = {each["name"]: each["value"].replace(mounts["settings"], str(etc)) for each in container["env"]}
    return Deployment([str(BINARY), "start", str(models)], environment, models)


def unit(etc: Path, models: Path) -> Deployment:
    folder = ROOT / "packaging/deploy/debian"
    own = json.loads((folder / "settings.json").read_text())
    installed(etc, own | {"api_keys_file": str(etc / "keys.json")})
    text = (folder / "mlserver.service").read_text().replace("/etc/mlserver", str(etc)).replace("/var/lib/mlserver", str(models))
    environment = dict(line.split("=", 1) for line in re.findall(r"^Environment=(.+)$", text, re.M))
    (command,) = re.findall(r"^ExecStart=(.+)$", text, re.M)
    program, *arguments = shlex.split(command)
    assert program == "/usr/bin/mlserver"
    return Deployment([str(BINARY), *arguments], environment, models)


@pytest.fixture(params=[chart, unit])
def deployment(request, tmp_path) -> Deployment:
    etc, models = tmp_path / "etc", tmp_path / "models"
    etc.mkdir()
    models.mkdir()
    found = request.param(etc, model(models, "echo"))
    environment = found.environment | {"XDG_CACHE_HOME": str(tmp_path), "HOME": str(tmp_path)}
    if request.param is chart:
        # The pod's own address; tests listen on loopback only.
        environment["MLSERVER_HOST"] = "127.0.0.1"
    return found._replace(environment=environment)


def status(address: str, path: str, method: str) -> int:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    request = urllib.request.Request(address + path, b"{}" if method == "POST" else None, method=method)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE, context=context) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code


def test_harmless_settings_beside_the_models_leave_access_control_on(deployment):
    (deployment.models / "settings.json").write_text(json.dumps({"debug": True, "server_name": "of-the-models"}))
    with subprocess.Popen(
        deployment.command, cwd=deployment.models, env=deployment.environment, stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            log = ""
            address = None
            while address is None:
                line = process.stdout.readline()
                assert line, f"the server ended:\n{log}"
                log += line
                address = re.search(r"HTTP server running on (https?://\S+)", line)
            assert status(address[1], "/v2/health/live", "GET") == 200
            for path in ["/v2/models/echo/infer", "/v2/repository/models/echo/unload"]:
                assert status(address[1], path, "POST") == 401
        finally:
            process.terminate()


@pytest.mark.parametrize("hostile", HOSTILE, ids=str)
def test_hostile_settings_beside_the_models_stop_the_start(deployment, hostile):
    own = deployment.models / "settings.json"
    own.write_text(json.dumps(hostile))
    (deployment.models / "own.json").write_text("{}")
    ran = subprocess.run(deployment.command, cwd=deployment.models, env=deployment.environment, capture_output=True, text=True, timeout=PATIENCE)
    assert ran.returncode != 0
    for key in hostile:
        assert f"`{key}` in `{own}` is not allowed" in ran.stderr
    # The other commands say the same.
    for command in [["config", "show", str(deployment.models)], ["doctor", str(deployment.models)]]:
        ran = subprocess.run([BINARY, *command], cwd=deployment.models, env=deployment.environment, capture_output=True, text=True, timeout=PATIENCE)
        assert ran.returncode != 0
        assert f"`{next(iter(hostile))}` in `{own}` is not allowed" in ran.stdout + ran.stderr


def test_dotenv_beside_the_models_stops_the_start(deployment):
    (deployment.models / ".env").write_text("MLSERVER_REPOSITORY_API=true\n")
    ran = subprocess.run(deployment.command, cwd=deployment.models, env=deployment.environment, capture_output=True, text=True, timeout=PATIENCE)
    assert ran.returncode != 0
    assert "`repository_api` from variable `MLSERVER_REPOSITORY_API`" in ran.stderr
    assert str(deployment.models / ".env") in ran.stderr


def test_config_show_names_the_layer_that_won(deployment):
    (deployment.models / "settings.json").write_text(json.dumps({"max_streams": 7}))
    ran = subprocess.run(
        [BINARY, "config", "show", "--format", "json", str(deployment.models)],
        cwd=deployment.models,
        env=deployment.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    shown = json.loads(ran.stdout)["server"]["settings"]
    assert shown["api_keys_file"]["source"]["kind"] == "operator"
    assert shown["max_streams"]["source"] == {"kind": "file", "path": str(deployment.models / "settings.json")}
    ran = subprocess.run([BINARY, "doctor", deployment.models], cwd=deployment.models, env=deployment.environment, capture_output=True, text=True)
    assert "the settings file of the operator, sets" in ran.stdout
    assert "`api_keys_file`" in ran.stdout
