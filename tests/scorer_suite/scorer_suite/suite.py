# SPDX-License-Identifier: Apache-2.0
"""What judges scorers; this example needs nothing of vLLM."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import attrs
import hypothesis
from hypothesis import strategies as st

from conformance.findings import Finding, failed, passed, simulated
from conformance.rules import Evidence
from conformance.settings import Budget
from conformance.suite import Suite, Unopened
from conformance.verdict import Verdict
from conformance.watching.interruption import limited

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from conformance.suite import Opening, Trial
    from conformance.verdict import RuleResult

EXAMPLES = {Budget.QUICK: 20, Budget.STANDARD: 100, Budget.DEEP: 1000}


@attrs.frozen
class Scoring:
    """The trial of one scorer."""

    scorer: Any
    texts: Sequence[str]
    seed: int
    budget: Budget

    def check(self, rule: str) -> RuleResult:
        """Judge one rule."""
        started = time.perf_counter()
        found = passed(1, 1) if rule == "TS-01" else self._scores()
        case = None
        if found.verdict is Verdict.FAIL:
            # `program` marks a case that a program can be made of.
            case = {"kind": "text", "rule": rule, "seed": self.seed, "program": found.case}
        return simulated(rule, found, time.perf_counter() - started, case)

    def _scores(self) -> Finding:
        """Look for the smallest text with a score that is none."""
        for text in self.texts:
            if why := wrong(self.scorer, text):
                return failed(why, case={"text": text})
        count = EXAMPLES[self.budget]
        settings = hypothesis.settings(max_examples=count, database=None, deadline=None)
        try:
            text = hypothesis.find(
                st.text(), lambda text: wrong(self.scorer, text) is not None, settings=settings
            )
        except hypothesis.errors.NoSuchExample:
            return passed(count, count)
        return failed(f"{wrong(self.scorer, text)}", count, case={"text": text})

    def context(self) -> Mapping[str, Any]:
        """Return what the certificate says about the trial."""
        return {"profile": {"texts": list(self.texts)}}

    def close(self) -> None:
        """Do nothing: nothing was started."""


def wrong(scorer: Any, text: str) -> str | None:  # noqa: ANN401 - a plugin
    """Say what is wrong with the score of a text, or return None."""
    with limited():
        score = scorer.score_text(text)
    if isinstance(score, int | float) and 0 <= score <= 1:
        return None
    return f"score_text({text!r}) returned {score!r}"


def _recognises(cls: type) -> bool:
    return callable(getattr(cls, "score_text", None))


def _open(opening: Opening) -> Trial:
    try:
        scorer = opening.cls()
    except Exception as error:  # noqa: BLE001 - a plugin may raise anything
        why = f"making an instance raised {type(error).__name__}: {error}"
        return Unopened(why, opening.evidence, "TS-01")
    if opening.evidence is not Evidence.SIMULATOR:
        return Unopened("no engine calls scorers", opening.evidence)
    texts = opening.section.get("texts", [])
    return Scoring(scorer, texts, opening.settings.seed, opening.settings.budget)


def _replay(cls: type, counterexample: Mapping[str, Any], _model: str) -> tuple[list[str], str]:
    why = wrong(cls(), counterexample["program"]["text"])
    return (["text"], why) if why else ([], "")


SUITE = Suite(
    base="scorer_suite (no base class, but score_text)",
    recognises=_recognises,
    meant=_recognises,
    open_trial=_open,
    replay=_replay,
)
