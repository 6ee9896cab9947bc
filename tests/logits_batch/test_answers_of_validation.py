# SPDX-License-Identifier: Apache-2.0
"""What ``validate_params`` returns is nothing, whatever else it does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support import Specimen, certify

from conformance.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.worker import Zygote

PLUGIN = """\
from vllm.v1.sample.logits_processor import LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates


class Answers(LogitsProcessor):
    @classmethod
    def validate_params(cls, sampling_params):
        BODY

    def __init__(self, vllm_config, device, is_pin_memory):
        self.rows = {}

    def is_argmax_invariant(self):
        return False

    def update_state(self, batch_update):
        process_dict_updates(self.rows, batch_update, self.token_of)

    @staticmethod
    def token_of(params, prompt_ids, output_ids):
        return (params.extra_args or {}).get("token")

    def apply(self, logits):
        for row, token in self.rows.items():
            logits[row, token] += 9.0
        return logits
"""


@pytest.mark.parametrize(
    ("body", "verdict", "said"),
    [
        ("return None", Verdict.PASS, "None"),
        ("return False", Verdict.FAIL, "a bool for on[0], not None"),
        ("return ''", Verdict.FAIL, "a str for on[0], not None"),
        ("return sampling_params.clone()", Verdict.FAIL, "a SamplingParams for on[0], not None"),
        ("raise ValueError('never')", Verdict.NOT_VERIFIED, "admits none of the requests"),
    ],
)
def test_only_none_is_nothing(
    zygote: Zygote, tmp_path: Path, body: str, verdict: Verdict, said: str
) -> None:
    """What is false or empty is something; where nothing is admitted, nothing can be said."""
    path = tmp_path / "answers.py"
    path.write_text(PLUGIN.replace("BODY", body), encoding="utf-8")
    profile = {"on": [{"extra_args": {"token": 67}}], "off": [{}]}
    specimen = Specimen(f"{path}:Answers", None, profile)
    found = certify(zygote, specimen, tmp_path, rules={"LB-48"})["LB-48"]

    assert found.verdict is verdict, found.message
    assert said in str(found.message)
