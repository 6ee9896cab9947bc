# SPDX-License-Identifier: Apache-2.0
"""Requests that ask for more than the plugin: what is shown of them, in both generations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support import DEFECTIVE, DEFECTIVE_SLOT, certify, gallery

from conformance.settings import Budget
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.worker import Zygote

GALLERIES = {"batch": (DEFECTIVE, "LB-39", "LB-41"), "slot": (DEFECTIVE_SLOT, "LS-36", "LS-38")}


@pytest.mark.parametrize("name", GALLERIES)
def test_the_smallest_request_is_shown(zygote: Zygote, name: str, tmp_path: Path) -> None:
    """One request with one thing more is all that a person reads, and advice waits for it."""
    folder, harm, left = GALLERIES[name]
    specimen = next(s for s in gallery(folder) if s.name == "keeps_as_many_as_logprobs")
    found = certify(zygote, specimen, tmp_path, budget=Budget.QUICK, rules={harm, left})

    assert found[harm].verdict is Verdict.FAIL
    assert (found[harm].message or "").endswith("(on[1] with logprobs=-1)")
    assert found[left].verdict is Verdict.NOT_VERIFIED


def test_a_row_without_a_token_harms_no_other(zygote: Zygote, tmp_path: Path) -> None:
    """A plugin that leaves its own request without a token breaks the advice alone."""
    specimen = next(s for s in gallery(DEFECTIVE) if s.name == "bans_its_last_token")
    found = certify(zygote, specimen, tmp_path, budget=Budget.QUICK, rules={"LB-39", "LB-41"})

    assert found["LB-39"].verdict is Verdict.PASS
    assert found["LB-39"].acted
    assert found["LB-41"].verdict is Verdict.FAIL
