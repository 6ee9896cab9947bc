# SPDX-License-Identifier: Apache-2.0
"""Histories written by hand: what chance finds too rarely, played before what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from conformance.inputs.history import Choice, History, Request, Step
from conformance.logits.classics import companies, interruptions, resumptions, successions
from conformance.logits.configuration import MAX_MODEL_LEN
from conformance.logits.requests import Stock


def classics(name: str, bench: Stock) -> Iterable[History]:
    """Return the classics of a stratum, of the parameter sets that switch on."""
    written = _WRITTEN.get(name)
    return written(bench) if written and _switching(bench) else ()


def _switching(bench: Stock) -> list[Choice]:
    """Return the parameter sets that switch on."""
    return [choice for choice in bench.choices if choice[0] == "on"]


def _other(bench: Stock) -> Choice:
    """Return the first parameter set that does not, or any where all do."""
    off = (choice for choice in bench.choices if choice[0] == "off")
    return next(off, _switching(bench)[0])


def _recycled(bench: Stock) -> Iterable[History]:
    """Requests take over the slots of others, one of which did not opt in."""
    on, other, prompt = _switching(bench), _other(bench), bench.tokens[:2]
    yield (
        Step(join=(Request("A", prompt, on[0]), Request("B", prompt, on[-1]))),
        Step(repeat=2),
        Step(finish=("A",), join=(Request("C", prompt, other),)),
        Step(repeat=3),
        Step(finish=("B", "C"), join=(Request("D", prompt, on[0]),)),
        Step(repeat=3),
    )
    yield from successions(bench)
    # One that was as long as any: what is behind the newest token is not all zero then.
    tokens = (*range(bench.vocabulary), *bench.words.every)[-(MAX_MODEL_LEN - 1) :]
    for choice in dict.fromkeys((on[0], on[-1])):
        yield (
            Step(join=(Request("A", tokens, on[-1]),)),
            Step(finish=("A",), join=(Request("B", prompt[:1], choice),)),
            Step(repeat=3),
        )


def _resume(bench: Stock) -> Iterable[History]:
    """One of two requests is preempted, and comes back, once and behind each output."""
    on, prompt = _switching(bench), bench.tokens[:2]
    yield (
        Step(join=(Request("A", prompt, on[0]), Request("B", prompt, on[-1]))),
        Step(repeat=3),
        Step(pause=("A",)),
        Step(),
        Step(repeat=3),
    )
    yield from interruptions(bench)


def _skipped(bench: Stock) -> Iterable[History]:
    """One request is not scheduled for some steps."""
    on, other, prompt = _switching(bench), _other(bench), bench.tokens[:2]
    yield (
        Step(join=(Request("A", prompt, on[0]), Request("B", prompt, other))),
        Step(repeat=2),
        Step(rest=("A",), repeat=3),
        Step(repeat=3),
    )
    # One goes on while the other stays where it is, early in its answer.
    yield (
        Step(join=(Request("A", prompt, on[-1]), Request("B", prompt, on[0]))),
        Step(),
        Step(rest=("A",), repeat=2),
        Step(repeat=3),
    )


def _drafts(bench: Stock) -> Iterable[History]:
    """Drafts of three requests are verified, step after step."""
    on, tokens = _switching(bench), bench.tokens
    # Which drafts are accepted depends on the prompt: of two, it is each one in turn.
    odd, even = (Request(name, tuple(tokens[-n:]), on[-1]) for n, name in enumerate("AB", 1))
    yield (
        Step(join=(odd, even, Request("C", tokens[:2], on[0]))),
        *(Step(draft=(("A", 2), ("B", 2), ("C", 1))) for _ in range(5)),
    )


_WRITTEN: Mapping[str, Callable[[Stock], Iterable[History]]] = {
    "plain": companies,
    "recycled": _recycled,
    "resume": _resume,
    "chunk": resumptions,
    "skipped": _skipped,
    "drafts": _drafts,
}
