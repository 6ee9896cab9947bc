# SPDX-License-Identifier: Apache-2.0
"""Check CH-39: scores are what the author says, in a list of texts or by a function."""

from __future__ import annotations

import copy
import math
import sys
from typing import TYPE_CHECKING, Any

from conformance.checking import checks
from conformance.classifier_hook.bench import plain
from conformance.comparison import shortened
from conformance.expectation import Expected, OracleFailed
from conformance.findings import Finding, failed, passed
from conformance.interruption import place_in
from conformance.raised import said
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from conformance.classifier_hook.bench import Bench
    from conformance.classifier_hook.trial import Trial

#: How far numbers may be apart, in proportion.
TOLERANCE = 1e-4

#: Stands for a score that is not there.
_MISSING = object()


@checks("CH-39", after=("CH-18",))
def means(trial: Trial) -> Finding:
    """Each text gets the scores that the author says it must get."""
    bench = trial.bench
    if not bench.said and bench.expected is None:
        return Finding(
            Verdict.NOT_APPLICABLE, message="the profile has neither `scores` nor `expected`"
        )
    count = 0
    try:
        for text, wanted in _wanted(bench):
            count += 1
            scores = bench.alone(bench.texts.index(text)).value
            if what := _apart(scores, wanted):
                case = {"text": text, "scores": dict(wanted)}
                return failed(f"for {shortened(text)} {what}", count, case=case)
    except OracleFailed as error:
        return Finding(Verdict.NOT_VERIFIED, count, count, str(error))
    return passed(count, count)


def _wanted(bench: Bench) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield texts with the scores that they must get.

    Raises:
        OracleFailed: the author's function raised, or returned no scores.

    """
    yield from bench.said
    if bench.expected is None:
        return
    for text in bench.texts:
        yield text, _asked(bench, bench.expected, text)


def _asked(bench: Bench, expected: Expected, text: str) -> Mapping[str, Any]:
    function = expected.load()
    try:
        scores = function(copy.deepcopy(bench.context(text)))
    except Exception as error:
        place = place_in(error, sys.modules[expected.module].__file__)
        where = f", at {place}" if place else ""
        raise OracleFailed(f"{expected} of the profile raised {said(error)}{where}") from error
    found = plain(scores)
    if not isinstance(found, dict):
        raise OracleFailed(f"{expected} of the profile returned no scores for {shortened(text)}")
    return found


def _apart(scores: Mapping[str, Any], wanted: Mapping[str, Any]) -> str | None:
    """Say which of the wanted scores is another one; those that nobody spoke of may be any."""
    for name, value in wanted.items():
        got = scores.get(name, _MISSING)
        if got is _MISSING:
            return f"there is no score {name!r}, expected {shortened(value)}"
        if not _alike(plain(got), plain(value)):
            return f"the score {name!r} is {shortened(got)}, expected {shortened(value)}"
    return None


def _alike(got: Any, wanted: Any) -> bool:  # noqa: ANN401 - JSON values
    if isinstance(got, dict) and isinstance(wanted, dict):
        return got.keys() == wanted.keys() and all(_alike(got[key], wanted[key]) for key in got)
    if isinstance(got, list | tuple) and isinstance(wanted, list | tuple):
        return len(got) == len(wanted) and all(map(_alike, got, wanted))
    numbers = (isinstance(each, int | float) for each in (got, wanted))
    if all(numbers) and isinstance(got, bool) == isinstance(wanted, bool):
        return math.isclose(got, wanted, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return bool(got == wanted)
