"""The runtimes of frameworks answer as those of MLServer 1.7.1 do; where not, as their cases say on purpose."""

import json
import shutil
import sys

import pytest
from cases import ask, differences
from support import FRAMEWORKS, GOLDENS, need, serve


@pytest.fixture(scope="module", params=FRAMEWORKS)
def runtime(request, tmp_path_factory):
    """Yields the cases of a runtime, and the server that has its models."""
    need(request.param)
    folder = tmp_path_factory.mktemp(request.param) / "models"
    shutil.copytree(GOLDENS / request.param, folder)
    server = serve(folder, sys.executable)
    try:
        yield json.loads((folder / "cases.json").read_text()), server.wait_until_ready()
    finally:
        server.stop()


def test_answers_are_those_of_the_original(runtime):
    cases, server = runtime
    told = []
    for case in cases:
        answer = ask(server.url, case)
        answer.pop("headers", None)
        if case["path"].endswith(case["name"].split(":")[0]):
            # Which backend answers is an addition of ours.
            assert answer["body"]["parameters"].pop("backend") == "python"
        expected = case.get("ours", case["answer"])
        if "body" not in expected:
            assert "body" in answer, case["name"]
            del answer["body"]
        told += [f"{case['name']}: {difference}" for difference in differences(expected, answer)]
    assert not told, "\n".join(told)
