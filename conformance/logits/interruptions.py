# SPDX-License-Identifier: Apache-2.0
"""Histories in which a request is preempted behind each of its outputs, one after the other.

What a plugin knows of a request may be lost whenever the request leaves the batch, and show only
where that happens late: behind a token that it waits for, or behind the last one of a budget.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, repeat

from conformance.inputs.history import Choice, History, Request, Step
from conformance.logits.configuration import ROOM
from conformance.logits.requests import Stock


def interruptions(bench: Stock) -> Iterator[History]:
    """Yield histories with one that opted in, and says in its outputs all that is waited for."""
    on, other = bench.pair
    for choice in on:
        for script in bench.words.pieces(ROOM):
            yield _interrupted(bench, choice, other or choice, script)


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
