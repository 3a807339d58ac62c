"""The scripts of the console use no name that nothing declares. No browser is needed."""

import pytest
from conftest import ROOT
from javascript import read_module

PAGE = ROOT / "src/server/rest/console/page"
#: The names of the language and of browsers that the scripts use.
GLOBALS = set(
    """
    AbortSignal Array Blob Boolean Date Error Infinity Intl JSON Map Math Number Object Set String URL URLSearchParams
    addEventListener clearTimeout confirm decodeURIComponent document encodeURIComponent fetch location performance setTimeout
    """.split()
)


@pytest.fixture(scope="module")
def modules():
    """The scripts by their names."""
    found = {path.name: read_module(path.read_bytes()) for path in sorted(PAGE.glob("*.js"))}
    assert len(found) > 5
    return found


def test_scripts_use_no_undefined_name(modules):
    problems = [
        f"{file}:{line}: nothing declares `{name}`"
        for file, module in modules.items()
        for name, line in module.undefined.items()
        if name not in GLOBALS
    ]
    assert not problems, "\n".join(problems)


def test_globals_are_used(modules):
    # A name that is in the list for no reason would hide a misspelled one.
    assert set().union(*(module.undefined for module in modules.values())) >= GLOBALS


def test_scripts_import_what_others_export(modules):
    problems = [
        f"{file}: `{source}` does not export `{name}`"
        for file, module in modules.items()
        for source, names in module.imports.items()
        for name in sorted(names)
        if name not in modules[source.removeprefix("./")].exports
    ]
    assert not problems, "\n".join(problems)
    assert sum(len(module.imports) for module in modules.values()) > 10


@pytest.mark.parametrize(("file", "name"), [("answer.js", "LONGEST_CELL"), ("format.js", "digits"), ("main.js", "REFRESH")])
def test_misspelled_names_are_found(file, name):
    text = (PAGE / file).read_text()
    before = read_module(text.encode()).undefined
    # The last use, which is no declaration.
    place = text.rindex(name)
    misspelled = text[:place] + name + "s" + text[place + len(name) :]
    assert set(read_module(misspelled.encode()).undefined) - set(before) == {name + "s"}


@pytest.mark.parametrize(
    ("text", "undefined"),
    [
        ("const a = 1; b(a);", {"b"}),
        ("use(a); function use(x) { return x + y; } let a;", {"y"}),
        ("for (const [key, { value: v = d, ...rest }] of list) print(key, v, rest);", {"d", "list", "print"}),
        ("{ const inner = 1; } inner;", {"inner"}),
        ("const f = ({ a, b: c = a }, ...d) => [a, c, d, b];", {"b"}),
        ("const f = x => x; try { f(1); } catch (error) { f(error); } error;", {"error"}),
        ("const o = { p, q: r, s() { return this.t; } }; o.u;", {"p", "r"}),
        ("import d, { a as b } from './m.js'; import * as all from './n.js'; d(b, all, a);", {"a"}),
        ("class A { #n = start; m(x) { return new A(x, this.#n); } }", {"start"}),
        ("switch (v) { case 1: { break; } default: const w = 1; w; }", {"v"}),
        ("for (let i = 0; i < n; i += 1) { var k = i; } i;", {"n", "i"}),
        ("label: while (true) break label;", set()),
        ("const t = `${missing}`;", {"missing"}),
        ("const g = function again(n) { return n ? again(n - 1) : n; }; again;", {"again"}),
    ],
)
def test_scopes_are_those_of_the_language(text, undefined):
    assert set(read_module(text.encode()).undefined) == undefined


def test_exports_and_invalid_syntax():
    text = "export function f() {} export const { a, b: [c] } = x; const z = 1; export { z as y }; export default z;"
    module = read_module(text.encode())
    assert module.exports == {"f", "a", "c", "y", "default"}
    with pytest.raises(ValueError, match="the syntax is invalid"):
        read_module(b"const = 1;")
