# SPDX-License-Identifier: Apache-2.0
"""Advice that is not followed keeps no plugin from being judged by all that it must do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support import DEFECTIVE, DEFECTIVE_SLOT, certify, gallery

from conformance.generations import named
from conformance.rules import Evidence, Level
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from support import Specimen

    from conformance.worker import Zygote


#: Rules whose failure leaves nothing to judge others by: rows that are drawn at random differ
#: anyway, and rows only change places beside prefills that are not finished.
HIDING = {"LB-23": None, "LS-15": None, "LB-18": {"LB-08"}, "LS-09": {"LS-07"}}


def _levels(specimen: Specimen) -> dict[str, Level]:
    return {rule.id: rule.level for rule in named(specimen.generation).rules}


def _advice() -> list[Specimen]:
    """Return one plugin for each rule that is advice."""
    chosen: dict[str, Specimen] = {}
    for folder in (DEFECTIVE, DEFECTIVE_SLOT):
        for specimen in gallery(folder):
            rule = str(specimen.rule)
            advice = _levels(specimen).get(rule) is Level.SHOULD
            if advice and specimen.evidence is Evidence.SIMULATOR:
                chosen.setdefault(rule, specimen)
    return [each for rule, each in chosen.items() if HIDING.get(rule, ()) is not None]


@pytest.mark.parametrize("specimen", _advice(), ids=lambda each: f"{each.rule}-{each.name}")
def test_what_must_hold_is_judged_all_the_same(
    zygote: Zygote, specimen: Specimen, tmp_path: Path
) -> None:
    """No MUST waits for a SHOULD: who knowingly breaks advice can still be conformant."""
    results = certify(zygote, specimen, tmp_path)
    levels = _levels(specimen)
    failing = {rule for rule, result in results.items() if result.verdict is Verdict.FAIL}
    late = {
        rule: result.message
        for rule, result in results.items()
        if result.verdict is Verdict.NOT_VERIFIED
        and levels[rule] is Level.MUST
        and result.waits_for
        and all(levels[each] is Level.SHOULD for each in result.waits_for)
        and rule not in (HIDING.get(str(specimen.rule)) or ())
    }

    assert specimen.rule in failing
    assert not late
