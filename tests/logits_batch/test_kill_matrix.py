# SPDX-License-Identifier: Apache-2.0
"""Every defective plugin fails by the rule that is about its fault, in a short history."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest
from programs import ALLOWED, WITHOUT, execute, imported, shows_nothing, write
from support import DEFECTIVE, DEFECTIVE_SLOT, caught, certify, gallery, of_configurations

from conformance.logits_batch.catalogue import RULES
from conformance.reporting.steps import folded
from conformance.rules import Evidence
from conformance.settings import Budget
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from support import Specimen

    from conformance.verdict import RuleResult
    from conformance.worker import Zygote

MOST_STEPS = 6

MARKS = {
    Evidence.SIMULATOR: (),
    Evidence.OFFLINE: (pytest.mark.engine,),
    Evidence.SERVER: (pytest.mark.server,),
}


def _defects() -> list[pytest.ParameterSet]:
    """Every defective plugin; those that only an engine shows carry its marker."""
    return [
        pytest.param(
            specimen,
            id=specimen.name,
            marks=MARKS[specimen.evidence],
        )
        for specimen in gallery(DEFECTIVE)
    ]


@pytest.mark.parametrize("specimen", _defects())
def test_dies_by_its_own_rule(zygote: Zygote, specimen: Specimen, tmp_path: Path) -> None:
    """A defective plugin fails by its rule's id, in a short history and a program that show it."""
    result = caught(zygote, specimen, tmp_path, short=_short)

    assert result.verdict is Verdict.FAIL, result.message
    assert result.message
    assert _short(result)
    if specimen.evidence is Evidence.SIMULATOR and specimen.name not in WITHOUT:
        _check_program(zygote, specimen, result, tmp_path)


def test_another_default_dtype_is_no_error_of_the_harness(zygote: Zygote, tmp_path: Path) -> None:
    """Whatever an instance makes torch's default, what plugins are tried on stays float32."""
    name = "computes_in_double_precision"
    specimen = next(each for each in gallery(DEFECTIVE) if each.name == name)
    results = certify(zygote, specimen, tmp_path, budget=Budget.QUICK)

    assert Verdict.ERROR not in {result.verdict for result in results.values()}


@pytest.mark.parametrize(
    "specimen",
    [
        each
        for each in (*gallery(DEFECTIVE), *gallery(DEFECTIVE_SLOT))
        if each.rule in {"LB-23", "LS-15"}
    ],
    ids=lambda specimen: specimen.name,
)
def test_chance_is_no_other_fault(zygote: Zygote, specimen: Specimen, tmp_path: Path) -> None:
    """Rows that are drawn at random differ everywhere, and fail by the rule about that alone."""
    results = certify(zygote, specimen, tmp_path, budget=Budget.QUICK)

    failed = {rule for rule, result in results.items() if result.verdict is Verdict.FAIL}
    # Some take any value of a client as well.
    found = {rule: results[rule].message for rule in failed - {"LB-38", "LS-35"}}
    assert set(found) == {specimen.rule}, found


@pytest.mark.parametrize(
    ("name", "rule"),
    [("splits_bonus_among_requests", "LB-03"), ("pairs_requests_of_a_name", "LB-16")],
)
def test_what_neighbours_do_is_no_matter_of_size(
    zygote: Zygote, name: str, rule: str, tmp_path: Path
) -> None:
    """A row that depends on its neighbours differs in a full batch as well: one fault is one."""
    specimen = next(each for each in gallery(DEFECTIVE) if each.name == name)
    results = certify(zygote, specimen, tmp_path, budget=Budget.QUICK)

    failed = {rule for rule, result in results.items() if result.verdict is Verdict.FAIL}
    assert rule in failed
    assert "LB-30" not in failed
    assert rule in str(results["LB-30"].message)


@pytest.mark.parametrize(
    "specimen",
    [each for each in gallery(DEFECTIVE) if each.rule == "LB-34"],
    ids=lambda specimen: specimen.name,
)
def test_no_more_rows_are_changed_than_were_tried(
    zygote: Zygote, specimen: Specimen, tmp_path: Path
) -> None:
    """A certificate that counts more does not verify."""
    result = certify(zygote, specimen, tmp_path, rules={"LB-34"})["LB-34"]

    assert result.verdict is Verdict.FAIL
    assert result.acted <= result.examples


def test_a_token_that_was_masked_before_is_no_token_lost(zygote: Zygote, tmp_path: Path) -> None:
    """Where a grammar masks the one token that a plugin leaves, it is not the plugin's fault."""
    name = "looks_through_every_row"
    specimen = next(each for each in gallery(DEFECTIVE) if each.name == name)
    results = certify(zygote, specimen, tmp_path, rules={"LB-22", "LB-45"})

    assert {result.verdict for result in results.values()} == {Verdict.PASS}, results


def test_what_raises_late_for_another_text_is_a_request_of_a_client(
    zygote: Zygote, tmp_path: Path
) -> None:
    """A text that no profile names raises in a later step: no other rule has to wait for that."""
    name = "writes_where_client_says"
    specimen = next(each for each in gallery(DEFECTIVE) if each.name == name)
    results = certify(zygote, specimen, tmp_path, budget=Budget.QUICK, rules={"LB-16", "LB-03"})

    assert {result.verdict for result in results.values()} == {Verdict.PASS}, results


def test_a_copy_of_outputs_is_proven(zygote: Zygote, tmp_path: Path) -> None:
    """A plugin that keeps the list of outputs and loses something on resume fails by that alone."""
    name = "takes_outputs_of_resumed_for_prompt"
    specimen = next(each for each in gallery(DEFECTIVE) if each.name == name)
    results = certify(zygote, specimen, tmp_path, rules={"LB-10", "LB-11"})

    assert results["LB-11"].verdict is Verdict.FAIL
    assert results["LB-10"].verdict is not Verdict.FAIL, results["LB-10"].message


def _short(result: RuleResult) -> bool:
    """Return whether the history of a failure, if it has one, is short."""
    case = result.counterexample
    if not case or case["kind"] != "history":
        return True
    return len(folded(case["lines"], case["trouble"]["step"])) <= MOST_STEPS


def _check_program(zygote: Zygote, specimen: Specimen, result: RuleResult, folder: Path) -> None:
    """The program of the failure exits with 1 and imports nothing of the harness."""
    path = write(specimen, result, folder)
    source = path.read_text(encoding="utf-8")
    assert imported(source) <= ALLOWED | {specimen.name}
    lines = [line for line in source.splitlines() if str(DEFECTIVE) not in line]
    assert max(map(len, lines)) <= 100

    # A program that shows a hang waits as long as the harness does.
    path.write_text(source.replace("traceback_later(20,", "traceback_later(1,"), encoding="utf-8")
    status, said = execute(zygote, path)

    if shows_nothing(result.rule, status, said):
        return
    assert status == 1, said
    assert "FAILS: " in said or "Timeout" in said
    assert "expected" in said


def test_every_rule_has_a_defective_plugin() -> None:
    """No rule is without a plugin that it catches."""
    broken = {specimen.rule for specimen in gallery(DEFECTIVE)}

    rules = {rule.id for rule in RULES}
    assert rules == broken | (of_configurations() & rules)


@pytest.mark.parametrize("name", ["forgets_to_return", "drops_batch_dimension", "raises_on_none"])
def test_a_fault_is_no_obstacle_to_finding_the_switch(
    zygote: Zygote, name: str, tmp_path: Path
) -> None:
    """Without a profile too, a plugin that answers wrongly fails by the rule about its fault."""
    specimen = next(s for s in gallery(DEFECTIVE) if s.name == name)
    results = certify(zygote, attrs.evolve(specimen, profile={}), tmp_path)

    assert results[str(specimen.rule)].verdict is Verdict.FAIL
    assert Verdict.ERROR not in {result.verdict for result in results.values()}
