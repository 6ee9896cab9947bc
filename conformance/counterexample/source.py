# SPDX-License-Identifier: Apache-2.0
"""Values as JSON and as Python source.

JSON has neither infinity nor bytes nor tuples nor integers as keys, and its files no halves of
surrogate pairs; requests may hold all of them, and a plugin may tell them apart.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

WIDTH = 100

#: Longer texts and lists are written as products, where they repeat themselves.
LONG = 24

#: What repeats itself within a text for more than a line.
_RUN = re.compile(r"(.{1,5}?)\1{50,}", re.DOTALL)

#: The key of a JSON object that stands for a value of another type.
_TYPE = "!type"


def encoded(value: object) -> Any:  # noqa: ANN401, PLR0911 - any parameter; each type its way
    """Return a value as JSON values, such that :func:`decoded` gives it back.

    What is no plain Python data becomes its ``repr``.
    """
    if isinstance(value, Mapping):
        if all(isinstance(key, str) and key != _TYPE and _writable(key) for key in value):
            return {key: encoded(item) for key, item in value.items()}
        return {_TYPE: "dict", "items": [[encoded(k), encoded(v)] for k, v in value.items()]}
    if isinstance(value, list):
        return [encoded(item) for item in value]
    if isinstance(value, tuple | set | frozenset):
        items = value if isinstance(value, tuple) else sorted(value, key=repr)
        return {_TYPE: type(value).__name__, "items": [encoded(item) for item in items]}
    if isinstance(value, float) and not math.isfinite(value):
        return {_TYPE: "float", "value": str(value)}
    if isinstance(value, bytes):
        return {_TYPE: "bytes", "value": value.hex()}
    if isinstance(value, str) and not _writable(value):
        return {_TYPE: "str", "value": value.encode("unicode_escape").decode()}
    return value if isinstance(value, str | int | float | bool | None) else repr(value)


def decoded(value: object) -> Any:  # noqa: ANN401, PLR0911 - any parameter; each type its way
    """Return the value that :func:`encoded` made JSON of."""
    if isinstance(value, list | tuple):
        return [decoded(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    kind = value.get(_TYPE)
    if kind is None:
        return {key: decoded(item) for key, item in value.items()}
    if kind == "float":
        return float(value["value"])
    if kind == "bytes":
        return bytes.fromhex(value["value"])
    if kind == "str":
        return value["value"].encode().decode("unicode_escape")
    items = decoded(value["items"])
    if kind == "dict":
        return {_key(key): item for key, item in items}
    return {"tuple": tuple, "set": set, "frozenset": frozenset}[kind](items)


def choices(entries: Iterable[Mapping[str, Any]]) -> dict[tuple[Any, Any], Any]:
    """Return the parameter sets of a counterexample, by list and position in the profile."""
    return {
        (entry["choice"][0], entry["choice"][1]): decoded(entry["keywords"]) for entry in entries
    }


def spelt(root: str, place: Iterable[str]) -> str:
    """Return a place within an answer as programs compare it; ``*`` stands for any number."""
    return root + "".join("[*]" if part == "*" else f"[{part!r}]" for part in place)


def _writable(text: str) -> bool:
    """Tell whether a file takes a text: none takes half of a surrogate pair."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _key(key: object) -> Any:  # noqa: ANN401 - any key
    return tuple(key) if isinstance(key, list) else key


@attrs.frozen
class Group:
    """Brackets around items, laid out as ruff does: on one line if they fit."""

    opening: str
    items: Sequence[Node]
    closing: str
    #: The arguments of a call may share a line of their own; the items of a literal may not.
    is_call: bool = False


@attrs.frozen
class Named:
    """A node after a keyword or a key."""

    prefix: str
    node: Node


Node = str | Group | Named


def call(function: str, *arguments: Node) -> Group:
    """Return a call."""
    return Group(f"{function}(", arguments, ")", is_call=True)


def keywords(values: Mapping[str, Any]) -> list[Node]:
    """Return keyword arguments with these values."""
    return [Named(f"{key}=", literal(value)) for key, value in values.items()]


def literal(value: object) -> Node:  # noqa: PLR0911 - any value; each type has its own way
    """Return a value as Python source."""
    if isinstance(value, Group):
        return value
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, Mapping):
        entries = [Named(f"{flat(literal(key))}: ", literal(item)) for key, item in value.items()]
        return Group("{", entries, "}")
    if isinstance(value, list):
        if (product := _product(value)) is not None:
            return product
        return Group("[", [literal(item) for item in value], "]")
    if isinstance(value, tuple):
        return Group("(", [literal(item) for item in value], ")")
    if isinstance(value, set) and value:
        return Group("{", [literal(item) for item in sorted(value, key=repr)], "}")
    if isinstance(value, frozenset) and value:
        return call("frozenset", literal(set(value)))
    return repr(value)


def flat(node: Node) -> str:
    """Return a node on one line."""
    if isinstance(node, str):
        return node
    if isinstance(node, Named):
        return node.prefix + flat(node.node)
    inner = ", ".join(flat(item) for item in node.items)
    if node.opening == "(" and len(node.items) == 1:
        inner += ","  # a tuple of one
    return node.opening + inner + node.closing


def expression(value: object) -> str:
    """Return a value on one line as Python source; what repeats itself is a product."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list):
        return _product(value) or f"[{', '.join(map(expression, value))}]"
    if isinstance(value, Mapping):
        entries = (f"{expression(key)}: {expression(item)}" for key, item in value.items())
        return "{" + ", ".join(entries) + "}"
    return flat(literal(value))


def _product(value: list[Any]) -> str | None:
    """Return a long list of one item, or a deep one of lists, as Python source; None for others."""
    levels = 0
    inner: Any = value
    while isinstance(inner, list) and len(inner) == 1:
        levels, inner = levels + 1, inner[0]
    if levels > LONG:
        made = f"range({levels}), {expression(inner)})"
        return f"functools.reduce(lambda inner, _: [inner], {made}"
    if len(value) > LONG and all(item == value[0] for item in value):
        return f"[{expression(value[0])}] * {len(value)}"
    return None


def _text(text: str) -> str:
    """Return a text as Python source; a long run of the same is a product."""
    for part, tail in ((text, ""), (text[:-1], text[-1:])):
        for size in (1, 2, 3, 5):
            count = len(part) // size
            if len(text) > LONG and part == part[:size] * count:
                run = f"{_quoted(part[:size])} * {count}"
                return f"{run} + {_quoted(tail)}" if tail else run
    if found := _RUN.search(text):
        part, before, after = found[1], text[: found.start()], text[found.end() :]
        run = f"{_quoted(part)} * {len(found[0]) // len(part)}"
        around = [_quoted(each) if each else "" for each in (before, after)]
        return " + ".join(each for each in (around[0], run, around[1]) if each)
    return _quoted(text)


def _quoted(text: str) -> str:
    quoted = repr(text)
    return f'"{quoted[1:-1]}"' if quoted[0] == "'" and '"' not in quoted else quoted


def laid_out(node: Node, indent: int = 0, before: str = "", after: str = "") -> list[str]:
    """Return a node as lines of at most :data:`WIDTH` columns, if it can be."""
    margin = " " * indent
    line = margin + before + flat(node) + after
    if len(line) <= WIDTH or isinstance(node, str):
        return [line]
    if isinstance(node, Named):
        return laid_out(node.node, indent, before + node.prefix, after)
    inner = " " * (indent + 4)
    together = inner + ", ".join(flat(item) for item in node.items)
    if node.is_call and len(together) <= WIDTH:
        body = [together]
    else:
        body = [line for item in node.items for line in laid_out(item, indent + 4, after=",")]
    return [margin + before + node.opening, *body, margin + node.closing + after]


def block(lines: Iterable[str]) -> list[str]:
    """Return lines, indented by one level."""
    return [f"    {line}" if line else "" for line in lines]
