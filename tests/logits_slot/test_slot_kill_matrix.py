# SPDX-License-Identifier: Apache-2.0
"""Every defective slot plugin fails by the rule that is about its fault, in a short history."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from programs import ALLOWED, execute, has_one, imported, shows_nothing, write
from support import DEFECTIVE_SLOT, caught, gallery, of_configurations

from conformance.logits_slot.catalogue import RULES
from conformance.rules import Evidence
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from support import Specimen

    from conformance.verdict import RuleResult
    from conformance.worker import Zygote

MARKS = {
    Evidence.SIMULATOR: (),
    Evidence.OFFLINE: (pytest.mark.engine,),
    Evidence.SERVER: (pytest.mark.server,),
}
MOST_STEPS = 6

#: Plugins without a program: one ends the process, and one is waited for too long; a test of
#: programs waits for another.
NO_PROGRAM = {"exits_process", "waits_for_ever"}

#: Rules that live engines alone decide, each by a test of its own.
LIVE = {rule.id for rule in RULES if Evidence.SIMULATOR not in rule.evidence}


@pytest.mark.parametrize(
    "specimen",
    [
        pytest.param(specimen, id=specimen.name, marks=MARKS[specimen.evidence])
        for specimen in gallery(DEFECTIVE_SLOT)
    ],
)
def test_dies_by_its_own_rule(zygote: Zygote, specimen: Specimen, tmp_path: Path) -> None:
    """A defective plugin fails by its rule's id; where a history shows it, a program does, too."""
    result = caught(zygote, specimen, tmp_path, short=_short)

    assert result.verdict is Verdict.FAIL, result.message
    assert result.message
    assert _short(result)
    if result.counterexample is None or specimen.name in NO_PROGRAM:
        return
    assert has_one(result)
    path = write(specimen, result, tmp_path)
    source = path.read_text(encoding="utf-8")
    assert imported(source) <= ALLOWED | {specimen.name}
    # A program that shows a hang waits as long as the harness does.
    path.write_text(source.replace("traceback_later(20,", "traceback_later(1,"), encoding="utf-8")
    status, said = execute(zygote, path)
    if shows_nothing(result.rule, status, said):
        return
    assert status == 1, said
    assert "FAILS: " in said or "Timeout" in said
    assert "expected" in said


def _short(result: RuleResult) -> bool:
    """Return whether the history of a failure, if it has one, is short."""
    case = result.counterexample
    return not case or case["kind"] != "history" or len(case["history"]) <= MOST_STEPS


def test_every_rule_has_a_defective_plugin() -> None:
    """No rule that the simulator decides is without a plugin that it catches."""
    broken = {specimen.rule for specimen in gallery(DEFECTIVE_SLOT)} | of_configurations()

    assert {rule.id for rule in RULES} - broken <= LIVE
