# SPDX-License-Identifier: Apache-2.0
"""A pass rests on enough examples in which a plugin did something."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from support import UNUSUAL, certify, gallery

from conformance.findings import LEAST_ACTED
from conformance.history import Shape
from conformance.logits.judgement import judge
from conformance.logits.played import Played
from conformance.logits.sweeps import Example
from conformance.search import STRATUM
from conformance.settings import Budget
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.worker import Zygote

#: Rules of strata in which requests seldom live for long.
RULES = {"LB-03", "LB-08", "LB-18", "LB-20"}

PLAIN = Shape(name="plain", title="requests join and advance")


def test_more_is_played_where_little_was_seen(zygote: Zygote, tmp_path: Path) -> None:
    """Where a plugin waits for many outputs, requests of further histories live long enough."""
    specimen = next(each for each in gallery(UNUSUAL) if each.name == "stops_after")
    on = [{"extra_args": {"stop_after": 16}}]
    specimen = attrs.evolve(specimen, profile={**specimen.profile, "on": on})
    results = certify(zygote, specimen, tmp_path, budget=Budget.QUICK, rules=RULES)

    for rule, result in results.items():
        assert result.verdict is Verdict.PASS, (rule, result.message)
        assert result.acted >= LEAST_ACTED[Budget.QUICK]


@pytest.mark.parametrize("budget", Budget)
@pytest.mark.parametrize("missing", [0, 1])
def test_a_few_examples_are_no_pass(budget: Budget, missing: int) -> None:
    """With fewer than the least a rule is not verified, and the finding says how many acted."""
    acted, count = LEAST_ACTED[budget] - missing, STRATUM.most(budget)
    did, nothing = Played((), frozenset({("on", 0)})), Played((), frozenset())
    played = [did] * acted + [nothing] * (count - acted)
    finding, _ = judge(_trial([Example(PLAIN, (), each, ()) for each in played], budget), "LB-03")

    assert (finding.acted, finding.examples) == (acted, count)
    assert finding.verdict is (Verdict.NOT_VERIFIED if missing else Verdict.PASS)
    assert not missing or f"in {acted} of {count} examples" in str(finding.message)


def _trial(examples: list[Example], budget: Budget) -> Any:  # noqa: ANN401 - as much as is asked for
    """Return a trial in which these examples were played."""
    strata = SimpleNamespace(plain=PLAIN, everything=None, about=lambda _: PLAIN)
    contract = SimpleNamespace(
        strata=strata,
        judged={"LB-03"},
        opt_out="LB-04",
        means="LB-46",
        anywhere=frozenset(),
        inapplicable=lambda *_: None,
    )
    return SimpleNamespace(
        contract=contract,
        budget=budget,
        parameters=SimpleNamespace(on=({},)),
        stratum=lambda shape: examples if shape is PLAIN else [],
        examples=lambda: examples,
    )
