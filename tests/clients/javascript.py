"""Finds names in modules of JavaScript that nothing declares, which a browser reports only when it comes to them."""

from dataclasses import dataclass, field

import tree_sitter_javascript
from tree_sitter import Language, Parser

LANGUAGE = Language(tree_sitter_javascript.language())

FUNCTIONS = {
    "arrow_function",
    "function_declaration",
    "function_expression",
    "generator_function",
    "generator_function_declaration",
    "method_definition",
}
SCOPES = FUNCTIONS | {"catch_clause", "class", "for_in_statement", "for_statement", "statement_block", "switch_body"}
#: Those whose names belong to the scope around them.
DECLARATIONS = {"class_declaration", "function_declaration", "generator_function_declaration"}
REFERENCES = {"identifier", "shorthand_property_identifier"}


@dataclass
class Module:
    """What a module imports, exports and uses."""

    #: The names that it uses and does not declare, with their lines.
    undefined: dict = field(default_factory=dict)
    #: The names that it imports, by the file that they are imported from.
    imports: dict = field(default_factory=dict)
    exports: set = field(default_factory=set)


def read_module(source):
    """Returns what a module consists of. Raises `ValueError` for text that is not JavaScript."""
    tree = Parser(LANGUAGE).parse(source)
    if tree.root_node.has_error:
        raise ValueError("the syntax is invalid")
    module = Module()
    _visit(tree.root_node, [set()], set(), module)
    return module


def _text(node):
    return node.text.decode()


def _visit(node, scopes, declared, module):
    """Visits a node. `scopes` are the names of the scopes around it, and `declared` the nodes that declare a name."""
    if node.type in REFERENCES:
        name = _text(node)
        if node.id not in declared and not any(name in scope for scope in scopes):
            module.undefined.setdefault(name, node.start_point[0] + 1)
        return
    if node.type == "import_statement":
        _import(node, module)
        return
    if node.type == "export_statement":
        _export(node, module)
    if node.type == "program" or node.type in SCOPES:
        found = set()
        for name in _declarations(node):
            found.add(_text(name))
            declared.add(name.id)
        scopes = [*scopes, found]
    if node.type == "class_declaration":
        declared.add(node.child_by_field_name("name").id)
    for child in node.named_children:
        _visit(child, scopes, declared, module)


def _declarations(scope):
    """Yields the nodes that declare the names of a scope, also those after their use."""
    if scope.type in FUNCTIONS:
        if scope.type == "function_expression" and scope.child_by_field_name("name"):
            yield scope.child_by_field_name("name")
        for parameter in [*scope.children_by_field_name("parameter"), *scope.children_by_field_name("parameters")]:
            yield from _names(parameter)
        return
    if scope.type == "class":
        yield from scope.children_by_field_name("name")
        return
    if scope.type == "catch_clause":
        for parameter in scope.children_by_field_name("parameter"):
            yield from _names(parameter)
        return
    if scope.type == "for_in_statement":
        if scope.child_by_field_name("kind"):
            yield from _names(scope.child_by_field_name("left"))
        return
    yield from _declared_in(scope)


def _declared_in(node):
    for child in node.named_children:
        if child.type in DECLARATIONS:
            yield child.child_by_field_name("name")
        elif child.type in ("lexical_declaration", "variable_declaration"):
            for declarator in child.named_children:
                if declarator.type == "variable_declarator":
                    yield from _names(declarator.child_by_field_name("name"))
        elif child.type == "import_statement":
            for local, _ in _imported(child):
                yield local
        elif child.type not in SCOPES and child.type != "class_body":
            # Statements without a scope, such as `export`, labels, and cases of `switch`.
            yield from _declared_in(child)


def _names(pattern):
    """Yields the nodes of a pattern that declare a name. Its defaults are expressions."""
    if pattern.type in ("identifier", "shorthand_property_identifier_pattern"):
        yield pattern
    elif pattern.type in ("assignment_pattern", "object_assignment_pattern"):
        yield from _names(pattern.child_by_field_name("left"))
    elif pattern.type == "pair_pattern":
        yield from _names(pattern.child_by_field_name("value"))
    else:
        for child in pattern.named_children:
            if child.type != "comment":
                yield from _names(child)


def _imported(statement):
    """Yields the node of each local name, and the name in the other module, `None` for all of it."""
    for clause in (child for child in statement.named_children if child.type == "import_clause"):
        for child in clause.named_children:
            if child.type == "identifier":
                yield child, "default"
            elif child.type == "namespace_import":
                yield child.named_children[0], None
            else:
                for specifier in child.named_children:
                    name = specifier.child_by_field_name("name")
                    yield specifier.child_by_field_name("alias") or name, _text(name)


def _import(statement, module):
    source = _text(statement.child_by_field_name("source")).strip("\"'")
    names = {name for _, name in _imported(statement) if name is not None}
    module.imports.setdefault(source, set()).update(names)


def _export(statement, module):
    if any(child.type == "default" for child in statement.children):
        module.exports.add("default")
        return
    for child in statement.named_children:
        if child.type == "export_clause":
            for specifier in child.named_children:
                exported = specifier.child_by_field_name("alias") or specifier.child_by_field_name("name")
                module.exports.add(_text(exported))
    module.exports.update(_text(name) for name in _declared_in(statement))
