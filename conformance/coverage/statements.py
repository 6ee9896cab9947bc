# SPDX-License-Identifier: Apache-2.0
"""Statements of a source file that may run, and the ways in which they may go on.

Where a statement has a block, the lines of the block tell whether it ran.  An ``if`` without an
``else`` that is always true, or a loop that always has something to do, has a way that no line
stands for: every line runs, and nothing was shown of the other case.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from enum import StrEnum
from typing import Any

import attrs

#: A line, or what it opens, that says so is left out, as coverage.py leaves it out.
LEFT_OUT = "pragma: no cover"

#: Conditions that nothing at run time makes true.
NEVER = frozenset({"TYPE_CHECKING", "typing.TYPE_CHECKING", "__name__ == '__main__'"})

#: Decorators that compile: ``torch.compile``, ``triton.jit``, ``torch.jit.script``, ``numba.njit``.
_COMPILES = re.compile(r"\b(compile|n?jit)\b")

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_NO_LINE = (ast.Global, ast.Nonlocal)


class Way(StrEnum):
    """How a statement goes on, where no line of its own says so."""

    PAST = "past"  #: past the block of an ``if``, or that of the last ``case``
    END = "end"  #: on from a loop that came to its end
    EMPTY = "empty"  #: on from a loop that had nothing to do


@attrs.frozen
class Arm:
    """A way of a statement whose test stands on other lines than its block."""

    first: int
    last: int  #: of the test
    inner: int  #: where the block begins
    end: int  #: of the block
    way: Way


def bodies(node: ast.AST) -> Iterator[tuple[str, Sequence[Any]]]:
    """Yield the blocks that a statement holds, by the names of their fields."""
    for name in ("body", "handlers", "cases", "orelse", "finalbody"):
        value = getattr(node, name, None)
        if isinstance(value, list) and value:
            yield name, value


def statements(node: ast.AST, text: Sequence[str]) -> Iterator[ast.stmt | ast.ExceptHandler]:
    """Yield every statement that may run, and every handler.

    Args:
        node: what holds them.
        text: the lines of the file.

    """
    for name, block in bodies(node):
        if name == "body" and isinstance(node, ast.If) and ast.unparse(node.test) in NEVER:
            continue
        for each in block:
            if not isinstance(each, ast.match_case):
                if LEFT_OUT in text[each.lineno - 1]:
                    continue
                if not (says(each) or isinstance(each, _NO_LINE)):
                    yield each
            if not _compiled(each):
                yield from statements(each, text)


def first_line(node: Any) -> int:  # noqa: ANN401 - a statement, a handler or a case
    """Return the first line of a statement, that of its first decorator if it has any."""
    if isinstance(node, ast.match_case):
        return node.pattern.lineno
    decorated: int = min([node.lineno, *(e.lineno for e in getattr(node, "decorator_list", ()))])
    return decorated


def arms(source: str) -> tuple[Arm, ...]:
    """Return the ways of a file that no line stands for, in their order.

    Raises:
        SyntaxError: it is no Python.

    """
    return tuple(arm for _, arm in ways(ast.parse(source), source.splitlines()))


def ways(tree: ast.AST, text: Sequence[str]) -> Iterator[tuple[ast.stmt, Arm]]:
    """Yield the same, each with its statement."""
    full = _constants(tree)
    for node in statements(tree, text):
        match node:
            case ast.If() if not _settled(node.test) and not node.orelse:
                found = _arms(node, node, (Way.PAST,))
            case ast.Match(cases=[*_, last]) if last.guard or not _takes_all(last.pattern):
                found = _arms(last, last, (Way.PAST,))
            case ast.While() if not _settled(node.test):
                found = _arms(node, node, _of_loop(node, node.test, full))
            case ast.For() | ast.AsyncFor():
                found = _arms(node, node, _of_loop(node, node.iter, full))
            case _:
                continue
        yield from ((node, arm) for arm in found)


def _arms(test: Any, block: Any, found: Sequence[Way]) -> Iterator[Arm]:  # noqa: ANN401 - a statement or a case
    first, inner = first_line(test), first_line(block.body[0])
    if inner > first:  # or nobody can tell one from the other
        end = block.body[-1].end_lineno
        yield from (Arm(first, inner - 1, inner, end, way) for way in found)


def _of_loop(
    node: ast.For | ast.AsyncFor | ast.While, over: ast.expr, full: Collection[str]
) -> list[Way]:
    """Return the ways of a loop; what stands there in full is not empty."""
    end = [] if node.orelse else [Way.END]
    return end if _full(over, full) else [*end, Way.EMPTY]


def _constants(tree: ast.AST) -> frozenset[str]:
    """Return the constants of a file, and of its classes, that have something in them."""
    nodes = list(ast.walk(tree))
    bound = Counter(node.arg for node in nodes if isinstance(node, ast.arg))
    for node in nodes:
        if isinstance(node, ast.Name | ast.Attribute) and not isinstance(node.ctx, ast.Load):
            bound[node.id if isinstance(node, ast.Name) else node.attr] += 1
    found: set[str] = set()
    for scope in (tree, *(node for node in nodes if isinstance(node, ast.ClassDef))):
        for node in getattr(scope, "body", ()):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.expr() as value):
                    pass
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    pass
                case _:
                    continue
            if bound[name] == 1 and _full(value, found):
                within = ("self", "cls", scope.name) if isinstance(scope, ast.ClassDef) else ()
                found |= {f"{each}.{name}" for each in within} or {name}
    return frozenset(found)


def _full(value: ast.expr, known: Collection[str]) -> bool:
    """Tell whether a loop over an expression has something to do whatever happens.

    An IO processor has outputs, for vLLM refuses a request without prompts; what is gone through
    beside them has one for each.
    """
    full = False
    match value:
        case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
            full = any(not isinstance(each, ast.Starred) for each in items)
        case ast.Dict(keys=keys):
            full = any(keys)
        case ast.Name() | ast.Attribute() if ast.unparse(value) in known:
            full = True
        case ast.Call(func=ast.Attribute(value=inner, attr="items" | "keys" | "values"), args=[]):
            full = _full(inner, known)
        case ast.Constant(value=constant):
            full = bool(constant)
        case (
            ast.JoinedStr()
            | ast.Name(id="model_output")
            | ast.Call(func=ast.Attribute(value=ast.Name(id="itertools"), attr="count"))
        ):
            full = True
        case ast.Call(func=ast.Name(id="zip"), args=several):
            full = any(isinstance(each, ast.Name) and _full(each, ()) for each in several)
        case ast.Call(func=ast.Name(id="range"), args=arguments):
            full = all(isinstance(each, ast.Constant) for each in arguments)
        case ast.Call(func=ast.Name(id=called), args=[inner, *_]) if called in _AS_MANY:
            full = _full(inner, known)
    return full


#: Functions that return something where they are given something.
_AS_MANY = frozenset(
    ("enumerate", "reversed", "sorted", "list", "tuple", "set", "frozenset", "dict")
)


def _settled(test: ast.expr) -> bool:
    """Tell whether a condition is one way whatever happens."""
    return isinstance(test, ast.Constant) or ast.unparse(test) in NEVER


def _takes_all(pattern: ast.pattern) -> bool:
    """Tell whether a pattern is like anything."""
    match pattern:
        case ast.MatchAs(pattern=None):
            return True
        case ast.MatchAs(pattern=ast.pattern() as inner):
            return _takes_all(inner)
        case ast.MatchOr(patterns=several):
            return any(map(_takes_all, several))
    return False


def _compiled(node: ast.AST) -> bool:
    """Tell whether a decorator has a function run as another program: no line of it is seen."""
    decorators = getattr(node, "decorator_list", ()) if isinstance(node, FUNCTIONS) else ()
    return any(_COMPILES.search(ast.unparse(each)) for each in decorators)


def functions_around(line: int, tree: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return the functions that a line is in, the innermost first."""
    holding = [
        node
        for node in ast.walk(tree)
        if isinstance(node, FUNCTIONS) and node.lineno <= line <= (node.end_lineno or line)
    ]
    return sorted(holding, key=lambda node: -node.lineno)


def says(node: ast.AST) -> bool:
    """Tell whether a statement is a docstring, an ellipsis or another constant alone."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
