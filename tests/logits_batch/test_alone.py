# SPDX-License-Identifier: Apache-2.0
"""A rule that is asked for by itself says what it says among all others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support import DEFECTIVE, DEFECTIVE_SLOT, certify, gallery

from conformance.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from support import Specimen

    from conformance.worker import Zygote

#: Faults that the stratum of a rule shows, that any stratum does, and that need no history at all.
NAMES = {
    "ignores_removed",
    "counts_apply_calls",
    "drops_batch_dimension",
    "collects_params_on_class",
    "keeps_params_of_every_request",
}


@pytest.mark.gallery
@pytest.mark.parametrize(
    "specimen",
    [
        pytest.param(specimen, id=f"{specimen.generation}-{specimen.name}")
        for specimen in (*gallery(DEFECTIVE), *gallery(DEFECTIVE_SLOT))
        if specimen.name in NAMES
    ],
)
def test_a_rule_alone_says_the_same(zygote: Zygote, specimen: Specimen, tmp_path: Path) -> None:
    """Only what is needed is played for few rules; what is found is the same."""
    every = certify(zygote, specimen, tmp_path)
    assert specimen.rule
    few = [specimen.rule, next(rule for rule, of in every.items() if of.verdict is Verdict.PASS)]
    for rule in few:
        alone = certify(zygote, specimen, tmp_path, rules={rule})[rule]

        assert (alone.verdict, alone.message) == (every[rule].verdict, every[rule].message)
