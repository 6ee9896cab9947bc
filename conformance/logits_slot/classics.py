# SPDX-License-Identifier: Apache-2.0
"""Histories written by hand: what chance finds too rarely, played before what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from conformance.inputs.history import Choice, History, Request, Step
from conformance.logits.classics import companies, interruptions, resumptions, successions
from conformance.logits.configuration import MAX_MODEL_LEN
from conformance.logits.requests import Stock


def classics(name: str, bench: Stock) -> Iterable[History]:
    """Return the classics of a stratum, of the parameter sets that switch on."""
    on = [choice for choice in bench.choices if choice[0] == "on"]
    off = [choice for choice in bench.choices if choice[0] == "off"]
    written = _WRITTEN.get(name)
    return written(bench, on, (off or on)[0]) if written and on else ()


def _plain(bench: Stock, on: Sequence[Choice], other: Choice) -> Iterable[History]:  # noqa: ARG001 - as the others
    """One request joins another that is told something else."""
    return companies(bench)


def _recycled(bench: Stock, on: Sequence[Choice], other: Choice) -> Iterable[History]:
    """Requests take over the slots of others, one of which did not opt in."""
    prompt = bench.tokens[:2]
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


def _resume(bench: Stock, on: Sequence[Choice], other: Choice) -> Iterable[History]:  # noqa: ARG001 - as the others
    """One of two requests is preempted, and comes back, once and behind each output."""
    prompt = bench.tokens[:2]
    yield (
        Step(join=(Request("A", prompt, on[0]), Request("B", prompt, on[-1]))),
        Step(repeat=3),
        Step(pause=("A",)),
        Step(),
        Step(repeat=3),
    )
    yield from interruptions(bench)


def _skipped(bench: Stock, on: Sequence[Choice], other: Choice) -> Iterable[History]:
    """One request is not scheduled for some steps."""
    prompt = bench.tokens[:2]
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


def _drafts(bench: Stock, on: Sequence[Choice], other: Choice) -> Iterable[History]:  # noqa: ARG001 - as the others
    """Drafts of three requests are verified, step after step."""
    tokens = bench.tokens
    # Which drafts are accepted depends on the prompt: of two, it is each one in turn.
    odd, even = (Request(name, tuple(tokens[-n:]), on[-1]) for n, name in enumerate("AB", 1))
    yield (
        Step(join=(odd, even, Request("C", tokens[:2], on[0]))),
        *(Step(draft=(("A", 2), ("B", 2), ("C", 1))) for _ in range(5)),
    )


def _chunk(bench: Stock, on: Sequence[Choice], other: Choice) -> Iterable[History]:  # noqa: ARG001 - as the others
    """One request comes back in parts, behind what is waited for."""
    return resumptions(bench)


_WRITTEN: Mapping[str, Callable[[Stock, Sequence[Choice], Choice], Iterable[History]]] = {
    "plain": _plain,
    "recycled": _recycled,
    "resume": _resume,
    "chunk": _chunk,
    "skipped": _skipped,
    "drafts": _drafts,
}
