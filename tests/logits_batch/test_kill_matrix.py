# SPDX-License-Identifier: Apache-2.0
"""Every defective plugin fails by the rule that is about its fault, in a short history."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest
from programs import ALLOWED, WITHOUT, execute, imported, write
from support import DEFECTIVE, caught, certify, gallery

from conformance.logits_batch.catalogue import RULES
from conformance.reporting.steps import folded
from conformance.rules import Evidence
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

    assert status == 1, said
    assert "FAILS: " in said or "Timeout" in said
    assert "expected" in said


def test_every_rule_has_a_defective_plugin() -> None:
    """No rule is without a plugin that it catches."""
    broken = {specimen.rule for specimen in gallery(DEFECTIVE)}

    assert {rule.id for rule in RULES} == broken


@pytest.mark.parametrize("name", ["forgets_to_return", "drops_batch_dimension", "raises_on_none"])
def test_a_fault_is_no_obstacle_to_finding_the_switch(
    zygote: Zygote, name: str, tmp_path: Path
) -> None:
    """Without a profile too, a plugin that answers wrongly fails by the rule about its fault."""
    specimen = next(s for s in gallery(DEFECTIVE) if s.name == name)
    results = certify(zygote, attrs.evolve(specimen, profile={}), tmp_path)

    assert results[str(specimen.rule)].verdict is Verdict.FAIL
    assert Verdict.ERROR not in {result.verdict for result in results.values()}
