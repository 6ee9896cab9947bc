# SPDX-License-Identifier: Apache-2.0
"""Parameter sets of a profile that the plugin itself refuses reach no engine."""

from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING, Any

import pytest
from support import certificate_of

from conformance.reporting import summary
from conformance.settings import Budget, Settings

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.worker import Zygote

#: As in the example of vLLM's documentation: an empty table is neither nothing nor a number.
PLUGIN = dedent("""\
    from vllm.v1.sample.logits_processor import LogitsProcessor
    from vllm.v1.sample.logits_processor.builtin import process_dict_updates


    class Bonus(LogitsProcessor):
        @classmethod
        def validate_params(cls, params):
            bonus = params.extra_args and params.extra_args.get("bonus")
            if bonus is not None and not (type(bonus) is int and 0 <= bonus <= 50):
                raise ValueError(f"bonus must be a number up to 50, not {bonus!r}")

        def __init__(self, vllm_config, device, is_pin_memory):
            self.bonuses = {}

        def is_argmax_invariant(self):
            return False

        def update_state(self, batch_update):
            process_dict_updates(self.bonuses, batch_update, self.asked)

        def asked(self, params, prompt_ids, output_ids):
            self.validate_params(params)
            return params.extra_args and params.extra_args.get("bonus")

        def apply(self, logits):
            for row, bonus in self.bonuses.items():
                logits[row, 7] += bonus
            return logits
    """)


@pytest.mark.parametrize(
    ("off", "refused"), [("[{}, { extra_args = {} }]", True), ("[{}]", False)], ids=["said", "not"]
)
def test_no_history_has_a_refused_set(
    zygote: Zygote, tmp_path: Path, off: str, *, refused: bool
) -> None:
    """Admission is to blame for it; where nobody has named it, each certificate says it."""
    (tmp_path / "bonus.py").write_text(PLUGIN, encoding="utf-8")
    profile = f"[logits-processor]\non = [{{ extra_args = {{ bonus = 5 }} }}]\noff = {off}\n"
    (tmp_path / "bonus.conformance.toml").write_text(profile, encoding="utf-8")
    target = (str(tmp_path / "bonus.py"),)
    settings = Settings(targets=target, budget=Budget.QUICK, report=tmp_path / "report")
    document: dict[str, Any] = certificate_of(zygote, settings)
    failed = {rule["id"] for rule in document["rules"] if rule["verdict"] == "fail"}

    assert failed == ({"LB-15"} if refused else set())
    said = "each request to /v1/responses without vllm_xargs has {'extra_args': {}}, and is refused"
    assert (said in summary.text(document)) is not refused
