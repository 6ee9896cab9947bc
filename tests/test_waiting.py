# SPDX-License-Identifier: Apache-2.0
"""A rule that fails because another one does comes after it, and names one that can be mended."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from conformance.running.runner import Certification
from conformance.settings import Budget, Settings
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.verdict import RuleResult
    from conformance.worker import Zygote

#: Raises for whoever asks for it.
RAISES = {
    "logits/batch": """
from vllm.v1.sample.logits_processor import LogitsProcessor

class Plugin(LogitsProcessor):
    def __init__(self, vllm_config, device, is_pin_memory):
        self.wanted = {}
    def is_argmax_invariant(self): return False
    def update_state(self, batch_update):
        for index, params, _, _ in batch_update.added if batch_update else ():
            if "token" in (params.extra_args or {}):
                self.wanted[index] = int(params.extra_args["token"]) // 0
    def apply(self, logits): return logits
""",
    "logits/slot": """
from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor

class Plugin(LogitsProcessor):
    def __init__(self, vllm_config, req_states): ...
    def add_request(self, req_idx, sampling_params):
        return "token" in (sampling_params.extra_args or {})
    def apply(self, logits, ctx):
        raise KeyError("token")
""",
}

#: Does something where there is company, and nobody knows what asks for it.
IN_COMPANY = """
from vllm.v1.sample.logits_processor import LogitsProcessor

class Plugin(LogitsProcessor):
    def __init__(self, vllm_config, device, is_pin_memory): ...
    def is_argmax_invariant(self): return False
    def update_state(self, batch_update): ...
    def apply(self, logits):
        if len(logits) > 1:
            logits[:, 5] += 1.0
        return logits
"""


def judged(folder: Path, zygote: Zygote, source: str, profile: str = "") -> dict[str, RuleResult]:
    """Certify a plugin in the simulator; return what was found by rule."""
    (folder / "plugin.py").write_text(source)
    if profile:
        (folder / "plugin.conformance.toml").write_text(f"[logits-processor]\n{profile}\n")
    settings = Settings(
        targets=("plugin.py:Plugin",),
        directory=folder,
        budget=Budget.QUICK,
        report=folder / "reports",
    )
    with Certification(settings, zygote=zygote) as certification:
        certification.load()
        checks = certification.checks()
        certification.select(checks)
        return {check.rule: certification.run(check) for check in checks}


@pytest.mark.parametrize(
    ("generation", "acts", "raises"),
    [("logits/batch", "LB-05", "LB-16"), ("logits/slot", "LS-05", "LS-22")],
)
def test_an_effect_comes_after_what_raised(
    tmp_path: Path, zygote: Zygote, generation: str, acts: str, raises: str
) -> None:
    """Where an exception keeps a row as it was, no spelling of a key is to be checked."""
    profile = "on = [{ extra_args = { token = 67 } }]\noff = [{}]"
    found = judged(tmp_path, zygote, RAISES[generation], profile)

    assert found[raises].verdict is Verdict.FAIL
    assert found[acts].verdict is Verdict.NOT_VERIFIED
    assert found[acts].waits_for == (raises,)


def test_no_rule_waits_for_one_that_does_not_apply(tmp_path: Path, zygote: Zygote) -> None:
    """Nobody knows who opts in: what the rules wait for is a profile."""
    found = judged(tmp_path, zygote, IN_COMPANY)
    waiting = {rule: result.waits_for for rule, result in found.items() if result.waits_for}

    assert found["LB-04"].verdict is Verdict.NOT_APPLICABLE
    assert not {rule for rule, others in waiting.items() if "LB-04" in others}
    assert "give a profile with the parameters, or the outputs" in str(found["LB-06"].message)


#: Reads a key, and does nothing without a setting of the deployment.
CONFIGURED = """
from vllm.v1.sample.logits_processor import LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates

class Plugin(LogitsProcessor):
    def __init__(self, vllm_config, device, is_pin_memory):
        self.limits, self.said = {}, vllm_config.additional_config.get("said", [])
    def is_argmax_invariant(self): return False
    def update_state(self, batch_update):
        process_dict_updates(self.limits, batch_update, self.limit)
    @staticmethod
    def limit(params, prompt, outputs):
        return (params.extra_args or {}).get("limit")
    def apply(self, logits):
        for row in self.limits:
            for token in self.said:
                logits[row, token] += 1.0
        return logits
"""


def test_a_setting_of_the_deployment_is_named_beside_keys(tmp_path: Path, zygote: Zygote) -> None:
    """No value of a key can switch on what the deployment has to name."""
    said = str(judged(tmp_path, zygote, CONFIGURED)["LB-05"].message)

    assert "values that it knows, and the additional_config that it asks for, such as" in said
