# SPDX-License-Identifier: Apache-2.0
"""Batch plugins in engines that schedule asynchronously, as they do on a GPU.

vLLM's CPU platform switches that off and nothing else: its runner can do it.
"""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

import pytest
from support import ROOT, Specimen, certify

from conformance.rules import Evidence
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.worker import Zygote

REFERENCES = ROOT / "reference_plugins" / "logits_batch"

#: A plugin whose engines schedule asynchronously unless they are told not to; each says how it is.
ASYNCHRONOUS = """\
from vllm.platforms.cpu import CpuPlatform

from reference_plugins.logits_batch.{module} import {name}

checked = CpuPlatform.check_and_update_config.__func__


def check(cls, config):
    wanted = config.scheduler_config.async_scheduling is not False
    checked(cls, config)
    config.scheduler_config.async_scheduling = wanted


CpuPlatform.check_and_update_config = classmethod(check)


class Plugin({name}):
    def __init__(self, vllm_config, device, is_pin_memory):
        super().__init__(vllm_config, device, is_pin_memory)
        with open({said!r}, "a") as file:
            file.write(f"{{vllm_config.scheduler_config.async_scheduling}}\\n")
"""


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("thinking_budget", "ThinkingBudgetLogitsProcessor"),
        ("probability_floor", "ProbabilityFloorLogitsProcessor"),
    ],
)
def test_asynchronous_scheduling_shows_as_much(
    zygote: Zygote, tmp_path: Path, module: str, name: str
) -> None:
    """No rule fails, and none is left out: rows are taken over there, too.

    Only where a plugin is an entry point alone is scheduling synchronous.
    """
    said = tmp_path / "said"
    (tmp_path / "plugin.py").write_text(
        ASYNCHRONOUS.format(module=module, name=name, said=str(said))
    )
    profile = tomllib.loads((REFERENCES / f"{module}.conformance.toml").read_text("utf-8"))
    section = profile["logits-processor"]
    specimen = Specimen(f"{tmp_path / 'plugin.py'}:Plugin", None, section)
    results = certify(zygote, specimen, tmp_path, evidence=(Evidence.OFFLINE,))

    good = (Verdict.PASS, Verdict.NOT_APPLICABLE)
    assert not {rule: r.message for rule, r in results.items() if r.verdict not in good}
    assert results["LB-06"].examples > 0
    assert set(said.read_text().split()) == {"True", "False"}
