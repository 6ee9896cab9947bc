# SPDX-License-Identifier: Apache-2.0
"""An installed plugin of the other model runner's interface is named before an engine starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support import ROOT

from conformance.engine.entry_points import synthetic_distribution
from conformance.plugin.target import LOGITS_PROCESSORS
from conformance.rules import Evidence
from conformance.running.runner import Certification
from conformance.settings import Settings
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.worker import Zygote

REFERENCE = ROOT / "reference_plugins"
BATCH = "reference_plugins.logits_batch.target_token:TargetTokenLogitsProcessor"
SLOT = "reference_plugins.logits_slot.target_token:TargetTokenSlotLogitsProcessor"


#: A folder, its first rule, what is installed beside it, and the runner that this keeps from
#: starting.
CASES = {
    "slot-beside-batch": ("logits_batch", "LB-01", SLOT, "the V1 model runner"),
    "batch-beside-slot": ("logits_slot", "LS-01", BATCH, "Model Runner V2"),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("evidence", [Evidence.OFFLINE, Evidence.SERVER])
def test_a_stranger_is_named(zygote: Zygote, case: str, evidence: Evidence, tmp_path: Path) -> None:
    """Nothing is shown live, nobody is blamed, and the sentence names what to uninstall."""
    folder, rule, installed, runner = CASES[case]
    synthetic_distribution(
        tmp_path, name="some-plugin", group=LOGITS_PROCESSORS, entries={"forced": installed}
    )
    settings = Settings(
        targets=(str(REFERENCE / folder / "target_token.py"),),
        evidence=(evidence,),
        python_path=(str(tmp_path), str(ROOT)),
        report=tmp_path / "report",
    )
    with Certification(settings, zygote=zygote) as certification:
        certification.load()
        check = next(check for check in certification.checks() if check.rule == rule)
        result = certification.run(check)

    assert result.verdict is Verdict.NOT_VERIFIED
    assert result.message is not None
    assert result.message.startswith(f"{runner} does not start in this environment: ")
    assert f"entry point forced ({installed})" in result.message
    assert "uninstall some-plugin" in result.message
