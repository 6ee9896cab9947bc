# SPDX-License-Identifier: Apache-2.0
"""Correct slot plugins pass everything: ours, and unusual ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from specimens import slot_references
from support import GOOD, UNUSUAL_SLOT, certify, gallery

from conformance.rules import Evidence
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from support import Specimen

    from conformance.worker import Zygote


@pytest.mark.parametrize(
    "specimen",
    [*slot_references(), *gallery(UNUSUAL_SLOT)],
    ids=lambda specimen: specimen.label,
)
def test_passes_everything(zygote: Zygote, specimen: Specimen, tmp_path: Path) -> None:
    """A correct plugin passes every rule that applies to it."""
    results = certify(zygote, specimen, tmp_path)

    broken = {rule: found.message for rule, found in results.items() if found.verdict not in GOOD}
    assert set(broken) == set(specimen.advice), broken
    assert results["LS-03"].acted or specimen.profile.get("on") == []


@pytest.mark.engine
@pytest.mark.parametrize("specimen", gallery(UNUSUAL_SLOT), ids=lambda specimen: specimen.label)
def test_no_engine_blames_it(zygote: Zygote, specimen: Specimen, tmp_path: Path) -> None:
    """Nor does a correct plugin fail in a real engine, but for what is advice there."""
    results = certify(zygote, specimen, tmp_path, evidence=(Evidence.OFFLINE,))

    bad = {Verdict.FAIL, Verdict.ERROR}
    broken = {rule: found.message for rule, found in results.items() if found.verdict in bad}
    assert set(broken) <= {*specimen.advice, "LS-08", "LS-09"}, broken
    assert results["LS-01"].verdict is Verdict.PASS
