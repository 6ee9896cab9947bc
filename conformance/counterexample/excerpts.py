# SPDX-License-Identifier: Apache-2.0
"""Cutting a module down to one of its functions and what that function uses.

A player is a module that plays cases: ordinary code, with a function for each kind of case.  The
program of a case holds that function and whatever of the module it uses, so nobody needs to know
this project to read it.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator

import attrs


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
    source: str, name: str, *, beside: Iterable[str] = (), uses: Iterable[str] = ()
) -> Excerpt:
    """Return a function of a module, and what it uses of the module.

    A name counts as used wherever it is read, also where a local variable has it.

    Args:
        source: of a module: its docstring, imports, functions, classes and constants.
        name: of the function.
        beside: modules of the standard library that are imported in any case.
        uses: what else of the module is wanted.

    Raises:
        LookupError: there is no such function.
        ValueError: the module holds other statements.

    """
    _, *nodes = ast.parse(source).body
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    defined = {_name(node): node for node in nodes if node not in imports}
    used: set[str] = set()
    waiting = {name, *uses}
    if unknown := waiting - defined.keys():
        raise LookupError(f"a player has no {', '.join(sorted(unknown))}")
    while waiting:
        used |= waiting
        read = set().union(*(_read(defined[each]) for each in waiting & defined.keys()))
        waiting = read - used
    statements = sorted(
        {*(f"import {each}" for each in beside), *_kept(imports, used)},
        key=lambda each: (each.startswith("from "), each),
    )
    standard = [each for each in statements if _package(each) in sys.stdlib_module_names]
    return Excerpt(
        "\n".join(standard),
        "\n".join(each for each in statements if each not in standard),
        "\n\n\n".join(_text(source, defined[each]) for each in defined if each in used),
    )


def _name(node: ast.stmt) -> str:
    """Return the name that a statement of a module defines."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name
    raise ValueError(f"line {node.lineno} of a player defines no name")


def _read(node: ast.stmt) -> set[str]:
    names = (each for each in ast.walk(node) if isinstance(each, ast.Name))
    return {each.id for each in names if isinstance(each.ctx, ast.Load)}


def _kept(nodes: Iterable[ast.Import | ast.ImportFrom], used: set[str]) -> Iterator[str]:
    """Yield what is left of statements that import what is used, and more."""
    for node in nodes:
        node.names = [a for a in node.names if (a.asname or a.name).partition(".")[0] in used]
        if node.names:
            yield ast.unparse(node)


def _package(statement: str) -> str:
    return statement.split()[1].partition(".")[0]


def _text(source: str, node: ast.stmt) -> str:
    """Return a definition with its decorators and the comment above it."""
    lines = source.splitlines()
    first = min(each.lineno for each in (node, *getattr(node, "decorator_list", ())))
    while lines[first - 2].startswith("#"):
        first -= 1
    return "\n".join(lines[first - 1 : node.end_lineno])
