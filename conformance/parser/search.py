# SPDX-License-Identifier: Apache-2.0
"""Looking for an example that breaks a rule, and for the smallest one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import attrs
from hypothesis.strategies import SearchStrategy

from conformance.findings import Finding, failed, passed
from conformance.search import ANSWERS, smallest
from conformance.settings import Budget
from conformance.verdict import Verdict

_Example = TypeVar("_Example")


@attrs.frozen
class Judged:
    """What one example showed."""

    acted: bool = True  #: whether the parser found anything in it
    wrong: str | None = None
    #: Returns what shows it, where that is known: see :meth:`conformance.parser.bench.Bench.scene`.
    scene: Callable[[], dict[str, Any]] | None = None
    raised: str | None = None  #: what kept it from finding anything, where another rule tells of it


def search(
    first: Iterable[_Example],
    drawn: SearchStrategy[_Example] | None,
    judge: Callable[[_Example], Judged],
    *,
    budget: Budget,
    seed: int,
    text: Callable[[_Example], str],
    nothing: str,
) -> Finding:
    """Judge examples, those that are known first; what fails among the drawn ones is shrunk.

    *text* returns the answer of one; *nothing* says what is missing where the parser found nothing
    in any of them.
    """
    acted = 0
    raised: str | None = None

    def look(example: _Example) -> tuple[_Example, Judged] | None:
        nonlocal acted, raised
        found = judge(example)
        acted += found.acted
        raised = raised or found.raised
        return (example, found) if found.wrong is not None else None

    count, broken = smallest(drawn, look, ANSWERS, budget=budget, seed=seed, first=first)
    if broken is not None:
        example, found = broken
        shown = found.scene() if found.scene else {}
        cut = {"deltas": shown["deltas"]} if shown else {}
        return failed(
            str(found.wrong),
            count,
            max(acted, 1),
            case={"answer": {"text": text(example), **cut}, "program": shown},
        )
    if acted:
        return passed(count, acted)
    why = f"nothing was found in any answer: the parser raised {raised}" if raised else nothing
    return Finding(Verdict.NOT_VERIFIED, count, 0, why)
