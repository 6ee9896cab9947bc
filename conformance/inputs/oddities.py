# SPDX-License-Identifier: Apache-2.0
"""What a client, or a model, may write where something ordinary is expected.

Small values come first, so that the first that goes wrong is one that a person reads at a glance.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

import attrs

Value = TypeVar("Value")

#: Lists and objects within one another, not yet so deep that reading the JSON fails.
DEPTH = 600

#: Letters that are two or more in lower case, in capitals or folded: who looks for places in
#: another case, and uses them in the text, is behind or ahead of it from there on.
CASED = "\u0130\u00df\ufb01"


def _nested(wrap: Callable[[Any], Any]) -> object:
    value: Any = "x"
    for _ in range(DEPTH):
        value = wrap(value)
    return value


DEEP_LIST: Any = _nested(lambda inner: [inner])
DEEP_OBJECT: Any = _nested(lambda inner: {"x": inner})

#: Values of every type of JSON, one of them at the place of another.
TYPES: tuple[Any, ...] = (
    None, True, False, 0, -1, 0.5, "", " ", "x", [], {}, [None], [[]], {"": None},
    "\ud800", "\x00", "\u00e9\U0001f600\u202e", DEEP_LIST, DEEP_OBJECT,
)  # fmt: skip

#: Numbers that a computation, an index, a loop or an allocation may not expect.
NUMBERS: tuple[float, ...] = (
    1, 2, -2, -0.5, 1.5, 1e-9, sys.float_info.min / 2**52, math.nan, math.inf, -math.inf,
    1_000, -1_000, 10**6, 10**9, -(10**9), 2**31 - 1, 2**31, -(2**31) - 1, 1e12, 2**53 + 1, 1e308,
    2**63 - 1, 2**63, -(2**63), 2**64, 10**30,
)  # fmt: skip

#: What an entry of a list may be.
_ITEMS: tuple[Any, ...] = (None, True, 0, -1, math.nan, 2**63, "", "\ud800", [], {})

#: So many characters of a kind make a pattern that backtracks over them try for ever.
RUN = 40

#: Texts of which a run is made; the letters and marks of the ordinary value come first.
_RUNS = ("a", "1", " ", "-", ".", "\n", "a ", "a,", "a.b@", "/", '"', "<", "(", "\\")

#: What ends a run, so that what matched it so far does not match in the end.
_ENDS = ("!", "\x00")

#: A pattern that a client may name, and a text over which it backtracks for ever.
PATTERN = "(a+)+$"
MATCHED = "a" * RUN + "!"

#: Characters of a text, or entries of a list, small ones first; the largest make a megabyte.
SIZES = (2_000, 16_000, 128_000, 1_000_000)

#: Texts of which a long one is made: words, one or many, blanks, and what patterns look for the end
#: of.
_LONG = ("a", " ", "(", "a ", "a.", "<")
_ENTRY = 10  #: characters that one entry of a list takes, roughly


def instead_of(value: object) -> Iterator[Any]:
    """Yield what may stand in the place of a value: of other types first, then of its own."""
    yield from TYPES
    if isinstance(value, int | float):
        yield from (float(value), str(value), [value], -value)
        yield from NUMBERS
    elif isinstance(value, str):
        yield from (value.upper(), f"{value}\x00", f"{value}\ud800", "nan", "9" * 5_000)
        yield from runs(value)
    elif isinstance(value, list) and value:
        for item in _ITEMS:
            yield from ([item], [item] * len(value), [*value, item])
    elif isinstance(value, dict):
        yield {**value, "": None}


def spread(values: list[Value], count: int) -> list[Value]:
    """Return some values from all over a list."""
    step = max(1, len(values) // count)
    return values[::step][:count]


def runs(text: str = "") -> Iterator[str]:
    """Yield texts over which patterns backtrack, some of them behind an ordinary text."""
    letters = dict.fromkeys((*(c for c in text[:RUN] if not c.isalnum()), *_RUNS))
    for letter in letters:
        run = letter * (RUN // len(letter))
        yield run
        for end in _ENDS[: 1 if len(letter) > 1 else None]:
            yield run + end
        if text:
            yield f"{text}{run}!"


@attrs.frozen
class Form:
    """A value that can be made as long as one likes."""

    name: str  #: as messages call it, with the length before it
    make: Callable[[int], Any]  #: of a number of characters, roughly


def forms(value: object) -> Iterator[Form]:
    """Yield ways in which a value becomes long."""
    if isinstance(value, str):
        yield from texts(value)
    elif isinstance(value, list):
        items = value or ["x"]
        yield Form("of a list of the same", lambda size: items * (size // _ENTRY // len(items) + 1))
        if isinstance(items[0], str):
            yield Form("of a list of texts", lambda size: _distinct(size).split(" "))
        elif isinstance(items[0], int | float):
            yield Form("of a list of numbers", lambda size: list(range(size // _ENTRY)))
    elif isinstance(value, dict):
        yield Form("of other keys", lambda size: {**value, **dict.fromkeys(_words(size))})


def texts(text: str) -> Iterator[Form]:
    """Yield ways in which a text becomes long."""
    yield Form("of the same text", lambda size: (f"{text} " * (size // (len(text) + 1) + 1))[:size])
    yield Form("of other words", _distinct)
    for letter in _LONG:
        yield Form(f"of {letter!r} and an exclamation mark", partial(_run, letter))


def _run(letter: str, size: int) -> str:
    return letter * (size // len(letter)) + "!"


def _words(size: int) -> list[str]:
    return [f"w{number:07}" for number in range(size // (_ENTRY - 1))]


def _distinct(size: int) -> str:
    return " ".join(_words(size))
