# SPDX-License-Identifier: Apache-2.0
"""Every defective plugin of a modality fails by the rule that is about its fault."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from support import DEFECTIVE_MODALITY, caught, certify, gallery

from conformance.multimodal.modality.catalogue import RULES
from conformance.multimodal.modality.checks import CHECKS
from conformance.multimodal.modality.suite import SUITE
from conformance.multimodal.modality.trial import SURVIVES
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from support import Specimen

    from conformance.worker import Zygote

KINDS = {"audio", "image", "own", "point_cloud", "video"}

SPECIMENS = gallery(DEFECTIVE_MODALITY)


@pytest.mark.parametrize("specimen", SPECIMENS, ids=lambda specimen: specimen.name)
def test_dies_by_its_own_rule(zygote: Zygote, specimen: Specimen, tmp_path: Path) -> None:
    """A defective plugin fails by its rule's id, with a sentence that is the same every time."""
    assert specimen.rule is not None
    result = caught(zygote, specimen, tmp_path)

    assert result.verdict is Verdict.FAIL, result.message
    assert result.message
    assert not re.search(r"0x[0-9a-f]{6}", result.message)
    assert result.counterexample is not None
    assert result.counterexample["kind"] == "check"


@pytest.mark.nightly
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("specimen", SPECIMENS, ids=lambda specimen: specimen.name)
def test_dies_whatever_is_drawn(
    zygote: Zygote, specimen: Specimen, seed: int, tmp_path: Path
) -> None:
    """No seed lets a defective plugin through."""
    assert specimen.rule is not None
    results = certify(zygote, specimen, tmp_path, rules={specimen.rule}, seed=seed)

    assert results[specimen.rule].verdict is Verdict.FAIL, results[specimen.rule].message


#: A plugin of each part of the catalogue, whose fault is in the way of nothing else.
ALONE = (
    "reads_every_letter",
    "ignores_the_deployment",
    "judges_the_average",
    "promises_bitmaps",
    "swaps_red_and_blue",
    "asks_for_a_url",
    "fills_up_with_silence",
    "asks_any_address",
    "forgets_the_rate",
    "rounds_the_estimate_down",
    "counts_frames_one_by_one",
    "scales_by_the_loudest_so_far",
    "keeps_the_picture_on_self",
    "works_in_a_shared_buffer",
    "returns_its_buffer",
    "leaves_files_behind",
    "keeps_every_picture",
)


@pytest.mark.parametrize(
    "specimen", [s for s in SPECIMENS if s.name in ALONE], ids=lambda specimen: specimen.name
)
def test_dies_by_no_other_rule(zygote: Zygote, specimen: Specimen, tmp_path: Path) -> None:
    """One fault is one failure, and whatever cannot be judged beside it says so."""
    results = certify(zygote, specimen, tmp_path)

    assert [r.rule for r in results.values() if r.verdict is Verdict.FAIL] == [specimen.rule]
    assert Verdict.ERROR not in {result.verdict for result in results.values()}


def test_every_rule_has_a_defective_plugin() -> None:
    """No rule is without a plugin that it catches, and no modality is left out."""
    assert {specimen.rule for specimen in SPECIMENS} == {rule.id for rule in RULES}
    assert {rule.id for rule in RULES} == {*CHECKS, SURVIVES, *(SUITE.shares or ())}
    assert {specimen.kind for specimen in SPECIMENS} == KINDS
    assert set(ALONE) <= {specimen.name for specimen in SPECIMENS}
