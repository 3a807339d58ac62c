"""Runs the marked blocks of a page, one after the other, in a folder of their own.

A line before a block says what it is:

    <!-- file PATH -->    is written to that file
    <!-- run -->          is run with bash
    <!-- serve -->        its last line starts a server, which later blocks use until another one has the same port
    <!-- test -->         is run with bash while the server runs
    <!-- output -->       is what the block before it prints; `...` stands for any text. JSON is compared without `id`
    <!-- engine -->       is run with bash and needs a Docker engine, so it is skipped without MLSERVER_TEST_ENGINE
    <!-- unchecked: REASON -->  is not run

Servers use free ports, which replace those of the page: 8080, 8081 and 8082, or those of its command line.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ.get("MLSERVER_BIN", ROOT / "target/debug/mlserver")).resolve()
PATIENCE = 120
PORTS = {"http": "8080", "grpc": "8081", "metrics": "8082"}

BLOCK = re.compile(r"(?:^<!-- ([^\n]*) -->\n)?^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CHECKED = {"file", "run", "serve", "test", "output", "engine"}


class Block(NamedTuple):
    line: int
    marker: str
    argument: str
    language: str
    text: str


def blocks(page):
    """Returns all blocks of a page, marked or not."""
    text = page.read_text()
    found = []
    for match in BLOCK.finditer(text):
        marker, _, argument = (match[1] or "").partition(" ")
        found.append(Block(text.count("\n", 0, match.start(3)), marker, argument, match[2], match[3]))
    return found


class Runner:
    """Runs the blocks of a page in a folder."""

    def __init__(self, page, folder):
        self.page = page
        self.folder = folder
        self.servers = {}
        self.addresses = {}
        self.printed = None
        self.is_skipped = False
        (folder / "examples").symlink_to(ROOT / "examples")
        commands = folder.parent / f"{folder.name}-bin"
        commands.mkdir()
        if engine := os.environ.get("MLSERVER_TEST_ENGINE"):
            # The tests' engine has no network other than the host's.
            build = f'case $1 in build) exec "{BINARY}" "$@" --network host ;; esac'
            script(commands / "mlserver", f'{build}\nexec "{BINARY}" "$@"')
        else:
            (commands / "mlserver").symlink_to(BINARY)
        path = f"{commands}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        kept = {name: os.environ[name] for name in ("HOME", "LANG", "DOCKER_HOST") if name in os.environ}
        if engine:
            kept["DOCKER_HOST"] = engine
        # `mlserver doctor` checks that ports are free.
        ports = {f"MLSERVER_{name.upper()}_PORT": "0" for name in PORTS}
        self.environment = {**kept, **ports, "PATH": path, "NO_PROXY": "*", "PYTHONPATH": str(ROOT / "python")}

    def check(self):
        """Runs all blocks in order."""
        try:
            for block in blocks(self.page):
                where = f"{self.page}:{block.line}"
                if block.marker == "output" and self.is_skipped:
                    continue
                self.is_skipped = False
                if block.marker in CHECKED:
                    getattr(self, block.marker)(block, where)
        finally:
            for process in self.servers.values():
                stop(process)

    def adapted(self, text):
        for port, address in self.addresses.items():
            text = text.replace(f"localhost:{port}", address)
        return text

    def file(self, block, _where):
        path = self.folder / block.argument
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.adapted(block.text))

    def run(self, block, where):
        command = ["bash", "-euo", "pipefail", "-c", self.adapted(block.text)]
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=PATIENCE
        )
        assert done.returncode == 0, f"{where}\n{block.text}\n{done.stdout}\n{done.stderr}"
        self.printed = done.stdout

    def test(self, block, where):
        assert self.servers, f"{where}: no server"
        self.run(block, where)

    def engine(self, block, where):
        self.is_skipped = not os.environ.get("MLSERVER_TEST_ENGINE")
        if not self.is_skipped:
            self.run(block, where)

    def serve(self, block, where):
        lines = block.text.rstrip().splitlines()
        assert lines[-1].startswith("mlserver start"), where
        ports = dict(PORTS)
        for name in PORTS:
            if given := re.search(rf"--{name}-port (\d+)", lines[-1]):
                ports[name] = given[1]
        if previous := self.servers.pop(ports["http"], None):
            stop(previous)
        command = re.sub(r" --(http|grpc|metrics)-port \d+", "", lines[-1])
        addresses = self.folder.parent / f"{self.folder.name}-{ports['http']}.json"
        addresses.unlink(missing_ok=True)
        options = "--host 127.0.0.1 --http-port 0 --grpc-port 0 --metrics-port 0"
        if given := re.search(r"--port-file (\S+)", command):
            addresses = self.folder / given[1]
        else:
            options += f" --port-file '{addresses}'"
        command = command.replace("mlserver start", f"exec mlserver start {options}", 1)
        script = "\n".join([*lines[:-1], command])
        log = addresses.with_suffix(".log")
        with log.open("w") as output:
            process = subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", self.adapted(script)],
                cwd=self.folder,
                env={name: value for name, value in self.environment.items() if name != "PYTHONPATH"},
                stdout=output,
                stderr=output,
            )
        self.servers[ports["http"]] = process
        wait_for(addresses, process, log)
        for name, address in json.loads(addresses.read_text()).items():
            if name in ports:
                self.addresses[ports[name]] = address

    def output(self, block, where):
        printed, self.printed = self.printed, None
        assert printed is not None, f"{where}: nothing was printed"
        if block.language == "json":
            assert without_id(json.loads(printed)) == without_id(json.loads(block.text)), where
        else:
            pattern = ".*?".join(map(re.escape, block.text.rstrip().split("...")))
            assert re.fullmatch(pattern, printed.rstrip(), re.DOTALL), f"{where}\n{printed}"


def script(path, text):
    """Writes an executable script."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def without_id(value):
    return {key: item for key, item in value.items() if key != "id"} if isinstance(value, dict) else value


def stop(process):
    process.send_signal(signal.SIGINT)
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        raise


class TestedServer:
    """A server of a folder on free ports, for a `with` statement."""

    __test__ = False

    def __init__(self, models, folder):
        ports = folder / "ports.json"
        options = ["--host", "127.0.0.1", "--http-port", "0", "--grpc-port", "0", "--metrics-port", "0"]
        self.log = folder / "log"
        with self.log.open("w") as log:
            command = [BINARY, "start", models, *options, "--port-file", ports]
            self.process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        wait_for(ports, self.process, self.log)
        addresses = json.loads(ports.read_text())
        self.http, self.grpc, self.metrics = addresses["http"], addresses["grpc"], addresses["metrics"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        stop(self.process)


def wait_for(addresses, process, log):
    """Waits for the file of addresses, which is there when the models are loaded."""
    end = time.monotonic() + PATIENCE
    while not addresses.exists():
        assert process.poll() is None and time.monotonic() < end, log.read_text()
        time.sleep(0.02)
