# SPDX-License-Identifier: Apache-2.0
"""Sizes at which the number of placeholders changes, found by the processor's own counts.

Where counts and rows are rounded in different ways, they differ at such a size, or just beside it,
and nowhere else. One side of an item is changed at a time, over sizes that grow, and what lies
between two of them with different counts is halved until the step is found. Beyond the last step
lies one that may no longer change anything: where the steps are equally far apart, the processor
stops there, and what stops may stop too late.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping

import attrs

from conformance.multimodal.processor.bench import Bench
from conformance.multimodal.processor.forms import RATE
from conformance.multimodal.processor.prompts import Prompt, alone
from conformance.multimodal.processor.stock import Item
from conformance.settings import Budget

#: Pixels of a side, samples of a sound, and frames of a film, between which steps are looked for.
SIDES = (1, 8, 20, 40, 80, 120, 200, 330, 560, 900)
SAMPLES = (1, 160, 700, 2_000, 5_000, 9_000, 17_000, 33_000)
FRAMES = (1, 2, 3, 4, 6, 9, 13)

#: The side, in pixels, of which nothing is changed; that of films is small.
OTHER, SMALL = 61, 28

#: Seconds of work for looking, which a busy machine does not use up, and steps of one side that are
#: looked at, at most.
SECONDS = {Budget.QUICK: 0.5, Budget.STANDARD: 2.5, Budget.DEEP: 20.0}
STEPS = {Budget.QUICK: 3, Budget.STANDARD: 12, Budget.DEEP: 40}

#: What is changed of an item of each modality: the values between which, and how one is written.
_SIDES: Mapping[str, tuple[tuple[tuple[int, ...], Callable[[int], str]], ...]] = {
    "image": (
        (SIDES, lambda size: f"{size}x{OTHER}"),
        (SIDES, lambda size: f"{OTHER}x{size}"),
    ),
    "audio": ((SAMPLES, lambda count: f"{count / RATE:.7f}s"),),
    "video": (
        (FRAMES, lambda count: f"{SMALL}x{SMALL}x{count}"),
        (SIDES[:6], lambda size: f"{size}x{SMALL}x2"),
    ),
}


def items_at_steps(bench: Bench, budget: Budget) -> tuple[Prompt, ...]:
    """Return prompts with an item below, at or above each step, as far as there is time.

    All options together have as much time as none.
    """
    found: dict[Prompt, None] = {}
    count = len(bench.stock.options)
    for options in range(count):
        seconds = SECONDS[budget] / (count - 1 if options else 1)
        found |= dict.fromkeys(_at_steps(bench, budget, options, time.process_time() + seconds))
    return tuple(found)


def _at_steps(bench: Bench, budget: Budget, options: int, until: float) -> Iterator[Prompt]:
    for modality in bench.stock.items:
        for values, written in _SIDES.get(modality, ()):
            side = _Side(bench, modality, written, options)
            steps = list(side.steps(values, STEPS[budget], until))
            beyond = _beyond(steps)
            for step in (*steps, *beyond):
                for value in (step - 1, step, step + 1):
                    if value > 0 and side.count(value) is not None:
                        yield side.prompt(value)


@attrs.frozen(eq=False)
class _Side:
    """One side of the items of a modality."""

    bench: Bench
    modality: str
    written: Callable[[int], str]
    options: int

    def prompt(self, value: int) -> Prompt:
        """Return a prompt with the item that has this value of the side."""
        item = self.bench.as_taken(Item(self.modality, self.written(value)))
        return alone(item, self.options)

    def count(self, value: int) -> int | None:
        """Return the number of placeholders of an item, None where it is not taken."""
        prompt = self.prompt(value)
        return self.bench.counts(prompt)[0] if self.bench.processed(prompt).good else None

    def steps(self, values: tuple[int, ...], most: int, until: float) -> Iterator[int]:
        """Yield values with another count than the one below, of each range the last one in turn.

        Sizes beyond what the processor scales down may have many, and those below them few.
        """
        ranges = list(itertools.pairwise(values))[::-1]
        while ranges:
            found = [(low, self._last(low, high, until)) for low, high in ranges]
            ranges = [(low, step - 1) for low, step in found if step is not None]
            for _, high in ranges[:most]:
                yield high + 1
            most -= len(ranges)
            ranges = ranges if most > 0 else []

    def _last(self, low: int, high: int, until: float) -> int | None:
        """Return the last step between two values, or None."""
        if high <= low or time.process_time() > until:
            return None
        below, above = self.count(low), self.count(high)
        if below is None or above is None or below == above:
            return None
        while high - low > 1 and time.process_time() < until:
            middle = (low + high) // 2
            if self.count(middle) == above:
                high = middle
            else:
                low = middle
        return high if high - low == 1 else None


def _beyond(steps: list[int]) -> Iterator[int]:
    """Yield where the next step would be, if there were one."""
    steps = sorted(steps)
    if len(steps) > 1:
        yield 2 * steps[-1] - steps[-2]
