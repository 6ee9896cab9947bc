# SPDX-License-Identifier: Apache-2.0
"""A pass rests on enough examples in which a plugin did something."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from support import UNUSUAL, Specimen, certify, gallery

from conformance.findings import LEAST_ACTED
from conformance.inputs.history import Shape
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

#: Keeps its rows in a list, from which those without a prompt are dropped: what is behind moves up.
DROPS = """\
from vllm.v1.sample.logits_processor import LogitsProcessor


class Drops(LogitsProcessor):
    def __init__(self, vllm_config, device, is_pin_memory):
        self.requests = {}

    def is_argmax_invariant(self):
        return False

    def update_state(self, batch_update):
        if batch_update is None:
            return
        for row in batch_update.removed:
            self.requests.pop(row, None)
        for row, params, prompt, _ in batch_update.added:
            self.requests[row] = (prompt, (params.extra_args or {}).get("bias"))
        for source, target, direction in batch_update.moved:
            moved, met = self.requests.pop(source, None), self.requests.pop(target, None)
            if moved is not None:
                self.requests[target] = moved
            if met is not None and direction.name == "SWAP":
                self.requests[source] = met

    def apply(self, logits):
        kept = [self.requests[row] for row in sorted(self.requests)]
        for row, (prompt, bias) in enumerate(each for each in kept if each[0] is not None):
            if bias is not None:
                logits[row, prompt[0]] += bias
        return logits
"""

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


def test_what_one_without_a_prompt_does_to_others(zygote: Zygote, tmp_path: Path) -> None:
    """A request beside one whose prompt is given as embeddings gets what it gets alone."""
    (tmp_path / "drops.py").write_text(DROPS, encoding="utf-8")
    profile = {"on": [{"extra_args": {"bias": 2.5}}], "off": [{}]}
    specimen = Specimen(f"{tmp_path / 'drops.py'}:Drops", "LB-25", profile)

    found = certify(zygote, specimen, tmp_path, rules={"LB-04", "LB-25"})

    assert found["LB-04"].verdict is Verdict.PASS
    assert found["LB-25"].verdict is Verdict.FAIL
    assert "does not get what it gets alone" in str(found["LB-25"].message)


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
    strata = SimpleNamespace(
        plain=PLAIN, everything=None, opt_out="LB-04", about=lambda _: PLAIN, without={}
    )
    contract = SimpleNamespace(
        strata=strata,
        judged={"LB-03"},
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
        once=lambda _: {},  # no advice is broken
    )
