# SPDX-License-Identifier: Apache-2.0
"""What a plugin answers in processes whose texts have other hashes, as those of two servers have.

The order of a set of texts follows from their hashes, which Python draws when a process starts:
within one process it never changes.  So two processes with different seeds are started, and where
they differ each of them once more, since what differs anyway is no doing of the hashes.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from conformance.watching.comparison import difference

#: Seeds of hashes; with any two of them most sets of three texts have another order.
SEEDS = ("1", "2")

#: Seconds in which a process has imported everything and answered.
SECONDS = 120.0

#: Reads what it is to do, and does it.
_PROGRAM = """\
import pickle, sys
path, sent = pickle.load(sys.stdin.buffer)
sys.path[:] = path
from conformance.watching import hash_seeds
hash_seeds.tell(sent)
"""

_MARK = "told by its hashes:"

#: Functions that take a set and give the same for whatever order it has.
_ORDERLESS = frozenset(("sorted", "len", "sum", "min", "max", "any", "all", "bool", "set"))

#: What gives a set, or what is drawn with the hashes: functions, and methods.
_SETS = frozenset(("set", "frozenset", "hash"))
_FACTORIES = ("default_factory", "factory")
_OPERATIONS = frozenset(("union", "intersection", "difference", "symmetric_difference"))


def may_depend(cls: type[Any]) -> bool:
    """Tell whether an order of hashes may get into answers, by the source of a class."""
    for part in cls.__mro__:
        file = getattr(sys.modules.get(part.__module__), "__file__", None) or ""
        if part is cls or part.__module__.partition(".")[0] == cls.__module__.partition(".")[0]:
            with suppress(OSError, ValueError, SyntaxError):
                tree = ast.parse(Path(file).read_text(encoding="utf-8"))
                if any(_ordered(tree)) or any(_handed_on(tree)):
                    return True
    return False


def _ordered(tree: ast.AST) -> Iterator[bool]:
    """Yield whether a set, or a hash, stands where its order, or value, may get on."""
    asked: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            asked |= {id(each) for each in (node.left, *node.comparators)}
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in _ORDERLESS:
            asked |= {id(each) for each in node.args}
        if id(node) not in asked:
            yield _is_set(node)


def _is_set(node: ast.AST) -> bool:
    match node:
        case ast.Set(elts=[_, _, *_]) | ast.SetComp():
            return True
        case ast.Call(func=ast.Name(id=name)) if name in _SETS:
            return bool(node.args)
        case ast.Call(func=ast.Attribute(attr=name)) if name in _OPERATIONS:
            return True
        case ast.BinOp(left=left, op=ast.BitAnd() | ast.BitOr() | ast.Sub() | ast.BitXor()):
            return isinstance(left, ast.Call) and getattr(left.func, "attr", "") == "keys"
    return False


def _handed_on(tree: ast.AST) -> Iterator[bool]:
    """Yield whether a set that is empty at first stands where its order may get on."""
    nodes = list(ast.walk(tree))
    empty: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Assign | ast.AnnAssign) and _is_empty_set(node.value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            empty |= set(map(_name, targets))
    empty.discard("")
    for node in nodes:
        match node:
            case ast.Call(func=called, args=arguments) if _name(called) == "defaultdict":
                yield any(_name(each) == "set" for each in arguments)
            case ast.Call(func=called, args=arguments) if _name(called) not in _ORDERLESS:
                yield any(_name(each) in empty for each in arguments)
            case ast.For(iter=found) | ast.comprehension(iter=found):
                yield _name(found) in empty
            case ast.Starred(value=found) | ast.Return(value=found):
                yield _name(found) in empty


def _is_empty_set(value: ast.AST | None) -> bool:
    match value:
        case ast.Call(func=ast.Name(id="set"), args=[]):
            return True
        case ast.Call(keywords=keywords):  # a field of a data class
            return any(each.arg in _FACTORIES and _name(each.value) == "set" for each in keywords)
    return False


def _name(node: ast.AST | None) -> str:
    """Return the name of a variable, or of an attribute whoever has it; else an empty one."""
    return node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")


def apart(what: str, asked: object) -> tuple[int, str] | None:
    """Return which answer is another one where texts have other hashes, and in what.

    Args:
        what: the function ``module:name`` that takes ``asked`` and returns answers as JSON.
        asked: what can be pickled.

    """
    try:
        sent = pickle.dumps((sys.path, pickle.dumps((what, asked))))
    except Exception:  # noqa: BLE001 - objects of a profile need not travel
        return None
    one, other = _told(sent)
    if one is None or other is None or _first(one, other) is None:
        return None
    again = _told(sent)
    for before, now in zip((one, other), again, strict=True):
        if now is None or _first(before, now) is not None:
            return None
    return _first(one, other)


def _first(one: list[Any], other: list[Any]) -> tuple[int, str] | None:
    pairs = zip(one, other, strict=False)
    found = ((number, difference(*pair)) for number, pair in enumerate(pairs))
    return next(((number, why) for number, why in found if why), None)


def _told(sent: bytes) -> tuple[list[Any] | None, list[Any] | None]:
    """Return the answers of a process for each seed."""
    with ThreadPoolExecutor(max_workers=len(SEEDS)) as pool:
        one, other = pool.map(lambda seed: _of_process(sent, seed), SEEDS)
    return one, other


def _of_process(sent: bytes, seed: str) -> list[Any] | None:
    try:
        run = subprocess.run(
            [sys.executable, "-c", _PROGRAM],
            input=sent,
            capture_output=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
            timeout=SECONDS,
            check=False,
        )
        _, found, told = run.stdout.decode(errors="replace").rpartition(_MARK)
        answers: list[Any] | None = json.loads(told) if found else None
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return answers


def tell(sent: bytes) -> None:
    """Write down the answers; this is the other process."""
    what, asked = pickle.loads(sent)  # noqa: S301 - our own
    module, _, name = what.partition(":")
    answers = getattr(importlib.import_module(module), name)(asked)
    sys.stdout.write(_MARK + json.dumps(answers, default=repr))
    sys.stdout.flush()
    os._exit(0)
