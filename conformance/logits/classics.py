# SPDX-License-Identifier: Apache-2.0
"""Histories of which there is one for each of several parameter sets, for both generations.

One request after the other in the same row or slot, or beside it, each told something else.
What a request leaves there shows when its successor is told less, or has a shorter prompt, and
lives on after what it was told has come to its end.  What all requests of a batch share shows when
another joins that is told something else, or was there before.

A request that is preempted behind each of its outputs, one after the other.
What a plugin knows of a request may be lost whenever the request leaves the batch, and show only
where that happens late: behind a token that it waits for, or behind the last one of a budget.

A request that comes back right behind what is waited for, with a prefill in parts.
Its outputs are part of the prefill then, so a plugin already acts in steps that sample nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, combinations, permutations, repeat

from conformance.inputs import edits
from conformance.inputs.history import Choice, History, Request, Step
from conformance.logits.configuration import ROOM
from conformance.logits.neighbours import MOST
from conformance.logits.played import ROWS, Kind, Played
from conformance.logits.requests import Stock

#: Parameter sets that follow each other, each with each.
MOST_CHOICES = 4

#: Tokens of the longer prompt.
LONG_PROMPT = 7


def successions(bench: Stock) -> Iterator[History]:
    """Yield histories in which requests with different parameters follow each other twice."""
    choices = _choices(bench.choices)
    long = (bench.tokens * LONG_PROMPT)[:LONG_PROMPT]
    for first, second in [*combinations(choices, 2)] or [(choice, choice) for choice in choices]:
        yield (
            Step(join=(Request("A", long, first),)),
            Step(),
            Step(finish=("A",), join=(Request("B", long[:1], second),)),
            Step(repeat=bench.life),
            Step(finish=("B",), join=(Request("C", long[:2], first),)),
            Step(repeat=bench.life),
        )


def companies(bench: Stock) -> Iterator[History]:
    """Yield histories in which a request joins one with different parameters, in either order."""
    prompt = bench.tokens[:2]
    near = [choice for choice in bench.choices if choice[0] == "near"]
    twins = near[-2:] if len(near) > MOST else []  # they come last
    for first, second in (*permutations(_choices(bench.choices), 2), *permutations(twins, 2)):
        yield (
            Step(join=(Request("A", prompt, first),)),
            Step(repeat=2),
            Step(join=(Request("B", prompt[:1], second),)),
            Step(repeat=bench.life),
        )


def interruptions(bench: Stock) -> Iterator[History]:
    """Yield histories with one that opted in, and says in its outputs all that is waited for."""
    on, other = bench.pair
    for choice in on:
        for script in bench.words.pieces(ROOM):
            yield _interrupted(bench, choice, other or choice, script)


def resumptions(bench: Stock) -> Iterator[History]:
    """Yield histories with one that comes back in parts, behind each phrase that is waited for."""
    on, other = bench.pair
    prompt = bench.tokens[:2]
    for choice in on:
        for phrase in bench.words.phrases or (bench.tokens,):
            first = Request("A", prompt, choice, outputs=(*phrase, *bench.tokens))
            yield (
                Step(join=(first, Request("B", prompt, other or choice))),
                *((Step(repeat=len(phrase) - 1),) if len(phrase) > 1 else ()),
                Step(pause=("A",)),
                Step(chunk=(("A", len(prompt)),)),
                Step(repeat=bench.life),
            )


def minds_resuming(drawn: History, played: Played, resumed: Callable[[History], Played]) -> bool:
    """Tell whether a request that comes back goes wrong as well if its prefill is not in parts.

    Then parts are not to blame, and the stratum about coming back says what is.

    Args:
        drawn: a history.
        played: what came of it.
        resumed: plays a history of the stratum about coming back.

    """
    kinds = {trouble.kind for trouble in played.faults}
    if kinds.isdisjoint((*ROWS, Kind.RAISED)) or not any(step.pause for step in drawn):
        return False
    return bool(resumed(edits.without(drawn, "chunk")).faults)


def _choices(choices: Sequence[Choice]) -> list[Choice]:
    """Return parameter sets that switch on: half of them the harness's own, if there are any."""
    on, near = (
        list(dict.fromkeys(choice for choice in choices if choice[0] == kind))
        for kind in ("on", "near")
    )
    near = near[: MOST_CHOICES // 2]
    return [*on[: MOST_CHOICES - len(near)], *near]


def _interrupted(bench: Stock, on: Choice, off: Choice, script: tuple[int, ...]) -> History:
    """Return a history in which each step with a token is one in which the request comes back."""
    prompt = tuple(bench.prompt)
    wanted = max(len(script), bench.life)
    # The other one gets a token in every step.
    beside = bench.served(2 * wanted, off, prompt=prompt)
    steps = min(bench.served(wanted, on, prompt=prompt), (beside + 1) // 2)
    first = Request("A", prompt, on, outputs=script)
    # A scheduler preempts requests to make room for another one, which stays.
    second = Request("B", prompt, off)
    again = chain.from_iterable(repeat((Step(pause=("A",)), Step()), steps - 1))
    return (Step(join=(first, second)), *again)
