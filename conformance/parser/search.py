# SPDX-License-Identifier: Apache-2.0
"""Looking for an example that breaks a rule, and for the smallest one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import hypothesis
from hypothesis import HealthCheck, Phase

from conformance.findings import Finding, failed, passed
from conformance.settings import Budget
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hypothesis.strategies import SearchStrategy

_Example = TypeVar("_Example")

EXAMPLES = {Budget.QUICK: 10, Budget.STANDARD: 40, Budget.DEEP: 400}

#: Seconds after which the fewest examples must do.
SECONDS = {Budget.QUICK: 2.0, Budget.STANDARD: 8.0, Budget.DEEP: 90.0}


@attrs.frozen
class Judged:
    """What one example showed."""

    acted: bool  #: whether the parser found anything in it
    wrong: str | None = None
    #: Returns what shows it, where that is known: see :meth:`conformance.parser.bench.Bench.scene`.
    scene: Callable[[], dict[str, Any]] | None = None


class _Broken(Exception):
    """The example breaks the rule."""


def search(
    first: Iterable[_Example],
    drawn: SearchStrategy[_Example] | None,
    judge: Callable[[_Example], Judged],
    *,
    budget: Budget,
    seed: int,
    case: Callable[[_Example], dict[str, object]],
    nothing: str,
) -> Finding:
    """Judge examples, those that are known first; what fails among the drawn ones is shrunk.

    *nothing* says what is missing where the parser found nothing in any of them.
    """
    count = acted = 0
    broken: list[tuple[_Example, Judged]] = []
    deadline = time.monotonic() + SECONDS[budget]

    def look(example: _Example) -> None:
        nonlocal count, acted
        late = time.monotonic() > deadline and count >= EXAMPLES[Budget.QUICK]
        if late and not broken:
            return
        found = judge(example)
        count += 1
        acted += found.acted
        if found.wrong is not None:
            broken.append((example, found))
            raise _Broken

    try:
        for example in first:
            look(example)
        if drawn is not None:
            draw(drawn, look, EXAMPLES[budget], seed)
    except _Broken:
        pass
    except hypothesis.errors.HypothesisException:
        if not broken:
            raise
        # What broke the rule once and not again still broke it.
    if broken:
        example, found = broken[-1]
        shown = found.scene() if found.scene else {}
        cut = {"deltas": shown["deltas"]} if shown else {}
        return failed(
            str(found.wrong),
            count,
            max(acted, 1),
            case={"answer": case(example) | cut, "program": shown},
        )
    return passed(count, acted) if acted else Finding(Verdict.NOT_VERIFIED, count, 0, nothing)


def draw(
    drawn: SearchStrategy[_Example], look: Callable[[_Example], None], count: int, seed: int
) -> None:
    """Look at some examples, the same ones for each seed."""
    settings = hypothesis.settings(
        max_examples=count,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        verbosity=hypothesis.Verbosity.quiet,
    )
    hypothesis.seed(seed)(settings(hypothesis.given(drawn)(look)))()
