"""What URIs select, beside KServe's own package, for random layouts of keys.

`STORAGE_LAYOUTS` is their number, `STORAGE_SEED` where the random numbers start, and `KSERVE_PYTHON` an interpreter with
KServe's package.
"""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PATIENCE, content, environment, pull

LAYOUTS = int(os.environ.get("STORAGE_LAYOUTS", "30"))
SEED = int(os.environ.get("STORAGE_SEED", "41"))
NAMES = ["a", "b.txt", "model.json", "v1.0", "a b", "ü+%", "__init__.py", "x.tar", "1", "empty", "deep"]


def random_layout(rng):
    """Returns keys with their sizes below a root, and the path that is asked for."""
    objects = {}
    for _ in range(rng.randrange(1, 8)):
        parts = [rng.choice(NAMES) for _ in range(rng.randrange(1, 4))]
        key = "/".join(["m", *parts])
        objects[key] = 0 if rng.random() < 0.15 else rng.randrange(1, 50)
    if rng.random() < 0.2:
        objects["m/folder/"] = 0
    if rng.random() < 0.3:
        objects["m-old/model.json"] = 5
    if rng.random() < 0.1:
        objects["m"] = 7
    keys = list(objects)
    asked = rng.choice(["m", "m", "m/", "/".join(rng.choice(keys).rstrip("/").split("/")[: rng.randrange(1, 4)])])
    return objects, asked


def specified(objects, asked):
    """The rules of docs/storage.md, written once more: the paths of the selected objects, or None for a refusal."""
    key = asked.rstrip("/")
    if objects.get(key):
        return {key.rsplit("/", 1)[-1]: objects[key]}
    below = {name[len(key) + 1 :]: size for name, size in objects.items() if name.startswith(key + "/")}
    extension = lambda path: "." in path.rsplit("/", 1)[-1].lstrip(".")  # noqa: E731
    files = {path: size for path, size in below.items() if path and not path.endswith("/") and (size or extension(path))}
    folders = {path for path in files if any(other.startswith(path + "/") for other in files)}
    if any(files[path] for path in folders):
        return None
    return {path: size for path, size in files.items() if path not in folders} or None


def differs_as_documented(objects, asked):
    """KServe selects by the beginning of the text, and leaves out empty objects and those called as folders."""
    key = asked.rstrip("/")
    beside = any(name.startswith(key) and name != key and not name.startswith(key + "/") for name in objects)
    below = [name for name in objects if name == key or name.startswith(key + "/")]
    empty = any(objects[name] == 0 and not name.endswith("/") for name in below)
    both = any(other.startswith(name.rstrip("/") + "/") and other != name for name in below for other in below)
    archive = len(below) == 1 and below[0].endswith(".tar")
    return beside or empty or both or archive


class KServe:
    def __init__(self, python, variables):
        command = [python, Path(__file__).parent / "kserve_pull.py"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
        self.process = subprocess.Popen(command, env=environment(**variables), **pipes)

    def fetch(self, uri, folder):
        folder.mkdir()
        self.process.stdin.write(f"{uri}\t{folder}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        assert answer, "it ended"
        return {path: len(data) for path, data in content(folder).items()} if answer == "ok" else None

    def stop(self):
        self.process.stdin.close()
        assert self.process.wait(60) == 0


@pytest.fixture(scope="module")
def kserve(s3):
    python = os.environ.get("KSERVE_PYTHON", sys.executable)
    found = subprocess.run([python, "-c", "import kserve_storage"], capture_output=True, timeout=PATIENCE)
    if found.returncode:
        assert not os.environ.get("CI"), "CI needs KServe's package: set KSERVE_PYTHON"
        pytest.skip("SKIPPED: KServe's package is missing (`pip install kserve-storage`, and set KSERVE_PYTHON)")
    kserve = KServe(python, s3.variables())
    yield kserve
    kserve.stop()


@pytest.mark.parametrize("number", range(LAYOUTS))
def test_layouts_select_what_kserve_selects(s3, kserve, tmp_path, number):
    objects, asked = random_layout(random.Random(f"{SEED}/{number}"))
    root = f"layout-{SEED}-{number}"
    for key, size in objects.items():
        s3.put(f"{root}/{key}", bytes(size))
    expected = specified(objects, asked)
    uri = s3.uri(f"{root}/{asked}")
    is_archive = expected is not None and len(expected) == 1 and next(iter(expected)).endswith(".tar")
    if is_archive:
        # Its bytes are not an archive.
        assert "cannot unpack" in pull(uri, tmp_path / "ours", code=1, **s3.variables())
    elif expected is None:
        pull(uri, tmp_path / "ours", code=1, **s3.variables())
    else:
        pull(uri, tmp_path / "ours", **s3.variables())
        assert {path: len(data) for path, data in content(tmp_path / "ours").items()} == expected
    theirs = kserve.fetch(uri, tmp_path / "theirs")
    if not is_archive and not differs_as_documented(objects, asked):
        assert theirs == expected, (objects, asked)


def test_layouts_are_mostly_selected_alike():
    """The test above must not excuse everything."""
    layouts = [random_layout(random.Random(f"{SEED}/{number}")) for number in range(LAYOUTS)]
    alike = [layout for layout in layouts if not differs_as_documented(*layout)]
    assert 3 * len(alike) > len(layouts), f"{len(alike)} of {len(layouts)}"
