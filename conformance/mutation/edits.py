# SPDX-License-Identifier: Apache-2.0
"""Small changes to the source of a plugin, one at a time, as text.

Libraries that do this (mutmut, cosmic-ray) come with a runner of tests of their own and change
whole projects; what is needed here is the list of changes to one file.  Text is changed and not a
tree, so that a difference shows the author's own lines.
"""

from __future__ import annotations

import ast
import difflib
import random
from collections.abc import Iterator
from types import CodeType

import attrs

from conformance.coverage.statements import says

#: What takes the place of an operator, in comparisons and in sums.
_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip
_SIGNS: dict[type[ast.operator], str] = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*", ast.Mod: "//",
}  # fmt: skip

_REMOVABLE = (ast.Expr, ast.Assign, ast.AugAssign, ast.Delete, ast.Raise, ast.Break, ast.Continue)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

#: Lines around a change in a difference.
_CONTEXT = 1


@attrs.frozen
class Edit:
    """One change to a file."""

    operator: str
    line: int  #: where it is, from 1
    source: str  #: the whole file with it
    diff: str  #: unified, with the line of the hunk


def edits(source: str, name: str) -> list[Edit]:
    """Return every change to a source file that is another program, in the order of its lines.

    Raises:
        SyntaxError: the file is no Python.

    """
    tree = ast.parse(source)
    lines = source.encode().splitlines(keepends=True)
    starts = [sum(map(len, lines[:number])) for number in range(len(lines) + 1)]
    before, seen, found = _code(compile(source, name, "exec")), set[object](), []
    for operator, node, text in sorted(_changes(tree), key=lambda each: _place(each[1])):
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        whole = source.encode()
        changed = (whole[:start] + text.encode() + whole[end:]).decode()
        try:
            code = _code(compile(changed, name, "exec"))
        except (SyntaxError, ValueError):
            continue
        if code != before and code not in seen:
            seen.add(code)
            found.append(Edit(operator, node.lineno, changed, _diff(source, changed, name)))
    return found


def sample(found: list[Edit], most: int, seed: int) -> list[Edit]:
    """Return so many of these changes, always the same for a seed, in their own order."""
    if len(found) <= most:
        return found
    chosen = random.Random(seed).sample(range(len(found)), most)
    return [found[number] for number in sorted(chosen)]


def _place(node: _Placed) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _diff(before: str, after: str, name: str) -> str:
    pieces = difflib.unified_diff(
        before.splitlines(), after.splitlines(), name, name, n=_CONTEXT, lineterm=""
    )
    return "\n".join(pieces) + "\n"


def _code(code: CodeType) -> tuple[object, ...]:
    """Return what a program does, without where it stands."""
    constants = tuple(
        _code(each) if hasattr(each, "co_code") else (type(each).__name__, repr(each))
        for each in code.co_consts
    )
    return code.co_name, code.co_code, constants, code.co_names, code.co_varnames, code.co_flags


_Placed = ast.stmt | ast.expr
_Change = tuple[str, _Placed, str]


def _changes(tree: ast.Module) -> Iterator[_Change]:
    """Yield each change: its name, what it takes the place of, and the text."""
    for statement in tree.body:
        yield from _in_statement(statement, inside=False)


def _in_statement(node: ast.stmt, *, inside: bool) -> Iterator[_Change]:
    """Yield the changes in a statement, which is or is not inside a function."""
    if isinstance(node, ast.Import | ast.ImportFrom | ast.Global | ast.Nonlocal):
        return
    if isinstance(node, ast.If) and _name(node.test) == "TYPE_CHECKING":
        return
    yield from _of_statement(node, inside=inside)
    if isinstance(node, _FUNCTIONS):
        yield from _of_function(node)
        inside = True
    for name, value in [] if isinstance(node, ast.Raise) else ast.iter_fields(node):
        if name in ("annotation", "args", "returns", "decorator_list", "bases", "keywords"):
            continue
        for each in value if isinstance(value, list) else [value]:
            yield from _in_any(each, inside=inside)


def _of_statement(node: ast.stmt, *, inside: bool) -> Iterator[_Change]:
    """Yield the changes of one statement itself."""
    if inside and (isinstance(node, _REMOVABLE) or _is_assignment(node)) and not says(node):
        yield "statement removed", node, "pass"
    if isinstance(node, ast.Return) and not _is_none(node.value):
        yield "returns None", node, "return None"
    if isinstance(node, ast.Break | ast.Continue):
        other = "continue" if isinstance(node, ast.Break) else "break"
        yield "break and continue exchanged", node, other


def _of_function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[_Change]:
    """Yield the changes of what a function takes for granted, and one that returns at once."""
    for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
        yield from _in_expression(default)
    body = node.body[1:] if says(node.body[0]) else node.body
    if len(body) > 1 and isinstance(body[0], (*_REMOVABLE, ast.Return, ast.AnnAssign)):
        first = body[0]
        yield "returns at once", first, f"return\n{' ' * first.col_offset}{ast.unparse(first)}"


def _in_any(node: object, *, inside: bool) -> Iterator[_Change]:
    if isinstance(node, ast.stmt):
        if not says(node):
            yield from _in_statement(node, inside=inside)
    elif isinstance(node, ast.expr):
        yield from _in_expression(node)
    elif isinstance(node, ast.ExceptHandler | ast.match_case):
        for each in node.body:
            yield from _in_any(each, inside=inside)
    elif isinstance(node, ast.withitem):
        yield from _in_expression(node.context_expr)


def _in_expression(root: ast.expr) -> Iterator[_Change]:
    """Yield the changes in an expression and all below it."""
    pending: list[ast.AST] = [root]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.JoinedStr):
            continue  # before Python 3.12 nothing in it knows its place
        if isinstance(node, ast.expr):
            yield from _of(node)
        pending += ast.iter_child_nodes(node)


def _of(node: ast.expr) -> Iterator[_Change]:
    """Yield the changes of one expression itself."""
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            text = f"{_bracketed(left)} {_COMPARISONS[type(operator)]} {_bracketed(right)}"
            yield "comparison replaced", node, f"({text})"
        case ast.BoolOp(op=operator, values=values):
            word = " or " if isinstance(operator, ast.And) else " and "
            yield "and, or exchanged", node, f"({word.join(map(_bracketed, values))})"
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _SIGNS:
            text = f"{_bracketed(left)} {_SIGNS[type(operator)]} {_bracketed(right)}"
            yield "operator replaced", node, f"({text})"
        case ast.UnaryOp(op=ast.USub() | ast.Not(), operand=operand):
            name = "sign flipped" if isinstance(node.op, ast.USub) else "not removed"
            yield name, node, f"({ast.unparse(operand)})"
        case ast.Constant(value=bool(value)):
            yield "constant flipped", node, str(not value)
        case ast.Constant(value=int() | float() as value):
            yield "constant off by one", node, repr(value + 1)
        case ast.IfExp(test=test, body=body, orelse=other):
            text = f"{_bracketed(body)} if not {_bracketed(test)} else {_bracketed(other)}"
            yield "condition negated", node, f"({text})"
        case ast.Call(args=[ast.GeneratorExp() as only]) | (
            ast.ListComp() | ast.SetComp() | ast.DictComp() as only
        ):
            for condition in (each for part in only.generators for each in part.ifs):
                yield "condition dropped", condition, "True"


def _bracketed(node: ast.expr) -> str:
    """Return an expression as text that keeps its meaning beside an operator."""
    text = ast.unparse(node)
    return text if isinstance(node, ast.Name | ast.Constant | ast.Attribute) else f"({text})"


def _is_assignment(node: ast.stmt) -> bool:
    return isinstance(node, ast.AnnAssign) and node.value is not None


def _is_none(node: ast.expr | None) -> bool:
    return node is None or (isinstance(node, ast.Constant) and node.value is None)


def _name(node: ast.expr) -> str | None:
    return getattr(node, "id", getattr(node, "attr", None))
