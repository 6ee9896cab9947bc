# SPDX-License-Identifier: Apache-2.0
"""Drawing examples with Hypothesis, the same ones for each seed, and looking for the smallest.

What each search may cost is in the table below.
"""

from __future__ import annotations

import gc
import math
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import hypothesis
from hypothesis import HealthCheck, Phase, strategies
from hypothesis.errors import HypothesisException

from conformance.settings import Budget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hypothesis.strategies import SearchStrategy

_Example = TypeVar("_Example")
_Shown = TypeVar("_Shown")

#: Seconds of any kind for one of the processor's, where those count.
WAITING = 4


@attrs.frozen
class Effort:
    """How much a search may do, with the quick budget, the standard one and the deep one."""

    examples: tuple[int, int, int]  #: that are drawn
    #: Seconds after which as many as those of the quick budget must do.
    seconds: tuple[float, float, float] = (math.inf, math.inf, math.inf)
    #: Whether these are the processor's; a search that waits takes `WAITING` times as many.
    worked: bool = False
    #: Whether no smaller example is looked for after them either.
    hurried: bool = False
    #: Further examples among which a smaller one is looked for; None: as many as it takes.
    shrinking: tuple[float, float, float] | None = None

    def most(self, budget: Budget) -> int:
        """Return how many examples are drawn."""
        return self.examples[_place(budget)]

    def smaller(self, budget: Budget) -> float:
        """Return among how many further examples a smaller one is looked for."""
        return self.shrinking[_place(budget)] if self.shrinking else math.inf

    def times(self, share: float) -> Effort:
        """Return the effort with so many times as many examples, but one at least."""
        quick, standard, deep = (max(1, round(each * share)) for each in self.examples)
        return attrs.evolve(self, examples=(quick, standard, deep))

    def clock(self, budget: Budget) -> Callable[[], bool]:
        """Return what tells whether the seconds, which begin now, are over."""
        seconds = self.seconds[_place(budget)]
        worked = time.process_time() + seconds
        waited = time.monotonic() + (WAITING if self.worked else 1) * seconds
        return lambda: time.monotonic() > waited or (self.worked and time.process_time() > worked)


def _place(budget: Budget) -> int:
    return list(Budget).index(budget)


#: Histories of a stratum; those that make one that fails smaller are counted, not timed, which
#: would give another counterexample on a busier machine.
STRATUM = Effort((12, 24, 60), shrinking=(200, 500, 3000))
#: Requests that look for lines which never ran, alone and as clients may send them, and variations
#: of histories: so many without anything new.  Histories of each stratum with what was found.
TRIED = Effort((60, 120, 600))
VARIED = Effort((10, 30, 200))
LED = Effort((3, 4, 12))

#: The share of these that is tried before anything new was found: a plugin whose lines are left for
#: another reason, as those that refuse a request are, is not searched for long.
AT_FIRST = 1 / 3
#: Batches of drawn pairs and triples of what requests ask for.
COMBINATIONS = Effort((6, 8, 60))
#: Requests for logits processors, beside those at the edges.
REQUESTS = Effort((30, 80, 1000))
#: Histories of requests for IO processors, and data of hostile clients.
IO_HISTORIES = Effort((8, 20, 100), shrinking=(60, 150, 600))
IO_BODIES = Effort((40, 100, 600))
#: Histories of calls of a hook, calls beside those, and texts: some hooks take long.
CALLS = Effort((10, 30, 150), (0.0, 3.0, 60.0), hurried=True)
NEIGHBOURS = Effort((0, 0, 0), (1.0, 3.0, 30.0), worked=True)
TEXTS = Effort((20, 60, 300), (0.0, 2.0, 60.0), hurried=True)
#: Items of one modality; prompts of a model, which has a shrinker of its own.
ITEMS = Effort((10, 40, 300), (0.0, 3.0, 60.0), worked=True)
PROMPTS = Effort((8, 20, 100), (1.0, 3.0, 60.0), shrinking=(0, 0, 0))
#: Answers of a model to a parser.
ANSWERS = Effort((10, 40, 400), (2.0, 8.0, 90.0))


class Found(Exception):
    """The example shows what is looked for."""


def draw(
    strategy: SearchStrategy[_Example],
    look: Callable[[_Example], object],
    count: int,
    seed: int,
    *,
    shrinks: bool = False,
) -> None:
    """Look at some examples, the same ones for each seed, and then at smaller ones if asked to.

    Raises:
        Found: *look* raised it for one of them, and last for the smallest.
        HypothesisException: what *look* does with an example is not always the same.

    """
    stopped: list[BaseException] = []

    def body(example: _Example) -> None:
        if stopped:
            return
        try:
            look(example)
        except Exception:
            raise
        except BaseException as error:  # noqa: BLE001 - raised below
            # Whoever ends this process must not wait for Hypothesis to try the example again.
            stopped.append(error)

    settings = hypothesis.settings(
        max_examples=count,
        database=None,
        phases=(Phase.generate, Phase.shrink) if shrinks else (Phase.generate,),
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        verbosity=hypothesis.Verbosity.quiet,
    )
    hypothesis.seed(seed)(settings(hypothesis.given(strategy)(body)))()
    if stopped:
        raise stopped[0]


def look_around() -> None:
    """Have Hypothesis read the constants of all modules: once, and not in each job."""
    gc.freeze()  # its first example collects garbage, and nothing that was imported is any
    draw(strategies.integers(), lambda _: None, 1, 0)


def examples(strategy: SearchStrategy[_Example], count: int, seed: int) -> list[_Example]:
    """Return some examples, the same ones for each seed."""
    found: list[_Example] = []
    draw(strategy, found.append, count, seed)
    return found


def smallest(
    strategy: SearchStrategy[_Example] | None,
    judge: Callable[[_Example], _Shown | None],
    effort: Effort,
    *,
    budget: Budget,
    seed: int,
    first: Iterable[_Example] = (),
    size: Callable[[Any], Any] | None = None,
) -> tuple[int, _Shown | None]:
    """Judge examples until one shows something, and then smaller ones.

    Args:
        strategy: draws the examples.
        judge: returns what an example shows, or None.
        effort: how many examples, and for how long.
        budget: of the run.
        seed: of what is drawn.
        first: examples before those that are drawn; they are not made smaller.
        size: of what an example shows; without it the last one is the smallest.

    Returns:
        How many examples were judged, and what the smallest showed of those that show something.

    """
    count = 0
    found: list[_Shown] = []
    over = effort.clock(budget)
    limit = effort.most(budget) + effort.smaller(budget)
    shrinks = effort.smaller(budget) > 0

    def look(example: _Example) -> None:
        nonlocal count
        if found and not shrinks:
            return
        late = count >= effort.examples[0] and over()
        if (late and (effort.hurried or not found)) or (found and count >= limit):
            return
        count += 1
        if (shown := judge(example)) is not None:
            found.append(shown)
            raise Found

    with suppress(Found):
        for example in first:
            look(example)
            limit += 1
        try:
            if strategy is not None:
                draw(strategy, look, effort.most(budget), seed, shrinks=shrinks)
        except HypothesisException:
            # What showed something once still showed it, though running out of examples in the
            # middle of shrinking looks flaky to Hypothesis.
            if not found:
                raise
    if not found:
        return count, None
    return count, min(found, key=size) if size else found[-1]
