# SPDX-License-Identifier: Apache-2.0
"""Looking for the smallest prompt that breaks a rule."""

from __future__ import annotations

import time
from collections.abc import Callable

import attrs

from conformance.findings import Finding, failed, inapplicable, passed, unjudged
from conformance.multimodal.processor.bench import Bench
from conformance.multimodal.processor.prompts import Prompt, Shape, smaller, strategy, unlike
from conformance.search import PROMPTS, smallest
from conformance.settings import Budget
from conformance.verdict import Cause

#: Seconds for making a prompt small that breaks a rule.
SHRINKING = 15.0


@attrs.frozen
class Trouble:
    """How a prompt breaks a rule."""

    message: str
    item: int | None = None  #: which item, in the order of the prompt
    expected: str = ""
    actual: str = ""


#: Says how a prompt breaks a rule, or returns None.
Judge = Callable[[Bench, Prompt], Trouble | None]


@attrs.frozen
class Broken:
    """A prompt, and how it breaks a rule."""

    prompt: Prompt
    trouble: Trouble


def search(bench: Bench, budget: Budget, judge: Judge, shape: Shape) -> Finding:
    """Judge prompts of a shape, and make the first that breaks the rule small."""
    if not bench.stock.items:
        return unjudged(Cause("no item", "no item is known that the processor takes"))
    if (
        shape.least > 1
        and sum(bench.limits.get(name, 0) for name in bench.stock.items) < shape.least
    ):
        return inapplicable("the processor takes one item in a prompt, and no more")

    acted = 0

    def look(prompt: Prompt) -> Broken | None:
        nonlocal acted
        trouble = judge(bench, prompt)
        acted += bench.processed(prompt).good
        return Broken(prompt, trouble) if trouble else None

    count, best = smallest(
        strategy(bench.stock, bench.limits, shape),
        look,
        PROMPTS.times(shape.share),
        budget=budget,
        seed=bench.seed,
        first=(*unlike(bench.stock, bench.limits), *bench.mixed),
    )
    if best is None:
        return passed(count, acted)
    best = _smallest(bench, judge, best, shape)
    return failed(best.trouble.message, count, case={"broken": best})


def _smallest(bench: Bench, judge: Judge, broken: Broken, shape: Shape) -> Broken:
    """Make a prompt smaller for as long as it breaks the rule.

    Hypothesis would too, in many times as many examples, each of which may be a model's work.
    """
    until = time.monotonic() + SHRINKING
    tried: set[Prompt] = {broken.prompt}
    again = True
    while again and time.monotonic() < until:
        again = False
        for prompt in smaller(broken.prompt, bench.stock):
            if prompt in tried or len(prompt.items) < shape.least:
                continue
            tried.add(prompt)
            if trouble := judge(bench, prompt):
                broken, again = Broken(prompt, trouble), True
                break
            if time.monotonic() > until:
                break
    return broken
