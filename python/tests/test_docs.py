"""The blocks of `docs/python.md`, run as they are written.

Blocks of Python run one after the other, in one module. A line `<!-- file: NAME -->` before a block writes it to a file. Blocks
of shell commands follow one of these lines: `<!-- run -->` (run in the folder of the files), `<!-- serve -->` (starts the
server) and `<!-- test -->` (run against the server, whose address replaces `localhost:8080`; a block after `<!-- output -->` is
the expected response). The last two need the executable, whose path is in MLSERVER_BIN.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import types
from typing import Any, List, NamedTuple

import pytest
from executable import needs_executable, serving
from worker import ROOT

PAGE = ROOT / "docs" / "python.md"
PACKAGE = ROOT / "python"

#: `python` in commands, for `PATH`.
INTERPRETERS = str(pathlib.Path(sys.executable).parent)


class Block(NamedTuple):
    line: int
    marker: str
    language: str
    text: str


def blocks() -> List[Block]:
    text = PAGE.read_text(encoding="utf-8")
    pattern = re.compile(r"(?:^<!-- ([^\n]*) -->\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    return [
        Block(text.count("\n", 0, found.start(3)), found[1] or "", found[2], found[3])
        for found in pattern.finditer(text)
    ]


def files(folder: pathlib.Path) -> pathlib.Path:
    """Writes the files of the page to a folder, and returns it."""
    for block in blocks():
        if block.marker.startswith("file: "):
            (folder / block.marker[len("file: ") :]).write_text(block.text, encoding="utf-8")
    return folder


def test_blocks_of_shell_commands_are_marked() -> None:
    marked = [block.marker for block in blocks() if block.language == "sh"]
    assert marked == ["serve", "test", "run"]


@pytest.mark.needs("numpy", "pandas", "pydantic")
def test_python_blocks_run_in_order(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(files(tmp_path)))
    page = types.ModuleType("python_page")
    monkeypatch.setitem(sys.modules, page.__name__, page)
    try:
        for block in blocks():
            if block.language == "python":
                # Blank lines keep the numbers of lines in tracebacks.
                code = compile("\n" * block.line + block.text, str(PAGE), "exec")
                exec(code, page.__dict__)
        (tmp_path / "table.txt").write_text("a 1\nb 2\n")
        with page.serve(page.Lookup, folder=tmp_path) as model:
            response = model.infer([page.StringCodec.encode_input("key", ["b"])])
            assert response.outputs[0].data.root == ["2"]
        assert model.ready
    finally:
        sys.modules.pop("models", None)


def test_run_blocks_succeed(tmp_path: pathlib.Path) -> None:
    for block in blocks():
        if block.marker == "run":
            ran = shell(block.text, files(tmp_path))
            assert ran.returncode == 0, ran.stderr
            assert "\nOK" in ran.stderr, ran.stderr


def shell(commands: str, folder: pathlib.Path) -> "subprocess.CompletedProcess[str]":
    environment = {
        **os.environ,
        "PYTHONPATH": str(PACKAGE),
        "PATH": f"{INTERPRETERS}:{os.environ['PATH']}",
        "NO_PROXY": "*",
    }
    command = ["bash", "-euo", "pipefail", "-c", commands]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


@needs_executable
def test_commands_print_the_documented_output(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "shout"
    folder.mkdir()
    [command] = [block.text for block in blocks() if block.marker == "serve"]
    name, *arguments = command.split()
    assert name == "mlserver"
    printed: Any = None
    compared = 0
    with serving(files(folder), arguments) as server:
        for block in blocks():
            if block.marker == "test":
                ran = shell(block.text.replace("localhost:8080", server), tmp_path)
                assert ran.returncode == 0, ran.stderr
                printed = json.loads(ran.stdout)
            elif block.marker == "output":
                assert {**printed, "id": ""} == {**json.loads(block.text), "id": ""}
                compared += 1
    assert compared == 1
