"""Which modules of the SDK import each other in a circle: no others than those listed here."""

import ast
import pathlib
from typing import Dict, Iterator, List, Set

ROOT = pathlib.Path(__file__).resolve().parents[1]

#: The circles that there are, with the reason of each. Break them, if possible, instead of adding to them.
CIRCLES = {
    # `_pydantic` builds pydantic's models from the fields of classes of the SDK, whose base class asks it to do so.
    frozenset({"_model", "_pydantic"}),
    # Payloads decode themselves (`RequestInput.decode`) with codecs, which encode payloads.
    frozenset(
        {"_payload", "codecs.base", "codecs.errors", "codecs.utils", "settings", "types", "types.dataplane"},
    ),
}


def _imports(tree: ast.AST, package: List[str], modules: Set[str]) -> Iterator[str]:
    """Yields the modules of the SDK that a module imports, in functions, too, but not only for the types."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "'TYPE_CHECKING'" in ast.dump(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                name = f"{source}.{alias.name}"
                yield name if name in modules else source
        yield from _imports(node, package, modules)


def _graph(folder: pathlib.Path) -> Dict[str, Set[str]]:
    """Returns the modules of a package, and those that each names in imports: packages around a module do not count."""
    files: Dict[str, pathlib.Path] = {}
    for file in folder.rglob("*.py"):
        parts = file.relative_to(folder.parent).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    graph = {}
    for name, file in files.items():
        package = name.split(".") if file.name == "__init__.py" else name.split(".")[:-1]
        graph[name] = {each for each in _imports(ast.parse(file.read_text()), package, set(files)) if each in files} - {name}
    return graph


def _circles(graph: Dict[str, Set[str]]) -> Set["frozenset[str]"]:
    """Returns the sets of modules that reach each other."""

    def reached(start: str) -> Set[str]:
        found: Set[str] = set()
        waiting = [start]
        while waiting:
            new = graph[waiting.pop()] - found
            found |= new
            waiting += new
        return found

    reach = {name: reached(name) for name in graph}
    return {frozenset(each for each in reach[name] if name in reach[each]) for name in graph if name in reach[name]}


def test_circles_of_imports_are_listed():
    found = {frozenset(name.partition(".")[2] for name in circle) for circle in _circles(_graph(ROOT / "mlserver"))}
    new = found - CIRCLES
    assert not new, f"modules that import each other: {[sorted(circle) for circle in new]}"
    assert found == CIRCLES, f"remove from `CIRCLES`: {[sorted(circle) for circle in CIRCLES - found]}"


def test_search_finds_circles(tmp_path):
    package = tmp_path / "p"
    (package / "q").mkdir(parents=True)
    for name, text in {
        "__init__": "from . import a",
        "a": "def f():\n    from .q import c",
        "b": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from . import d",
        "d": "import p.b",
        "q/__init__": "",
        "q/c": "from ..a import f",
    }.items():
        (package / f"{name}.py").write_text(text)
    assert _circles(_graph(package)) == {frozenset({"p.a", "p.q.c"})}
