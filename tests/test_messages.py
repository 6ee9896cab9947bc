# SPDX-License-Identifier: Apache-2.0
"""A sentence is for a person: no module reads one back that the harness itself has written.

What a sentence says is a field of whatever carries it.  Looked for is what is called ``message``,
and the text of the harness's own exceptions; what others write may be read.
"""

from __future__ import annotations

import ast
import builtins
from typing import TYPE_CHECKING

import pytest
from support import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

HARNESS = ROOT / "conformance"

#: Methods of a sentence that only change how it is drawn.
DRAWING = frozenset(("strip", "rstrip", "replace"))

#: Methods of patterns and of other strings that are given a sentence to find something in it.
FINDING = frozenset(
    ("search", "match", "fullmatch", "findall", "finditer", "split", "sub", "subn", "startswith")
)

#: The functions that may, and why.
EXCEPTIONS = {
    ("benchmark/step_cost.py", "_waits"): "torch's warning, which only its words tell from others",
    ("commands/configurations.py", "_told"): "names that vLLM made up are left out of what it said",
    ("matrix/table.py", "_first_line"): "a table has room for one line",
}


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    """Return the modules of the harness by their paths."""
    return {
        path.relative_to(HARNESS).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in HARNESS.rglob("*.py")
    }


@pytest.fixture(scope="module")
def own(trees: dict[str, ast.Module]) -> frozenset[str]:
    """Return the names of the exceptions that the harness defines."""
    classes = [n for tree in trees.values() for n in ast.walk(tree) if isinstance(n, ast.ClassDef)]
    bases = {each.name: {_called(base) for base in each.bases} for each in classes}
    known = {
        name
        for name, value in vars(builtins).items()
        if isinstance(value, type) and issubclass(value, BaseException)
    }
    found: set[str] = set()
    while more := {name for name in bases.keys() - found if bases[name] & (known | found)}:
        found |= more
    return frozenset(found)


def _called(node: ast.AST | None) -> str | None:
    """Return what a variable, an attribute or an item is called."""
    match node:
        case ast.Name(str(name)) | ast.Attribute(attr=str(name)):
            return name
        case ast.Subscript(slice=ast.Constant(str(name))):
            return name
    return None


class _Reader(ast.NodeVisitor):
    """Finds the functions that read a message."""

    def __init__(self, own: frozenset[str]) -> None:
        self.found: set[str] = set()
        self._own = own
        self._functions: list[str] = []
        self._errors: set[str | None] = set()  #: variables that are exceptions of the harness

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._enter(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._enter(node)

    def _enter(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._functions.append(node.name)
        self.generic_visit(node)
        self._functions.pop()

    def visit_arg(self, node: ast.arg) -> None:
        self._bind(node.arg, node.annotation)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        self._bind(node.name, node.type)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        match node:
            case ast.Call(func=ast.Attribute(value=value, attr=method), args=arguments):
                asked = self._is_message(value) and method not in DRAWING
                given = method in FINDING and any(map(self._is_message, arguments))
                self._note(asked or given)
            case ast.Call(func=ast.Name("isinstance"), args=[value, *_]):
                self._note(self._is_message(value))
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        whether_any = all(isinstance(op, ast.Is | ast.IsNot) for op in node.ops)
        sides = [node.left, *node.comparators]
        self._note(not whether_any and any(map(self._is_message, sides)))
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self._note(isinstance(node.slice, ast.Slice) and self._is_message(node.value))
        self.generic_visit(node)

    def _bind(self, name: str | None, kind: ast.expr | None) -> None:
        """Note whether a variable of that type is an exception of the harness."""
        kinds = {_called(each) for each in ast.walk(kind)} if kind else set()
        (self._errors.add if kinds & self._own else self._errors.discard)(name)

    def _note(self, reads: bool) -> None:
        if reads:
            self.found.add(self._functions[0] if self._functions else "")

    def _is_message(self, node: ast.AST) -> bool:
        match node:
            case ast.BoolOp(values=parts):
                return any(map(self._is_message, parts))
            case ast.IfExp(body=one, orelse=other):
                return self._is_message(one) or self._is_message(other)
            case ast.Call(func=ast.Name("str"), args=[value]):
                return self._is_message(value) or _called(value) in self._errors
            case ast.Call(func=ast.Attribute(value=value, attr=method)):
                return method in DRAWING and self._is_message(value)
        return _called(node) == "message"


def _readers(trees: dict[str, ast.Module], own: frozenset[str]) -> Iterator[tuple[str, str]]:
    for path, tree in trees.items():
        reader = _Reader(own)
        reader.visit(tree)
        yield from ((path, function) for function in reader.found)


def test_no_sentence_is_read_back(trees: dict[str, ast.Module], own: frozenset[str]) -> None:
    """Nobody looks into a message, but for those who may; and each of those still does."""
    assert set(_readers(trees, own)) == set(EXCEPTIONS)


@pytest.mark.parametrize(
    "source",
    [
        'trouble.message.partition(" did")[0]',
        'trouble.message.rpartition(" ")[2]',
        're.search(r"output (\\d+) of", finding.message or "")',
        'shortened(data) not in (finding.message or "")',
        'f"a context with {what} " in (finding.message or "")',
        "isinstance(found.message, Waiting)",
        'rule["message"].startswith("cannot be judged")',
        'str(case["message"]).split()',
        'message == "nothing was seen"',
        "message[:20]",
        'def f(error: PluginHung): return str(error).partition(" did not")[0]',
        "try: f()\nexcept (OSError, PluginHung) as error: str(error).startswith(AFTER)",
    ],
)
def test_whatever_reads_one_is_found(source: str, own: frozenset[str]) -> None:
    """In each of the ways in which that was once done."""
    reader = _Reader(own)
    reader.visit(ast.parse(source))
    assert reader.found


@pytest.mark.parametrize(
    "source",
    [
        "failed(trouble.message, count)",
        'text.append(rule["message"].rstrip())',
        "if finding.message is not None: pass",
        'def f(error: OSError): return "relative import" in str(error)',
        "try: f()\nexcept PluginHung as error: failed(str(error))",
        'see(set(error) != {"type", "message"})',
    ],
)
def test_writing_one_and_handing_it_on_is_not(source: str, own: frozenset[str]) -> None:
    """Nor is reading what somebody else has written."""
    reader = _Reader(own)
    reader.visit(ast.parse(source))
    assert not reader.found
