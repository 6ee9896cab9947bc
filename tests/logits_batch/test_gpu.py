# SPDX-License-Identifier: Apache-2.0
"""Plugins in engines and servers on a CUDA GPU."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from support import ROOT, Specimen, certify

from conformance.rules import Evidence
from conformance.settings import Device
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.worker import Zygote

REFERENCE = ROOT / "reference_plugins" / "logits_batch" / "target_token.py"
TARGET = {"on": [{"extra_args": {"target_token": 67}}], "off": [{}]}


@pytest.mark.gpu
@pytest.mark.engine
@pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no CUDA GPU on this machine")
@pytest.mark.parametrize("evidence", [Evidence.OFFLINE, Evidence.SERVER])
def test_reference_passes_on_a_gpu(zygote: Zygote, evidence: Evidence, tmp_path: Path) -> None:
    """The reference plugin passes on CUDA, where scheduling is asynchronous."""
    specimen = Specimen(f"{REFERENCE}:TargetTokenLogitsProcessor", None, TARGET)
    results = certify(zygote, specimen, tmp_path, evidence=(evidence,), device=Device.CUDA)

    good = (Verdict.PASS, Verdict.NOT_APPLICABLE)
    assert not {rule: r.message for rule, r in results.items() if r.verdict not in good}
