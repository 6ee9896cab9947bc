# SPDX-License-Identifier: Apache-2.0
"""Histories written by hand: what chance finds too rarely, played before what it finds.

Each is the shortest known that shows a kind of fault which real plugins have had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from conformance.inputs.history import SENT, Choice, History, Request, Step
from conformance.logits.classics import companies, interruptions, resumptions, successions
from conformance.logits.requests import Stock


def classics(name: str, bench: Stock) -> list[History]:
    """Return the classics of a stratum, for the first of the parameter sets that switch on."""
    if name == "plain":
        return list(companies(bench))
    on, other = bench.pair
    written = _WRITTEN.get(name)
    if written is None:
        return []
    prompt = bench.tokens[:2]
    found = [history for choice in on for history in written(choice, other or choice, prompt)]
    more = _MORE.get(name)
    return [*found, *more(bench)] if more else found


def _replaced(on: Choice, off: Choice, prompt: tuple[int, ...]) -> Iterator[History]:
    """One that did not opt in takes over from one that did, and the other way round."""
    for first, second in ((on, off), (off, on)):
        yield (
            Step(join=(Request("A", prompt, first), Request("B", prompt, off))),
            Step(),
            Step(finish=("A",), join=(Request("C", prompt, second),)),
            Step(),
        )


def _moved(on: Choice, off: Choice, prompt: tuple[int, ...]) -> Iterator[History]:
    """Onto the row of a finished request, and away from a row that is used again."""
    for first, second in ((on, off), (off, on)):
        yield (
            Step(join=(Request("A", prompt, first), Request("B", prompt, second))),
            Step(),
            Step(finish=("A",)),
            Step(),
            Step(join=(Request("C", prompt, off),)),
        )


def _removed(on: Choice, off: Choice, prompt: tuple[int, ...]) -> Iterator[History]:
    """The last row goes, is missing for a step, and belongs to somebody else after that."""
    yield (
        Step(join=(Request("A", prompt, off), Request("B", prompt, on))),
        Step(),
        Step(finish=("B",)),
        Step(),
        Step(join=(Request("C", prompt, off),)),
    )


def _swapped(on: Choice, off: Choice, prompt: tuple[int, ...]) -> Iterator[History]:
    """A prefill that is not finished goes behind a decode, one of them without state."""
    for first, second in ((on, off), (off, on)):
        yield (
            Step(
                join=(Request("A", prompt, first), Request("B", prompt[:1], second)),
                chunk=(("A", 1),),
            ),
            Step(),
            Step(),
        )


def _resumed(on: Choice, off: Choice, prompt: tuple[int, ...]) -> Iterator[History]:
    """Preempted twice, with enough tokens before, between and after to count by."""
    first, second = Request("A", prompt, on), Request("B", prompt, off)
    yield (
        Step(join=(first, second)),
        Step(repeat=3),
        Step(pause=("A",)),
        Step(repeat=3),
        Step(pause=("A",)),
        Step(repeat=3),
    )
    # Before its first token, which comes late.
    yield Step(join=(first, second)), Step(pause=("A",)), Step(repeat=4)
    # Its keys and values are in another place each time, and cannot be loaded from there.
    yield (
        Step(join=(first, second), lost=("A",)),
        Step(repeat=3),
        Step(pause=("A",)),
        Step(lost=("A",)),
        Step(repeat=3),
    )


def _unknown(on: Choice, off: Choice, prompt: tuple[int, ...]) -> Iterator[History]:
    """Tokens that nobody knows, and of which most are dropped once somebody needs outputs."""
    yield (
        Step(join=(Request("A", prompt, on), Request("B", prompt, off))),
        Step(repeat=3),
        Step(join=(Request("C", prompt, SENT),)),
        Step(repeat=3),
    )


def _skipped(on: Choice, off: Choice, prompt: tuple[int, ...]) -> Iterator[History]:
    """What random requests leave while all are greedy, and a random one that comes after."""
    greedy = Request("A", prompt, off, greedy=True)
    last = Request("E", prompt, off)
    yield (
        Step(join=(Request("B", prompt, on), greedy)),
        Step(finish=("B",)),
        Step(),
        Step(finish=("A",), join=(last,)),
    )
    yield (
        Step(join=(greedy, Request("B", prompt, on), Request("C", prompt, on))),
        Step(finish=("B", "C")),
        Step(join=(Request("D", prompt, off, greedy=True),)),
        Step(finish=("D",)),
        Step(finish=("A",), join=(last,)),
    )
    # Nobody is left, and in the step after that somebody is.
    yield (
        Step(join=(Request("B", prompt, on), Request("C", prompt, on))),
        Step(finish=("B", "C")),
        Step(join=(last,)),
    )


_WRITTEN = {
    "replaced": _replaced,
    "one-way": _moved,
    "removed": _removed,
    "swap": _swapped,
    "chunk": _swapped,
    "order": _moved,
    "resume": _resumed,
    "skipped": _skipped,
    "entry-point": _unknown,
}

#: Histories of which there is one for each of several parameter sets.
_MORE: Mapping[str, Callable[[Stock], Iterable[History]]] = {
    "replaced": successions,
    "resume": interruptions,
    "chunk": resumptions,
}
