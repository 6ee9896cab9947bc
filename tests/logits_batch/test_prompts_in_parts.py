# SPDX-License-Identifier: Apache-2.0
"""Prompts that are computed in part are advice, also where swaps come beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support import Specimen, certify

from conformance.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.worker import Zygote

#: Counts rows whose prompt is not computed yet, which shows where a later row is near the mean.
PLUGIN = """\
from __future__ import annotations

import torch
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor


class Cooling:
    def __init__(self, warm, cool, step):
        self.warm, self.cool, self.step = warm, cool, step
        self.total = self.count = 0
        self.latest = []

    def __call__(self, output_ids, logits):
        if output_ids and output_ids[-1] == self.step:
            self.latest = []
        chances = torch.softmax(logits, dim=-1)
        entropy = float(-(chances * chances.clamp(min=1e-10).log()).sum())
        estimate = sum(self.latest) / len(self.latest) if self.latest else entropy
        mean = self.total / self.count if self.count else estimate
        uncertain = entropy >= (estimate if estimate > mean else 5.0)
        self.latest = [*self.latest, entropy][-2:]
        self.total, self.count = self.total + entropy, self.count + 1
        return logits / (self.warm if uncertain else self.cool)


class CoolsByUncertainty(AdapterLogitsProcessor):
    @classmethod
    def validate_params(cls, sampling_params):
        warm = (sampling_params.extra_args or {}).get("warm", 1.5)
        if type(warm) is not float or not 0.1 <= warm <= 9.0:
            raise ValueError(f"warm must be a number between 0.1 and 9 (got {warm!r})")

    def is_argmax_invariant(self):
        return False

    def new_req_logits_processor(self, params):
        warm = (params.extra_args or {}).get("warm")
        return None if warm is None else Cooling(warm, 0.3, 40)
"""

PROFILE = {
    "on": [{"extra_args": {"warm": 1.5}}, {"extra_args": {"warm": 1.25}}],
    "off": [{}],
    "tokens": [40],
}


@pytest.mark.usefixtures("shared_zygote")
def test_what_prompts_in_part_break_is_no_fault_of_swaps(zygote: Zygote, tmp_path: Path) -> None:
    """With this seed it shows in the histories that have swaps, and in none without."""
    (tmp_path / "plugin.py").write_text(PLUGIN, encoding="utf-8")
    target = str(tmp_path / "plugin.py:CoolsByUncertainty")
    plugin = Specimen(target, None, PROFILE, generation="logits/batch")
    found = certify(zygote, plugin, tmp_path, seed=2)

    assert found["LB-18"].verdict is Verdict.FAIL
    assert found["LB-08"].verdict is Verdict.PASS, found["LB-08"].message
    assert found["LB-20"].verdict is Verdict.PASS, found["LB-20"].message
