# SPDX-License-Identifier: Apache-2.0
"""Outputs with which a request alone leads a plugin to lines that never ran.

What waits for several things in turn is reached step by step: outputs behind which the plugin went
from one line to another as never before are kept, and go on in other ways.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain

import attrs

from conformance.coverage import lines
from conformance.inputs.history import Choice
from conformance.logits.calls import PluginMisshapen, PluginRaised
from conformance.logits.requests import SWITCHING, Stock
from conformance.logits.rows import RowsAlone
from conformance.search import AT_FIRST
from conformance.watching.interruption import PluginHung, limited

#: Outputs of a request, at most, and of those how many are new to what was kept.
LONGEST, NEW = 30, 10

#: How often outputs that were kept last go on, and not any that were, and how many those are.
_LAST, _NEAR = 0.7, 16

#: How often rare tokens are among them.
_RARE = 0.3

#: How many ways to further lines are kept: the last ones, which went furthest.
MOST = 4

#: A step of the plugin is rare that fewer requests made: where one leads may be a dead end.
RARE = 4

#: A step from a line of a file to another.
Step = tuple[int, int, int]


@attrs.frozen
class Trail:
    """A request that leads to lines which never ran."""

    choice: Choice
    prompt: tuple[int, ...]
    outputs: tuple[int, ...]


def trails(rows_alone: RowsAlone, bench: Stock, tries: int, chance: random.Random) -> list[Trail]:
    """Look for outputs of requests alone that lead to lines, or ways, that have never run.

    A call that raises, or does not return, ends the search: what leads there is the last that is
    kept.

    Args:
        rows_alone: serves a request alone.
        bench: what requests are made of.
        tries: how often requests may go on without anything new.
        chance: draws what they are told.

    """
    found: list[Trail] = []
    choices = [each for each in bench.choices if each[0] in SWITCHING] or list(bench.choices)
    kept = [Trail(choice, tuple(bench.prompt), ()) for choice in dict.fromkeys(choices)]
    times: Counter[Step] = Counter()
    left = round(tries * AT_FIRST)
    with lines.stepping() as steps:
        while left > 0 and lines.anything_left():
            one = chance.choice(kept[-_NEAR:] if chance.random() < _LAST else kept)
            more = _outputs(bench, one.outputs, chance)
            serving = _Serving(rows_alone, bench, attrs.evolve(one, outputs=more), steps, times)
            known = len(times)
            with suppress(PluginRaised, PluginMisshapen, PluginHung), limited():
                serving.run()
            times.update(serving.seen)
            kept += serving.further
            found += serving.first
            if serving.broken:
                break
            left = tries if len(times) > known else left - 1
    return found[-MOST:]


@attrs.define
class _Serving:
    """One request that is served alone, and where it leads."""

    rows_alone: RowsAlone
    bench: Stock
    trail: Trail
    steps: list[Step]  #: of the plugin, as they are made
    times: Mapping[Step, int]  #: how many requests made each before
    seen: set[Step] = attrs.field(factory=set)
    further: list[Trail] = attrs.field(factory=list)  #: to steps that are rare in this search
    first: list[Trail] = attrs.field(factory=list)  #: to what never ran before
    broken: bool = True

    def run(self) -> None:
        """Serve it, and note behind which of its outputs something was new."""
        trail = self.trail
        rows = self.rows_alone(
            self.bench, trail.choice, len(trail.outputs) + 1, trail.outputs, prompt=trail.prompt
        )
        for count in range(len(trail.outputs) + 1):
            news = lines.news()
            said = attrs.evolve(trail, outputs=trail.outputs[:count])
            self.steps.clear()
            try:
                over = next(rows, None) is None
            except (PluginRaised, PluginMisshapen, PluginHung):
                self.first.append(said)
                raise
            new = set(self.steps) - self.seen
            self.seen |= new
            if any(self.times.get(step, 0) < RARE for step in new):
                self.further.append(said)
            if lines.news() > news:
                self.first.append(said)
            if over:
                break
        self.broken = False


def _outputs(bench: Stock, before: Sequence[int], chance: random.Random) -> tuple[int, ...]:
    """Return how outputs go on: with tokens at random, in a rhythm, or with what came before."""
    words = bench.words
    before = before[: LONGEST - NEW]
    few = [*words.tokens, *chain.from_iterable(words.phrases)]
    match chance.randrange(4):
        case 0:
            more = words.outputs(chance.randrange(len(words.tokens)), chance.randrange(len(few)))
        case 1:
            more = (*before[-chance.randint(1, NEW) :], chance.choice(few))
        case _:
            more = ()
    told = (*before, *more, *chance.choices(words.every if chance.random() < _RARE else few, k=NEW))
    return told[: len(before) + NEW]
