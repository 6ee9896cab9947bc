# SPDX-License-Identifier: Apache-2.0
"""Comparing what plugins answer, and writing it into messages."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

from conformance.inputs.places import subscripts

if TYPE_CHECKING:
    import torch  # who only writes a report, or starts a run, does not wait for it

#: Floats may differ by this much: torch adds up in another order on another number of threads.
RELATIVE, ABSOLUTE = 1e-4, 1e-5

#: Rows of a model may differ by this share of the largest number in them: torch adds up in another
#: order in another batch.
OF_LARGEST = 1e-3

#: Characters of a message that a sentence can hold.
LINE = 200

#: Characters of a value in one.
SHOWN = 80

#: A place in an answer; an index into a list is written as ``*``.
Place = tuple[str, ...]


def same_rows(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Tell whether two tensors are the same but for how torch adds up."""
    if one.shape != other.shape:
        return False
    if one.equal(other):
        return True
    scale = max(float(one.abs().max()), float(other.abs().max()), 1e-6) if one.numel() else 1.0
    return bool(one.allclose(other, rtol=0.0, atol=OF_LARGEST * scale, equal_nan=True))


def first_line(text: str) -> str:
    """Return the first line of a message, of a length that a sentence can hold."""
    line = _printable(text.strip().partition("\n")[0])
    return line if len(line) <= LINE else line[: LINE - 3] + "..."


def shortened(value: object, length: int = SHOWN) -> str:
    """Return a value as JSON, cut to a length."""
    return cut(_json(value), length)


def cut(text: str, length: int, start: int = 0) -> str:
    """Return a part of a text that has no more than so many characters, with what marks a cut."""
    head = "... " if start else ""
    text = head + text[start:]
    return text if len(text) <= length else text[: max(0, length - 4)] + " ..."


def cut_apart(texts: Sequence[str], length: int) -> list[str]:
    """Return texts cut to a length, in which those that differ can be told apart."""
    found = [cut(text, length) for text in texts]
    for number, text in enumerate(texts):
        for other in texts[:number]:
            if cut(text, length) == cut(other, length) and text != other:
                start = max(0, in_common(text, other) - length // 2)
                found[number] = cut(text, length, start)
                found[texts.index(other)] = cut(other, length, start)
    return found


def in_common(one: str, other: str) -> int:
    """Return how many characters two texts begin with that are the same."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))


def _json(value: object) -> str:
    return _printable(json.dumps(value, default=repr, ensure_ascii=False))


def _printable(text: str) -> str:
    """Return a text without halves of surrogate pairs, which no file and no terminal takes."""
    return text.encode("utf-8", "backslashreplace").decode()


def plain(value: object) -> Any:  # noqa: ANN401 - whatever a plugin answers
    """Return an answer that never went through JSON in a form that can be compared.

    Pydantic models and attrs or data classes become dictionaries, tensors and arrays lists.
    """
    if isinstance(value, Enum):  # of which JSON has the value
        return plain(value.value)
    if hasattr(value, "detach"):  # a tensor
        value = value.detach().cpu()
    if hasattr(value, "tolist"):
        value = value.tolist()
    elif hasattr(value, "model_dump"):
        value = value.model_dump()
    elif hasattr(value, "__dict__") and not isinstance(value, type | dict | list):
        value = vars(value)
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return value


def difference(
    got: object,
    wanted: object,
    hidden: frozenset[Place] = frozenset(),
    rtol: float = RELATIVE,
) -> str | None:
    """Say in what two answers differ, or return None.

    Args:
        got: one answer's data.
        wanted: the other's.
        hidden: places that differ from one time to the next anyway.
        rtol: how far floats may be apart, in proportion.

    """
    for place, one, other in _pairs(got, wanted, ()):
        if _generic(place) not in hidden and not _equal(one, other, rtol):
            where = subscripts(place)
            at = f" at {where}" if where else ""
            told, expected = cut_apart([_json(one), _json(other)], SHOWN)
            return f"{told} instead of {expected}{at}"
    return None


def told_places(places: Iterable[Place], whole: str) -> str:
    """Return the first few places of answers for a sentence; one is all of the answer."""
    every = ("".join(f"[{part}]" for part in place) or whole for place in sorted(places)[:3])
    return ", ".join(every)


def unsteady(answers: Iterable[Any]) -> frozenset[Place]:
    """Return the places in which any of several answers differs from the first."""
    first, *others = answers
    return frozenset(
        _generic(place)
        for other in others
        for place, one, another in _pairs(first, other, ())
        if not _equal(one, another)
    )


def reordered(answers: Iterable[Any]) -> bool:
    """Tell whether several answers have the same values, and not all of them in one order."""
    first, *others = (_values(answer) for answer in answers)
    return all(sorted(other) == sorted(first) for other in others) and any(
        other != first for other in others
    )


def _values(answer: object) -> list[str]:
    """Return the values in an answer as texts, with as many digits as chance leaves alone."""
    if isinstance(answer, dict):
        return [text for value in answer.values() for text in _values(value)]
    if isinstance(answer, list):
        return [text for value in answer for text in _values(value)]
    return [f"{answer:.3g}" if isinstance(answer, float) else repr(answer)]


_Located = tuple[tuple[str | int, ...], Any, Any]


def _pairs(got: object, wanted: object, place: tuple[str | int, ...]) -> Iterator[_Located]:
    """Yield the leaves of two answers in pairs; where they have another shape, the shapes."""
    if isinstance(got, dict) and isinstance(wanted, dict) and got.keys() == wanted.keys():
        for key in wanted:
            yield from _pairs(got[key], wanted[key], (*place, key))
    elif isinstance(got, list) and isinstance(wanted, list) and len(got) == len(wanted):
        for index, (one, other) in enumerate(zip(got, wanted, strict=True)):
            yield from _pairs(one, other, (*place, index))
    else:
        yield place, got, wanted


def _generic(place: tuple[str | int, ...]) -> Place:
    return tuple("*" if isinstance(part, int) else part for part in place)


def _equal(one: object, other: object, rtol: float = RELATIVE) -> bool:
    if isinstance(one, float) and isinstance(other, int | float):
        if math.isnan(one):
            return math.isnan(other)
        return math.isclose(one, other, rel_tol=rtol, abs_tol=min(rtol, ABSOLUTE))
    return type(one) is type(other) and bool(one == other)


def letter(index: int) -> str:
    """Return the letter that messages call one of several by: A is the first, A2 follows Z."""
    round_, place = divmod(index, 26)
    return f"{chr(ord('A') + place)}{round_ + 1 if round_ else ''}"
