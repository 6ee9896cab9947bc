# SPDX-License-Identifier: Apache-2.0
"""Cutting a module down to one of its functions and what that function uses.

A player is a module that plays cases: ordinary code, with a function for each kind of case.  The
program of a case holds that function and whatever of the module it uses, so nobody needs to know
this project to read it.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping

import attrs

_WORD = re.compile(r"[A-Za-z_]\w*")


@attrs.frozen
class Excerpt:
    """Parts of a module's source."""

    standard: str  #: statements that import from the standard library
    others: str  #: those that import from elsewhere
    code: str  #: functions, classes and constants, in the order of the module


def joined(sources: Iterable[str]) -> str:
    """Return one module of several, each of which imports those before it and none that follows."""
    docstrings, bodies = [], []
    names: dict[str, set[str]] = {}  # by module, that are imported from it
    modules: set[str] = set()
    for source in sources:
        docstring, *nodes = ast.parse(source).body
        docstrings.append(ast.get_source_segment(source, docstring))
        imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
        for node in imports:
            given = {ast.unparse(alias) for alias in node.names}
            if isinstance(node, ast.Import):
                modules |= given
            elif not str(node.module).startswith("conformance."):
                names.setdefault(str(node.module), set()).update(given)
        bodies.append("\n".join(source.splitlines()[imports[-1].end_lineno :]))
    statements = [f"import {module}" for module in sorted(modules)]
    statements += [f"from {module} import {', '.join(sorted(names[module]))}" for module in names]
    return "\n".join([str(docstrings[0]), *statements, *bodies])


def excerpt(
    source: str,
    name: str,
    *,
    beside: Iterable[str] = (),
    uses: Iterable[str] = (),
    text: str = "",
) -> Excerpt:
    """Return a function of a module, and what it uses of the module.

    A name counts as used wherever it is read, also where a local variable has it.  A method counts
    as used where its name is an attribute, or a string.

    Args:
        source: of a module: its docstring, imports, functions, classes and constants.
        name: of the function.
        beside: modules of the standard library that are imported in any case.
        uses: what else of the module is wanted.
        text: the rest of the program, which uses methods by name.

    Raises:
        LookupError: there is no such function.
        ValueError: the module holds other statements.

    """
    _, *nodes = ast.parse(source).body
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    defined = {_name(node): node for node in nodes if node not in imports}
    used = {name, *uses}
    if unknown := used - defined.keys():
        raise LookupError(f"a player has no {', '.join(sorted(unknown))}")
    called = set(_WORD.findall(text))
    before = -1
    while before < len(used) + len(called):
        before = len(used) + len(called)
        for each in [defined[each] for each in defined if each in used]:
            left_out = _unused(each, called, defined)
            for node in _walk(each, left_out):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                    used.add(node.id)
                elif isinstance(node, ast.Attribute):
                    called.add(node.attr)
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    called.add(node.value)
    statements = sorted(
        {*(f"import {each}" for each in beside), *_kept(imports, used)},
        key=lambda each: (each.startswith("from "), each),
    )
    standard = [each for each in statements if _package(each) in sys.stdlib_module_names]
    return Excerpt(
        "\n".join(standard),
        "\n".join(each for each in statements if each not in standard),
        "\n\n\n".join(
            _text(source, defined[each], _unused(defined[each], called, defined))
            for each in defined
            if each in used
        ),
    )


def _name(node: ast.stmt) -> str:
    """Return the name that a statement of a module defines."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name
    raise ValueError(f"line {node.lineno} of a player defines no name")


def _unused(
    node: ast.stmt, called: Collection[str], defined: Mapping[str, ast.stmt]
) -> list[ast.stmt]:
    """Return the methods of a class that nothing calls by name.

    Python and classes from elsewhere call methods as well: those of their subclasses stay.
    """
    if not isinstance(node, ast.ClassDef) or not _own(node, defined):
        return []
    methods = (each for each in node.body if isinstance(each, ast.FunctionDef))
    return [each for each in methods if each.name not in called and not each.name.startswith("__")]


def _own(node: ast.ClassDef, defined: Mapping[str, ast.stmt]) -> bool:
    """Tell whether all bases of a class are classes of the module."""
    bases = [defined.get(each.id) for each in node.bases if isinstance(each, ast.Name)]
    return len(bases) == len(node.bases) and all(
        isinstance(each, ast.ClassDef) and _own(each, defined) for each in bases
    )


def _walk(node: ast.AST, left_out: Collection[ast.stmt]) -> Iterator[ast.AST]:
    """Yield a node, and those in it, but for some statements."""
    yield node
    for each in ast.iter_child_nodes(node):
        if each not in left_out:
            yield from _walk(each, left_out)


def _kept(nodes: Iterable[ast.Import | ast.ImportFrom], used: set[str]) -> Iterator[str]:
    """Yield what is left of statements that import what is used, and more."""
    for node in nodes:
        node.names = [a for a in node.names if (a.asname or a.name).partition(".")[0] in used]
        if node.names:
            yield ast.unparse(node)


def _package(statement: str) -> str:
    return statement.split()[1].partition(".")[0]


def _text(source: str, node: ast.stmt, left_out: Collection[ast.stmt]) -> str:
    """Return a definition with its decorators and the comment above it, but for some statements."""
    lines = source.splitlines()
    first = min(each.lineno for each in (node, *getattr(node, "decorator_list", ())))
    while lines[first - 2].startswith("#"):
        first -= 1
    kept = dict(enumerate(lines[first - 1 : node.end_lineno], first))
    end = node.lineno
    for each in getattr(node, "body", ()):
        if each in left_out:
            for number in range(end + 1, each.end_lineno + 1):
                del kept[number]
        end = each.end_lineno
    return "\n".join(kept.values())
