# SPDX-License-Identifier: Apache-2.0
"""Check CH-39: scores are what the author says, in a list of texts or by a function."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from conformance.checking import checks
from conformance.classifier_hook.bench import Bench, plain
from conformance.classifier_hook.calls import runtime
from conformance.classifier_hook.scoring import contexts
from conformance.classifier_hook.trial import Trial
from conformance.findings import Finding, failed, inapplicable, passed, unjudged
from conformance.inputs.oddities import CASED
from conformance.oracle import asked
from conformance.plugin.expectation import OracleFailed
from conformance.watching.comparison import shortened

#: How far numbers may be apart, in proportion.
TOLERANCE = 1e-4

#: Of how many texts the author's function is asked in contexts of every kind.
CONTEXTS = 2

#: Why the rule does not apply.
SILENT = "the profile has neither `scores` nor `expected`"

#: Stands for a score that is not there.
_MISSING = object()


def nothing_said(trial: Trial) -> Finding | None:
    """Return the finding that the rule does not apply where the author says nothing of scores."""
    return inapplicable(SILENT) if silent(trial.bench) else None


@checks("CH-39", after=("CH-18",), beside=nothing_said)
def means(trial: Trial) -> Finding:
    """Each completion gets the scores that the author says it must get."""
    bench = trial.bench
    count = 0
    try:
        for text, what, changes in _completions(bench):
            count += 1
            if not (scores := wanted(bench, bench.context(text, **changes), changes)):
                continue
            got = bench.alone(text, **changes)
            different = apart(plain(got.value), scores) if got.good else None
            if different:
                case = {"text": text, "scores": dict(scores), "changes": changes}
                why = f"for {shortened(text)}{what} {different}"
                return failed(why, count, case=case)
    except OracleFailed as error:
        return unjudged(str(error), count, count)
    return passed(count)


def silent(bench: Bench) -> bool:
    """Tell whether the author says nothing of scores."""
    return not bench.said and bench.expected is None


def _completions(bench: Bench) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield texts, with what is other than usual in their contexts: a sentence, and fields."""
    if bench.expected is None:
        yield from ((each.text, "", dict(each.changes)) for each in bench.said)
        return
    for text in bench.texts:
        yield text, "", {}
    for text in bench.texts:
        yield f"{CASED} {text} {CASED}", "", {}
    for text in bench.texts[:CONTEXTS]:
        for what, changes in contexts(bench, text):
            yield text, f", in a context with {what},", changes


def wanted(bench: Bench, context: Any, changes: Mapping[str, Any] = {}) -> Mapping[str, Any]:  # noqa: ANN401 - a ScoringContext
    """Return the scores that a completion must get, as far as anybody says so.

    Raises:
        OracleFailed: the author's function raised, or returned no scores, or others when it was
            asked again.

    """
    found: dict[str, Any] = {}
    for each in bench.said:
        if each.text == context.generated_text and each.changes in ({}, changes):
            found |= each.scores
    if bench.expected is None:
        return found
    own = runtime("contract").own
    scores = asked(bench.expected, lambda: (own(context),), read=plain, **bench.arguments)
    if not isinstance(scores, dict):
        said = shortened(context.generated_text)
        raise OracleFailed(f"{bench.expected} of the profile returned no scores for {said}")
    return {**scores, **found}


def apart(scores: object, wanted: Mapping[str, Any]) -> str | None:
    """Say which of the wanted scores is another one; those that nobody spoke of may be any."""
    for name, value in wanted.items():
        got = scores.get(name, _MISSING) if isinstance(scores, dict) else _MISSING
        if got is _MISSING:
            return f"there is no score {name!r}, expected {shortened(value)}"
        if not _alike(got, value):
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
