# SPDX-License-Identifier: Apache-2.0
"""Pairs of texts, or of numbers, that differ where one who remembers by too little does not look.

A cache whose key is lower case, cut, a checksum, or without marks and spaces gives one client the
answer of another.  And a dictionary that notes what is looked for in it, for what else may be in
the key.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Mapping
from types import CodeType
from typing import Any

#: Pairs of texts with one CRC-32, and with one Adler-32.
CHECKSUMS = (("plumless", "buckeroo"), ("aca", "bab"))

#: Pairs of numbers whose bytes have one CRC-32, of 32 bits each and of 64, whatever is around them.
NUMBERS = (
    ((1.0, 1.0), (1 + 0xCA2C0 / 2**20, 1 + 0x42804 / 2**20)),
    ((1.0, 1.0), (1 + 0x2C508 / 2**20, 1 + 0x80A92 / 2**20)),
)

#: Characters that texts begin, or end, with alike: keys are cut at 64, 100, 128 or 256.
LONG = 260

#: Names of fields that a class is looked through for, at the most.
NAMES = 40

#: What a key that is made of two texts may have between them.
BETWEEN = ("", " ", "|")

#: Between an ASCII mark and its wide form, which NFKC makes one.
_WIDE = 0xFEE0


def other_case(text: str) -> str:
    """Return a text in the other case."""
    return text.swapcase()


def other_digits(text: str) -> str:
    """Return a text with other digits."""
    return text.translate({ord(str(n)): str((n + 3) % 10) for n in range(10)})


def other_order(text: str) -> str:
    """Return the words of a text turned around."""
    return " ".join(reversed(text.split(" ")))


def no_spaces(text: str) -> str:
    """Return a text without its spaces."""
    return text.replace(" ", "")


def wide(text: str) -> str:
    """Return a text whose letters and marks are wide."""
    return "".join(chr(ord(c) + _WIDE) if "!" <= c <= "~" else c for c in text)


#: Ways to make a text another one, likely keys first.
OTHERS: tuple[Callable[[str], str], ...] = (other_case, other_order, other_digits, no_spaces, wide)


def long_pair(begin: str, one: str, other: str, *, ends: bool = True) -> tuple[str, str]:
    """Return two texts that are alike for long, and then have other ends, or other beginnings."""
    alike = " ".join([begin] * (1 + LONG // max(1, len(begin))))
    if ends:
        return f"{alike} {one}", f"{alike} {other}"
    return f"{one} {alike}", f"{other} {alike}"


def of_text(text: str) -> Iterator[tuple[str, str]]:
    """Yield a text with others that differ in little, and two long ones that begin alike.

    And pairs that have nothing in common but a checksum of 32 bits.
    """
    for change in OTHERS:
        if (other := change(text)) != text:
            yield text, other
    if " " in text:
        yield long_pair(text, text, text[::-1])
    yield from CHECKSUMS


def of_neighbours(one: str, other: str) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    """Yield pairs of texts beside one another that are the same when they are joined."""
    for between in BETWEEN:
        yield (f"{one}{between}{one}", other), (one, f"{one}{between}{other}")


def of_number(number: float) -> Iterator[tuple[float, float]]:
    """Yield a number with one of the same type that is another; of a truth, the other one."""
    if isinstance(number, bool):
        yield number, not number
    elif isinstance(number, float):
        yield number, number / 2 if number else 0.5
    else:
        yield from ((number, number + 1), (number, number - 1))


def names_in(cls: type[Any]) -> tuple[str, ...]:
    """Return what may be names of fields among the texts in the code of a class and its module."""
    values = [*vars(cls).values(), *vars(sys.modules[cls.__module__]).values()]
    codes = [
        code
        for value in values
        if getattr(value, "__module__", None) == cls.__module__
        and (code := getattr(getattr(value, "__func__", value), "__code__", None))
    ]
    found: dict[str, None] = {}
    while codes:
        for each in codes.pop().co_consts:
            if isinstance(each, CodeType):
                codes.append(each)
            elif isinstance(each, tuple | frozenset):
                found |= dict.fromkeys(item for item in each if isinstance(item, str))
            elif isinstance(each, str):
                found[each] = None
    return tuple(name for name in found if name.isidentifier())[:NAMES]


class Watching(dict[str, Any]):
    """A dictionary that notes which keys are asked for.

    Args:
        data: what is in it.
        keys: gets the keys.
        value: what is found where nothing is; None for nothing.

    """

    def __init__(self, data: Mapping[str, Any], keys: list[str], value: object = None) -> None:
        super().__init__(data)
        self._keys = keys
        self._value = value

    def _missing(self, key: object) -> bool:
        if isinstance(key, str) and key not in self._keys:
            self._keys.append(key)
        return self._value is not None and not super().__contains__(key)

    def __getitem__(self, key: str) -> Any:  # noqa: ANN401 - JSON values
        return self._value if self._missing(key) else super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:  # noqa: ANN401 - JSON values
        """Return a value as dictionaries do, and note the key."""
        return self._value if self._missing(key) else super().get(key, default)

    def __contains__(self, key: object) -> bool:
        return self._missing(key) or super().__contains__(key)

    def __deepcopy__(self, memo: dict[int, Any]) -> Watching:
        return Watching(copy.deepcopy(dict(self), memo), self._keys, self._value)
