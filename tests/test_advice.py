# SPDX-License-Identifier: Apache-2.0
"""Advice that is not followed keeps no plugin from being judged by all that it must do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support import (
    DEFECTIVE,
    DEFECTIVE_HOOK,
    DEFECTIVE_IO,
    DEFECTIVE_MODALITY,
    DEFECTIVE_PARSER,
    DEFECTIVE_PROCESSOR,
    DEFECTIVE_SLOT,
    certify,
    gallery,
)

from conformance.generations import named
from conformance.rules import Evidence, Level
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from support import Specimen

    from conformance.worker import Zygote

GALLERIES = (
    DEFECTIVE,
    DEFECTIVE_SLOT,
    *DEFECTIVE_IO,
    DEFECTIVE_HOOK,
    DEFECTIVE_MODALITY,
    DEFECTIVE_PROCESSOR,
    *DEFECTIVE_PARSER,
)


def _levels(specimen: Specimen) -> dict[str, Level]:
    return {rule.id: rule.level for rule in named(specimen.generation).rules}


ADVICE = [
    specimen
    for folder in GALLERIES
    for specimen in gallery(folder)
    if specimen.evidence is Evidence.SIMULATOR
    and _levels(specimen).get(specimen.rule or "") is Level.SHOULD
]


@pytest.mark.parametrize("specimen", ADVICE, ids=lambda each: f"{each.rule}-{each.name}")
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
    }

    assert specimen.rule in failing
    assert not late
