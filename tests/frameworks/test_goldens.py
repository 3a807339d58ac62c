"""The runtimes of frameworks answer as those of MLServer 1.7.1, except for the intended differences in their cases."""

import importlib
import json
import shutil
import sys
from contextlib import nullcontext

import pytest
from cases import ask, differences
from support import FRAMEWORKS, GOLDENS, WITH_GOLDENS, golden_models, need, serve

#: The metadata of native models.
NATIVE = ["flowers: metadata"]


@pytest.fixture(scope="module", params=[name for name in FRAMEWORKS if name in WITH_GOLDENS])
def runtime(request, tmp_path_factory):
    """Yields the cases of a runtime, and the server that has its models."""
    need(request.param)
    folder = tmp_path_factory.mktemp(request.param) / "models"
    shutil.copytree(golden_models(request.param), folder)
    # Models and cases that the installed version of the framework does not support.
    module = importlib.import_module(f"{request.param}_cases")
    absent = set(getattr(module, "absent", list)())
    for name in absent:
        (folder / name / "model-settings.json").unlink(missing_ok=True)
    cases = json.loads((GOLDENS / request.param / "cases.json").read_text())
    with getattr(module, "serving", nullcontext)(folder):
        server = serve(folder, sys.executable)
        try:
            tolerance = getattr(module, "TOLERANCE", 1e-6)
            asked = [case for case in cases if not {case["name"], _model(case)} & absent]
            yield asked, server.wait_until_ready(), tolerance
        finally:
            server.stop()


def test_golden_answers_match_the_original(runtime):
    cases, server, tolerance = runtime
    told = []
    answers = {case["name"]: case["answer"] for case in cases}
    for case in cases:
        answer = ask(server.url, case)
        answer.pop("headers", None)
        if case["path"].endswith(_model(case)):
            # The backend, and the reason for it, are our additions.
            parameters = answer["body"]["parameters"]
            assert parameters.pop("backend") == ("native" if case["name"] in NATIVE else "python")
            parameters.pop("backend_reason", None)
        expected = case.get("ours", answers[case.get("same_as", case["name"])])
        if "body" not in expected:
            assert "body" in answer, case["name"]
            del answer["body"]
        found = differences(expected, answer, tolerance=tolerance)
        told += [f"{case['name']}: {difference}" for difference in found]
    assert not told, "\n".join(told)


def _model(case):
    return case["name"].split(":")[0]
