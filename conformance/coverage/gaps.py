# SPDX-License-Identifier: Apache-2.0
"""Why lines of a plugin never ran, and which ways of its statements were never gone."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from types import CodeType
from typing import Any

import attrs

from conformance.coverage.statements import (
    FUNCTIONS,
    Arm,
    Way,
    bodies,
    first_line,
    functions_around,
    statements,
    ways,
)

#: An expression that is longer is not repeated in a sentence.
_LONGEST = 60


class Want(StrEnum):
    """What an expression has to be for a statement to go a way."""

    TRUE = "true"
    FALSE = "false"
    ITEMS = "items"  #: something to go through
    EMPTY = "empty"


@attrs.frozen
class Line:
    """A statement, by its first line; a compound one without what it holds."""

    first: int
    last: int
    end: int  #: of what it holds

    @property
    def span(self) -> range:
        """Its lines."""
        return range(self.first, self.last + 1)

    def ran(self, lines: Collection[int]) -> bool:
        """Tell whether it has run."""
        return any(line in lines for line in self.span)


@attrs.frozen
class Decided:
    """What decides which way a statement goes."""

    expression: ast.expr
    want: Want
    within: ast.AST  #: the function that it stands in, or the file


@attrs.frozen
class Gap:
    """Lines that never ran, or a way that was never gone, for one reason."""

    lines: tuple[int, ...]  #: those, or the first one of the statement
    says: str  #: why they did not
    decided: Decided | None = None
    way: bool = False  #: whether all lines ran, and it is a way that no line stands for


def lines_of(source: str, without: Collection[int] = ()) -> list[Line]:
    """Return the statements of a file that have code, in their order.

    Raises:
        SyntaxError: it is no Python.

    """
    coded = set(_coded(compile(source, "", "exec", dont_inherit=True)))
    text = source.splitlines()
    found = {
        line.first: line
        for node in statements(ast.parse(source), text)
        if (line := _line_of(node)).ran(coded) and line.first not in without
    }
    return [found[first] for first in sorted(found)]


def of_others(source: str, ran: Collection[int], own: str | None) -> frozenset[int]:
    """Return the lines of functions of classes that the plugin has nothing to do with.

    Those are classes of which nothing ran: in its own file other plugins, which have a base in
    common with it, and in a file that it imports any.

    Args:
        source: of the file.
        ran: the lines that ran.
        own: name of the plugin's class, in its own file.

    """
    classes = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}
    bases = {name: {ast.unparse(base) for base in node.bases} for name, node in classes.items()}
    mine = bases.get(own or "", set())
    found: set[int] = set()
    for name, node in classes.items():
        if own is not None and (name == own or name in mine or not bases[name] & mine):
            continue
        functions = [each for each in node.body if isinstance(each, FUNCTIONS)]
        inner = {n for each in functions for n in range(each.body[0].lineno, _end(each) + 1)}
        if not inner.intersection(ran):
            found |= inner
    return frozenset(found)


def gaps(
    source: str,
    ran: Collection[int],
    without: Collection[int] = (),
    gone: Collection[Arm] = (),
) -> list[Gap]:
    """Return the lines of a file that never ran, by the reason for it, and ways never gone.

    Args:
        source: of the file.
        ran: the lines that ran.
        without: lines that do not count.
        gone: of the ways that no line stands for, those that ran.

    Raises:
        SyntaxError: it is no Python.

    """
    known = {line.first: line for line in lines_of(source, without)}
    never = {first for first, line in known.items() if not line.ran(ran)}
    tree = ast.parse(source)
    found = [gap for gap in _in_body(tree.body, never, known, tree) if gap.lines]
    told = {line for gap in found for line in gap.lines}
    if rest := tuple(sorted(never - told)):
        found.append(Gap(rest, ""))
    told_of = {id(gap.decided.expression) for gap in found if gap.decided}
    for node, arm in ways(tree, source.splitlines()):
        first = first_line(node)
        if first in known and first not in never and arm not in gone:
            gap = _untaken(node, arm, tree)
            # Lines that never ran may say the same.
            if gap.decided is None or id(gap.decided.expression) not in told_of:
                found.append(gap)
    return sorted(found, key=lambda gap: gap.lines)


def branches(
    source: str, ran: Collection[int], gone: Collection[Arm], without: Collection[int]
) -> tuple[int, int]:
    """Return how many ways the statements of a file have, and how many of them were gone.

    Raises:
        SyntaxError: it is no Python.

    """
    known = {line.first: line for line in lines_of(source, without)}
    tree, text = ast.parse(source), source.splitlines()
    arms = [arm for node, arm in ways(tree, text) if first_line(node) in known]
    blocks = [first for first in _blocks(tree, text) if first in known]
    taken = sum(arm in gone for arm in arms) + sum(known[first].ran(ran) for first in blocks)
    return len(arms) + len(blocks), taken


def _blocks(tree: ast.AST, text: Sequence[str]) -> Iterator[int]:
    """Yield the first lines of the blocks that statements choose from."""
    for node in statements(tree, text):
        if isinstance(node, ast.Match):
            chosen = [case.body for case in node.cases]
        elif isinstance(node, ast.If | ast.For | ast.AsyncFor | ast.While):
            chosen = [block for block in (node.body, node.orelse) if block]
        else:
            continue
        for block in chosen:
            if (first := first_line(block[0])) > node.lineno:
                yield first


def _untaken(node: ast.stmt, arm: Arm, tree: ast.AST) -> Gap:
    """Return what is to be said of a way that was never gone."""
    within = next(iter(functions_around(arm.first, tree)), tree)
    decided = _decided(node, "orelse", within)
    match node, arm.way:
        case ast.While(test=test), Way.EMPTY:
            says = f"{quoted(test)} was true whenever the loop began"
            decided = Decided(test, Want.FALSE, within)
        case ast.For(iter=over) | ast.AsyncFor(iter=over), Way.EMPTY:
            says, decided = f"{quoted(over)} was never empty", Decided(over, Want.EMPTY, within)
        case ast.Match(subject=subject), _:
            says = f"{quoted(subject)} was like one of the cases each time"
        case _:
            says = _why(node, "orelse")
    return Gap((first_line(node),), says, decided, way=True)


def _coded(code: CodeType) -> Iterator[int]:
    """Yield the lines that have code."""
    yield from (line for *_, line in code.co_lines() if line)
    for each in code.co_consts:
        if hasattr(each, "co_code"):
            yield from _coded(each)


def _line_of(node: ast.stmt | ast.ExceptHandler) -> Line:
    first = first_line(node)
    starts = [first_line(block[0]) for _, block in bodies(node)]
    last = min(starts) - 1 if starts else node.end_lineno or first
    return Line(first, max(first, last), node.end_lineno or first)


def _in_body(
    body: Sequence[Any], never: set[int], known: Mapping[int, Line], within: ast.AST
) -> Iterator[Gap]:
    """Yield the gaps in a block that has begun to run."""
    before: Any = None
    for each in body:
        if not isinstance(each, ast.match_case) and first_line(each) in never:
            # What stands behind it did not run either: whatever ran before it did not go on.
            if before is not None:
                rest, tested = body[body.index(each) :], isinstance(before, ast.If)
                says = _why(before, "orelse") if tested else "what stands before it never went on"
                yield Gap(_all(rest, never), says, _decided(before, "orelse", within))
            return
        before = each
        yield from _in_statement(each, never, known, within)


def _in_statement(
    node: Any,  # noqa: ANN401 - a statement or a part of one
    never: set[int],
    known: Mapping[int, Line],
    within: ast.AST,
) -> Iterator[Gap]:
    """Yield the gaps in what a statement holds."""
    inner = node if isinstance(node, FUNCTIONS) else within
    for name, block in bodies(node):
        if name in ("handlers", "cases"):
            for each in block:
                if not _begun(each.body, never, known):
                    yield Gap(_all([each], never), _why(node, name, each))
                else:
                    yield from _in_body(each.body, never, known, inner)
        elif _begun(block, never, known):
            yield from _in_body(block, never, known, inner)
        else:
            yield Gap(_all(block, never), _why(node, name), _decided(node, name, within))


def _begun(block: Sequence[Any], never: set[int], known: Mapping[int, Line]) -> bool:
    """Tell whether the first line of a block has run; one of docstrings alone need not."""
    firsts = [first_line(each) for each in block if first_line(each) in known]
    return not firsts or firsts[0] not in never


def _all(nodes: Sequence[Any], never: set[int]) -> tuple[int, ...]:
    """Return the lines among some that never ran, of statements and all that they hold."""
    spans = [range(first_line(each), (_end(each)) + 1) for each in nodes]
    return tuple(sorted(line for line in never if any(line in span for span in spans)))


def _end(node: Any) -> int:  # noqa: ANN401 - a statement or a part of one
    return _line_of(node.body[-1] if isinstance(node, ast.match_case) else node).end


def _why(node: ast.AST, block: str, part: Any = None) -> str:  # noqa: ANN401 - a statement's part
    """Say why a block of a statement never ran."""
    says = ""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            says = f"nothing called `{name}`"
        case ast.If() | ast.While() if block == "body":
            says = f"{quoted(node.test)} was never true"
        case ast.If():
            says = f"{quoted(node.test)} was never false"
        case ast.For() | ast.AsyncFor() if block == "body":
            says = f"{quoted(node.iter)} was always empty"
        case ast.Try() | ast.TryStar() if block == "handlers":
            says = f"nothing raised {quoted(part.type) if part.type else 'anything'} there"
        case ast.Match():
            says = f"nothing was like {quoted(part.pattern)}"
        case ast.For() | ast.AsyncFor() | ast.While():
            says = "the loop never came to its end"
    return says


def _decided(node: ast.AST, block: str, within: ast.AST) -> Decided | None:
    """Return what decides whether a block of a statement runs."""
    match node:
        case ast.If(test=test) | ast.While(test=test) if block == "body":
            return Decided(test, Want.TRUE, within)
        case ast.If(test=test):
            return Decided(test, Want.FALSE, within)
        case ast.For(iter=over) | ast.AsyncFor(iter=over) if block == "body":
            return Decided(over, Want.ITEMS, within)
    return None


def quoted(node: ast.AST) -> str:
    """Return an expression as a sentence has it."""
    text = ast.unparse(node)
    text = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
    return f"`{text}`"
