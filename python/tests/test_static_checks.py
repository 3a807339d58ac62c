"""What `mlserver doctor` finds in the code of a model, without running it."""

import json
import pathlib
import subprocess
import sys
from typing import Any, Dict, List

import pytest
from mlserver._worker import static_checks

OWN = "class Own:\n    pass\n"


def run(folder: pathlib.Path, implementation: str = "models.Own", **question: Any) -> List[Dict[str, str]]:
    """Runs the checks as a script, as the server does."""
    question = {"folder": str(folder), "paths": [], "modules": [], "requirements": [], "hidden_headers": [], **question}
    script = [sys.executable, static_checks.__file__, json.dumps({"implementation": implementation, **question})]
    output = subprocess.run(script, capture_output=True, text=True, timeout=60)
    assert output.returncode == 0, output.stderr
    mark, answer = output.stdout.split(" ", 1)
    assert mark == static_checks.MARK
    return json.loads(answer)


def write(folder: pathlib.Path, **files: str) -> None:
    for name, content in files.items():
        path = folder / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def problems(findings: List[Dict[str, str]]) -> List[str]:
    return [finding["text"] for finding in findings if finding["level"] == "problem"]


@pytest.mark.parametrize(
    "source",
    [
        OWN,
        "Own = object\n",
        "Own: type = object\n",
        "from collections import OrderedDict as Own\n",
        "from other import *\n",
        "try:\n    import nothing\nexcept ImportError:\n    nothing = None\n" + OWN,
        "if True:\n    class Own: pass\nelse:\n    Own = None\n",
        "with open('x') as f:\n    class Own: pass\n",
        "def __getattr__(name): return object\n",
        OWN + "    def lazy(self):\n        import nothing\n",
        "import json, os.path, sys\nimport xml.etree.ElementTree\nfrom importlib import metadata\n" + OWN,
        "raise SystemExit('is not run')\n" + OWN,
        "import models\n" + OWN,
    ],
)
def test_modules_that_can_be_imported_have_no_findings(tmp_path: pathlib.Path, source: str) -> None:
    write(tmp_path, models=source, other=OWN)
    assert problems(run(tmp_path)) == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("class Onw:\n    pass\n", "has no `Own` (did you mean `Onw`?)"),
        ("", "has no `Own`"),
        ("import nothing\n" + OWN, "models.py`, line 1: no module `nothing`; install it for"),
        (OWN + "from nothing.inner import x\n", "line 3: no module `nothing`"),
        ("import other.inner\n" + OWN, "line 1: no module `other.inner`"),
        ("class Own(:\n", "models.py`, line 1:"),
        ("\0", "models.py`"),
    ],
)
def test_modules_that_cannot_be_imported_are_problems(tmp_path: pathlib.Path, source: str, expected: str) -> None:
    write(tmp_path, models=source, other=OWN)
    found = problems(run(tmp_path))
    assert len(found) == 1, found
    assert expected in found[0]


def test_relative_imports_are_followed(tmp_path: pathlib.Path) -> None:
    write(tmp_path, pack____init____="", pack__inner="from .part import x\nfrom . import part\n" + OWN)
    (tmp_path / "pack").mkdir(exist_ok=True)
    (tmp_path / "pack" / "__init__.py").write_text("")
    found = problems(run(tmp_path, "pack.inner.Own"))
    assert len(found) == 1, found
    assert "no module `pack.part`" in found[0]
    (tmp_path / "pack" / "part.py").write_text("import nothing\n")
    found = problems(run(tmp_path, "pack.inner.Own"))
    assert len(found) == 1, found
    assert "part.py`, line 1: no module `nothing`" in found[0]


def test_missing_modules_name_the_folders(tmp_path: pathlib.Path) -> None:
    found = problems(run(tmp_path, "modles.Own", paths=[str(tmp_path / "more")]))
    assert len(found) == 1, found
    assert f"no module `modles`; looked in `{tmp_path}`, `{tmp_path}/more` and" in found[0]
    assert "is not an import path" in problems(run(tmp_path, "Own"))[0]


def test_missing_modules_name_each_folder_once(tmp_path: pathlib.Path) -> None:
    found = problems(run(tmp_path, "modles.Own", paths=[str(tmp_path), str(tmp_path / "more"), str(tmp_path)]))
    assert f"no module `modles`; looked in `{tmp_path}`, `{tmp_path}/more` and" in found[0]


def test_frameworks_are_looked_up(tmp_path: pathlib.Path) -> None:
    write(tmp_path, models=OWN)
    found = problems(run(tmp_path, modules=["json", "no_such_framework"]))
    assert len(found) == 1, found
    assert "needs the module `no_such_framework`" in found[0]


def test_requirements_are_compared_with_what_is_installed(tmp_path: pathlib.Path) -> None:
    write(tmp_path, models=OWN)
    requirements = tmp_path / "requirements.txt"
    requirements.write_text(
        "pytest>=1 # comment\npytest<1\nno-such-package\n-r other.txt\n./local\nodd; python_version<'3'\n"
    )
    findings = run(tmp_path, requirements=[str(requirements), str(tmp_path / "none.txt")])
    texts = [finding["text"] for finding in findings]
    assert {finding["level"] for finding in findings} == {"warning"}
    assert "requires `pytest<1`, but" in texts[0]
    assert "requires `no-such-package`, which is not installed" in texts[1]
    assert "none.txt` cannot be read" in texts[2]
    assert len(texts) == 3


@pytest.mark.parametrize(
    ("version", "author", "count"), [("1.7.1", "", 1), ("1.8.0", "", 0), ("1.8.0", "Seldon Technologies Ltd.", 1)]
)
def test_the_original_package_is_reported(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, version: str, author: str, count: int
) -> None:
    write(tmp_path, models=OWN)
    installed = tmp_path / "installed" / f"mlserver-{version}.dist-info"
    installed.mkdir(parents=True)
    metadata = f"Metadata-Version: 2.1\nName: mlserver\nVersion: {version}\n"
    (installed / "METADATA").write_text(metadata + (f"Author: {author}\n" if author else ""))
    monkeypatch.setenv("PYTHONPATH", str(installed.parent))
    findings = run(tmp_path)
    assert len(findings) == count
    if count:
        assert findings[0]["level"] == "warning"
        assert f"has Seldon's `mlserver` {version}" in findings[0]["text"]


def test_hidden_headers_are_found_in_the_code_of_the_model(tmp_path: pathlib.Path) -> None:
    """Not in comments, and not in longer texts such as docstrings."""
    source = '"""authorization of users"""\nimport other  # cookie\n' + OWN + "\nNAMES = ['Cookie', 'cookie', 'x-user']\n"
    write(tmp_path, models=source, other="def lazy(h):\n    return h['authorization']\n")
    assert run(tmp_path) == []
    findings = run(tmp_path, hidden_headers=["authorization", "cookie"])
    assert [finding["level"] for finding in findings] == ["note", "note"]
    assert "models.py`, line 6: names the header `cookie`, which models do not see" in findings[0]["text"]
    assert "other.py`, line 2: names the header `authorization`" in findings[1]["text"]


def test_findings_are_limited(tmp_path: pathlib.Path) -> None:
    write(tmp_path, models="".join(f"import nothing{index}\n" for index in range(100)) + OWN)
    assert len(run(tmp_path)) == static_checks.MAX_FINDINGS


def test_cycles_end(tmp_path: pathlib.Path) -> None:
    write(tmp_path, models="import a\n" + OWN, a="import b\n", b="import a\nimport models\n")
    assert run(tmp_path) == []
