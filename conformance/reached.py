# SPDX-License-Identifier: Apache-2.0
"""What a plugin's files have of lines, which of them never ran, and what would reach those."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType
from typing import Any

import attrs

from conformance.target import import_path

#: A line, or what it opens, that says so is left out, as coverage.py leaves it out.
_LEFT_OUT = "pragma: no cover"

#: Conditions that nothing at run time makes true.
_NEVER = frozenset({"TYPE_CHECKING", "typing.TYPE_CHECKING", "__name__ == '__main__'"})

#: Decorators that compile: ``torch.compile``, ``triton.jit``, ``torch.jit.script``, ``numba.njit``.
_COMPILES = re.compile(r"\b(compile|n?jit)\b")

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_NO_LINE = (ast.Global, ast.Nonlocal)

#: Lines around those that never ran in an excerpt.
_CONTEXT = 2

#: An expression that is longer is not repeated in a sentence.
_LONGEST = 60

_Node = ast.stmt | ast.ExceptHandler | ast.match_case


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
class Gap:
    """Lines that never ran, for one reason."""

    lines: tuple[int, ...]
    says: str  #: why they did not
    keys: tuple[str, ...] = ()  #: what is read of parameters to decide it


def lines_of(source: str, without: Collection[int] = ()) -> list[Line]:
    """Return the statements of a file that have code, in their order.

    Raises:
        SyntaxError: it is no Python.

    """
    coded = set(_coded(compile(source, "", "exec", dont_inherit=True)))
    text = source.splitlines()
    found = {
        line.first: line
        for node in _statements(ast.parse(source), text)
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
        functions = [each for each in node.body if isinstance(each, _FUNCTIONS)]
        inner = {n for each in functions for n in range(each.body[0].lineno, _end(each) + 1)}
        if not inner.intersection(ran):
            found |= inner
    return frozenset(found)


def gaps(source: str, ran: Collection[int], without: Collection[int] = ()) -> list[Gap]:
    """Return the lines of a file that never ran, by the reason for it.

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
    return sorted(found, key=lambda gap: gap.lines)


def _coded(code: CodeType) -> Iterator[int]:
    """Yield the lines that have code."""
    yield from (line for *_, line in code.co_lines() if line)
    for each in code.co_consts:
        if hasattr(each, "co_code"):
            yield from _coded(each)


def _bodies(node: ast.AST) -> Iterator[tuple[str, Sequence[Any]]]:
    """Yield the blocks that a statement holds, by the names of their fields."""
    for name in ("body", "handlers", "cases", "orelse", "finalbody"):
        value = getattr(node, name, None)
        if isinstance(value, list) and value:
            yield name, value


def _statements(node: ast.AST, text: Sequence[str]) -> Iterator[ast.stmt | ast.ExceptHandler]:
    """Yield every statement that may run, and every handler."""
    for name, block in _bodies(node):
        if name == "body" and isinstance(node, ast.If) and ast.unparse(node.test) in _NEVER:
            continue
        for each in block:
            if not isinstance(each, ast.match_case):
                if _LEFT_OUT in text[each.lineno - 1]:
                    continue
                if not (_says(each) or isinstance(each, _NO_LINE)):
                    yield each
            if not _compiled(each):
                yield from _statements(each, text)


def _compiled(node: ast.AST) -> bool:
    """Tell whether a decorator has a function run as another program: no line of it is seen."""
    decorators = getattr(node, "decorator_list", ()) if isinstance(node, _FUNCTIONS) else ()
    return any(_COMPILES.search(ast.unparse(each)) for each in decorators)


def _says(node: ast.AST) -> bool:
    """Tell whether a statement is a docstring or an ellipsis."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _first(node: Any) -> int:  # noqa: ANN401 - a statement or a handler
    """Return the first line of a statement, that of its first decorator if it has any."""
    decorated: int = min([node.lineno, *(e.lineno for e in getattr(node, "decorator_list", ()))])
    return decorated


def _line_of(node: ast.stmt | ast.ExceptHandler) -> Line:
    first = _first(node)
    starts = [_begins(block[0]) for _, block in _bodies(node)]
    last = min(starts) - 1 if starts else node.end_lineno or first
    return Line(first, max(first, last), node.end_lineno or first)


def _begins(node: object) -> int:
    return node.pattern.lineno if isinstance(node, ast.match_case) else _first(node)


def _in_body(
    body: Sequence[Any], never: set[int], known: Mapping[int, Line], within: ast.AST
) -> Iterator[Gap]:
    """Yield the gaps in a block that has begun to run."""
    before: Any = None
    for each in body:
        if not isinstance(each, ast.match_case) and _first(each) in never:
            # What stands behind it did not run either: whatever ran before it did not go on.
            if before is not None:
                rest, tested = body[body.index(each) :], isinstance(before, ast.If)
                says = _why(before, "orelse") if tested else "what stands before it never went on"
                yield Gap(_all(rest, never), says, _keys(before, within) if tested else ())
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
    inner = node if isinstance(node, _FUNCTIONS) else within
    for name, block in _bodies(node):
        if name in ("handlers", "cases"):
            for each in block:
                if not _begun(each.body, never, known):
                    yield Gap(_all([each], never), _why(node, name, each))
                else:
                    yield from _in_body(each.body, never, known, inner)
        elif _begun(block, never, known):
            yield from _in_body(block, never, known, inner)
        else:
            keys = _keys(node, within) if isinstance(node, ast.If | ast.For | ast.While) else ()
            yield Gap(_all(block, never), _why(node, name), keys)


def _begun(block: Sequence[Any], never: set[int], known: Mapping[int, Line]) -> bool:
    """Tell whether the first line of a block has run; one of docstrings alone need not."""
    firsts = [_first(each) for each in block if _first(each) in known]
    return not firsts or firsts[0] not in never


def _all(nodes: Sequence[Any], never: set[int]) -> tuple[int, ...]:
    """Return the lines among some that never ran, of statements and all that they hold."""
    spans = [range(_begins(each), (_end(each)) + 1) for each in nodes]
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
            says = f"{_quoted(node.test)} was never true"
        case ast.If():
            says = f"{_quoted(node.test)} was never false"
        case ast.For() | ast.AsyncFor() if block == "body":
            says = f"{_quoted(node.iter)} was always empty"
        case ast.Try() | ast.TryStar() if block == "handlers":
            says = f"nothing raised {_quoted(part.type) if part.type else 'anything'} there"
        case ast.Match():
            says = f"nothing was like {_quoted(part.pattern)}"
        case ast.For() | ast.AsyncFor() | ast.While():
            says = "the loop never came to its end"
    return says


def _quoted(node: ast.AST) -> str:
    text = ast.unparse(node)
    text = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
    return f"`{text}`"


def _keys(node: ast.If | ast.For | ast.While, within: ast.AST) -> tuple[str, ...]:
    """Return the keys that are read to decide whether a block runs, in the same function."""
    expression = node.iter if isinstance(node, ast.For) else node.test
    names = {each.id for each in ast.walk(expression) if isinstance(each, ast.Name)}
    origins: list[ast.AST] = [expression]
    for each in ast.walk(within):
        if isinstance(each, ast.Assign | ast.NamedExpr):
            targets = each.targets if isinstance(each, ast.Assign) else [each.target]
            if any(isinstance(target, ast.Name) and target.id in names for target in targets):
                origins.append(each.value)
    return tuple(dict.fromkeys(key for origin in origins for key in _read(origin)))


def _read(expression: ast.AST) -> Iterator[str]:
    """Yield the keys that an expression reads of something."""
    for node in ast.walk(expression):
        match node:
            case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=str(key)), *_]):
                yield key
            case ast.Subscript(slice=ast.Constant(value=str(key))):
                yield key
            case ast.Compare(left=ast.Constant(value=str(key)), ops=[ast.In() | ast.NotIn()]):
                yield key


def spans(lines: Sequence[int], known: Sequence[int]) -> str:
    """Return lines as a person writes them: those that follow each other among all as a range."""
    place = {line: number for number, line in enumerate(known)}
    runs: list[list[int]] = []
    for line in lines:
        if runs and place[line] == place[runs[-1][-1]] + 1:
            runs[-1].append(line)
        else:
            runs.append([line])
    return ", ".join(f"{run[0]}-{run[-1]}" if run[1:] else f"{run[0]}" for run in runs)


def document(
    ran: Mapping[str, Collection[int]], profile: object, own: str | None = None
) -> list[dict[str, Any]]:
    """Return what a certificate says of the lines of a plugin's files.

    Args:
        ran: the lines that ran, by file.
        profile: how the plugin was tried; a key that is nowhere in it was never sent.
        own: name of the plugin's class, which the first file has.

    """
    sent = set(_sent(profile))
    found: list[dict[str, Any]] = []
    for path, lines in ran.items():
        try:
            source = Path(path).read_text(encoding="utf-8")
            without = of_others(source, lines, own.partition(".")[0] if own and not found else None)
            statements = lines_of(source, without)
            missed = gaps(source, lines, without)
        except (OSError, SyntaxError, ValueError):
            continue
        known = [line.first for line in statements]
        never = sorted(line for gap in missed for line in gap.lines)
        found.append(
            {
                "file": import_path(path),
                "lines": len(known),
                "never": never,
                "says": spans(never, known),
                "why": [
                    {
                        "lines": list(gap.lines),
                        "where": spans(gap.lines, known),
                        "says": gap.says,
                        "unsent": [key for key in gap.keys if sent and key not in sent],
                    }
                    for gap in missed
                    if gap.says
                ],
                "source": _excerpt(source, statements, set(never)),
            }
        )
    return found


def _excerpt(
    source: str, statements: Sequence[Line], never: Collection[int]
) -> list[dict[str, Any]]:
    """Return the lines of a file that never ran, with those around them."""
    missed = {
        n for each in statements if each.first in never for n in range(each.first, each.last + 1)
    }
    near = {n + step for n in missed for step in range(-_CONTEXT, _CONTEXT + 1)}
    return [
        {"line": number, "text": text, "never": number in missed}
        for number, text in enumerate(source.splitlines(), 1)
        if number in near
    ]


def sentence(why: Mapping[str, Any]) -> str:
    """Say why lines never ran, and what of the profile would reach them."""
    keys = " or ".join(f"`{key}`" for key in why["unsent"])
    more = f": nothing in the profile has {keys}" if keys else ""
    return f"{why['where']}: {why['says']}{more}"


def _sent(value: object) -> Iterator[str]:
    """Yield the keys of everything in a profile."""
    if isinstance(value, dict):
        yield from map(str, value)
        for each in value.values():
            yield from _sent(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _sent(each)
