"""Finds out, without running any code of a model, why the model could not be imported.

Run as a script by the interpreter of the model, with one argument: a JSON object with

* `implementation`: the import path of the class,
* `folder`: the folder of the model's settings, or null,
* `paths`: more folders that models import from,
* `modules`: the modules that the runtime of the class imports,
* `requirements`: the paths of `requirements.txt` files,
* `hidden_headers`: the headers of requests that models do not see, in lower case.

Writes one line: `MARK` and a JSON list of findings, each with `level` (`problem`, `warning` or `note`) and `text`.
Modules of the folders are parsed, not imported; of installed packages, only the location is looked up. What is imported
in functions, or below `if` and `try`, is not checked, because it may never run.
"""

import ast
import difflib
import importlib
import importlib.metadata
import importlib.util
import json
import os
import re
import sys
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any, Dict, Iterator, List, Optional, Sequence, Set, Tuple

MARK = "mlserver-static-checks"
#: The most modules of a model that are parsed, and the most findings.
MAX_MODULES = 200
MAX_FINDINGS = 20
#: The largest file that is parsed, in bytes.
MAX_SOURCE = 4 << 20


def is_older(version: str) -> bool:
    """Returns whether a version of `mlserver` is older than the first one of this server."""
    numbers = re.match(r"(\d+)(?:\.(\d+))?", version)
    return numbers is not None and (int(numbers[1]), int(numbers[2] or 0)) < (1, 8)


class Checks:
    """The findings about one model."""

    def __init__(self, folders: List[str], hidden_headers: Sequence[str] = ()) -> None:
        self.folders = list(dict.fromkeys(os.path.realpath(folder) for folder in folders))
        self.hidden_headers = hidden_headers
        self.findings: List[Dict[str, str]] = []
        self.parsed: Set[str] = set()

    def add(self, level: str, text: str) -> None:
        finding = {"level": level, "text": text}
        if finding not in self.findings and len(self.findings) < MAX_FINDINGS:
            self.findings.append(finding)

    def implementation(self, path: str) -> None:
        """Checks that a class can be imported, and what its module imports."""
        module, _, name = path.rpartition(".")
        if not module:
            self.add(
                "problem", f"`{path}` is not an import path: expected a module and a class, as in `models.MyModel`"
            )
            return
        spec, missing = self.find(module)
        if spec is None:
            where = (
                f"; looked in {', '.join(f'`{folder}`' for folder in self.folders)} and"
                if self.folders
                else "; looked in"
            )
            advice = "check the name" + (f", or put `{missing.replace('.', '/')}.py` there" if self.folders else "")
            self.add("problem", f"no module `{missing}`{where} the packages of `{sys.executable}`; {advice}")
            return
        tree = self.parse(spec)
        if tree is None:
            return
        names = list(_bound(tree.body))
        if name not in names and "*" not in names and "__getattr__" not in names:
            classes = [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
            near = difflib.get_close_matches(name, classes, 1)
            hint = f" (did you mean `{near[0]}`?)" if near else ""
            self.add("problem", f"module `{module}` (`{spec.origin}`) has no `{name}`{hint}")
        if self.is_local(spec):
            self.imports(tree, spec)

    def imports(self, tree: ast.Module, spec: ModuleSpec) -> None:
        """Checks the headers that a module of the model names, and the modules that it imports when it is imported itself."""
        self.headers(tree, str(spec.origin))
        for line, module in _imported(tree, spec):
            found, missing = self.find(module)
            if found is None:
                text = f"`{spec.origin}`, line {line}: no module `{missing}`; install it for `{sys.executable}`"
                self.add("problem", text)
            elif self.is_local(found):
                inner = self.parse(found)
                if inner is not None:
                    self.imports(inner, found)

    def headers(self, tree: ast.Module, origin: str) -> None:
        """Reports where a module names headers that models do not see, each once."""
        left = set(self.hidden_headers)
        for node in ast.walk(tree):
            if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
                continue
            name = node.value.strip().lower()
            if name in left:
                left.remove(name)
                self.add(
                    "note",
                    f"`{origin}`, line {node.lineno}: names the header `{name}`, which models do not see, unlike in "
                    "MLServer 1.7.1: if the model needs it, list it in the setting `forward_headers`",
                )

    def find(self, name: str) -> Tuple[Optional[ModuleSpec], str]:
        """Returns where a module is, or None and the name of the part that is missing."""
        parts = name.split(".")
        spec = _find_top_level(parts[0])
        if spec is None:
            return None, parts[0]
        for end in range(2, len(parts) + 1):
            if not self.is_local(spec):
                # An installed package may create modules when it is imported.
                return spec, name
            inner = ".".join(parts[:end])
            locations = spec.submodule_search_locations
            found = None if locations is None else PathFinder.find_spec(inner, list(locations))
            if found is None:
                return None, inner
            spec = found
        return spec, name

    def is_local(self, spec: ModuleSpec) -> bool:
        """Returns whether a module is in one of the model's folders, and not in an environment there."""
        locations = list(spec.submodule_search_locations or [])
        place = os.path.realpath(spec.origin if spec.origin and os.path.exists(spec.origin) else (locations or [""])[0])
        inside = any(place.startswith(folder + os.sep) for folder in self.folders)
        return inside and not place.startswith(os.path.realpath(sys.prefix) + os.sep) and "site-packages" not in place

    def parse(self, spec: ModuleSpec) -> Optional[ast.Module]:
        """Parses a module that has not been parsed yet."""
        origin = spec.origin
        if not origin or not origin.endswith(".py") or origin in self.parsed or len(self.parsed) >= MAX_MODULES:
            return None
        self.parsed.add(origin)
        try:
            with open(origin, "rb") as file:
                source = file.read(MAX_SOURCE + 1)
            return ast.parse(source, origin) if len(source) <= MAX_SOURCE else None
        except SyntaxError as error:
            self.add("problem", f"`{origin}`, line {error.lineno}: {error.msg}")
        except (OSError, ValueError, RecursionError, MemoryError) as error:
            self.add("problem", f"`{origin}` cannot be read: {error}")
        return None

    def modules(self, names: List[str]) -> None:
        """Checks that the framework of a runtime is installed."""
        for name in names:
            if _find_top_level(name) is None:
                self.add("problem", f"its runtime needs the module `{name}`, which `{sys.executable}` does not have")

    def requirements(self, path: str) -> None:
        """Compares the installed packages with a `requirements.txt`."""
        requirement_class = _requirement_class()
        encodings = _encodings()
        try:
            with open(path, "rb") as file:
                lines = str(encodings.without_mark(file.read(MAX_SOURCE)), "utf-8", "replace").splitlines()
        except (OSError, encodings.TextError) as error:
            self.add("warning", f"`{path}` cannot be read: {error}")
            return
        for line in lines:
            text = line.split(" #")[0].split(" --")[0].strip()
            if not text or text.startswith(("#", "-")) or requirement_class is None:
                continue
            try:
                wanted = requirement_class(text)
                if wanted.marker is not None and not wanted.marker.evaluate():
                    continue
            except Exception:
                # A path or an option, or a line that only pip reads.
                continue
            try:
                version = importlib.metadata.version(wanted.name)
            except importlib.metadata.PackageNotFoundError:
                self.add("warning", f"`{path}` requires `{text}`, which is not installed for `{sys.executable}`")
                continue
            if version and not wanted.specifier.contains(version, prereleases=True):
                self.add("warning", f"`{path}` requires `{text}`, but `{sys.executable}` has version {version}")

    def shadow(self) -> None:
        """Warns if the `mlserver` that Seldon wrote is installed."""
        try:
            found = importlib.metadata.metadata("mlserver")
        except importlib.metadata.PackageNotFoundError:
            return
        version = found["Version"] or ""
        # Seldon's own versions may reach this one.
        if is_older(version) or "seldon" in f"{found['Author']} {found['Author-email']}".lower():
            text = (
                f"`{sys.executable}` has Seldon's `mlserver` {version}, whose command may run instead of this one: "
                f"`{sys.executable} -m pip uninstall mlserver`"
            )
            self.add("warning", text)


def _find_top_level(name: str) -> Optional[ModuleSpec]:
    if name in sys.builtin_module_names:
        return ModuleSpec(name, None)
    try:
        spec = importlib.util.find_spec(name)
        if spec is None and name == "kserve":
            # The worker imports the SDK's module instead.
            origin = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "_kserve", "__init__.py")
            return ModuleSpec(name, None, origin=origin)
        return spec
    except ValueError:
        # It is imported, and does not say from where.
        return ModuleSpec(name, None)
    except (ImportError, AttributeError):
        return None


def _bound(body: List[ast.stmt]) -> Iterator[str]:
    """Yields the names that statements bind in their module."""
    for node in body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                yield alias.asname or alias.name.split(".")[0]
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                for inner in ast.walk(target):
                    if isinstance(inner, ast.Name):
                        yield inner.id
        else:
            for block in ("body", "orelse", "finalbody"):
                yield from _bound(getattr(node, block, []))
            for handler in getattr(node, "handlers", []):
                yield from _bound(handler.body)


def _imported(tree: ast.Module, spec: ModuleSpec) -> Iterator[Tuple[int, str]]:
    """Yields the modules that a module imports unconditionally, with their lines."""
    for node in tree.body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            if node.level == 0:
                if node.module:
                    yield node.lineno, node.module
                continue
            package = spec.name if spec.submodule_search_locations is not None else spec.name.rpartition(".")[0]
            for _ in range(node.level - 1):
                package = package.rpartition(".")[0]
            if package:
                yield node.lineno, f"{package}.{node.module}" if node.module else package


def _requirement_class() -> Any:
    """Returns the class of `packaging`, or of the copy in pip. None if the interpreter has neither."""
    for name in ("packaging.requirements", "pip._vendor.packaging.requirements"):
        try:
            return importlib.import_module(name).Requirement
        except ImportError:
            continue
    return None


def _encodings() -> Any:
    """Returns `mlserver._text`. This file is a script, and the model's interpreter may have another version of the package."""
    path = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "_text.py")
    spec = importlib.util.spec_from_file_location("_mlserver_text", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(question: Dict[str, Any]) -> List[Dict[str, str]]:
    """Returns the findings about one model."""
    folders = ([question["folder"]] if question["folder"] else []) + list(question["paths"])
    sys.path[:0] = folders
    checks = Checks(folders, question["hidden_headers"])
    checks.modules(question["modules"])
    checks.implementation(question["implementation"])
    for path in question["requirements"]:
        checks.requirements(path)
    checks.shadow()
    return checks.findings


def main() -> None:
    # The folder of this script, whose modules are not importable in workers.
    sys.path.pop(0)
    sys.dont_write_bytecode = True
    print(MARK, json.dumps(run(json.loads(sys.argv[1]))))


if __name__ == "__main__":
    main()
