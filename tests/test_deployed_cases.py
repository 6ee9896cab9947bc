# SPDX-License-Identifier: Apache-2.0
"""Cases of a plugin that needs what its profile sets."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

from user import CLI, certificates, environment, run, verdicts

from conformance.inputs.tiny_tokenizer import tokenizer_document

if TYPE_CHECKING:
    from pathlib import Path

#: Fails in each request, and cannot be made without a variable that no shell has.
PLUGIN = """
import os

from vllm.v1.sample.logits_processor import LogitsProcessor

class Plugin(LogitsProcessor):
    def __init__(self, vllm_config, device, is_pin_memory):
        self.key = os.environ["KEY_OF_PLUGIN"]

    def is_argmax_invariant(self):
        return False

    def update_state(self, batch_update):
        pass

    def apply(self, logits):
        raise RuntimeError(f"{self.key} opens nothing")
"""

PROFILE = """
[logits-processor]
on = [ {} ]
off = []

[logits-processor.environment]
KEY_OF_PLUGIN = "the second key"
"""

#: Fails for a token that the tokenizer of its model names, under a key that its deployment names.
DEPLOYED = """
import json
from pathlib import Path

from vllm.v1.sample.logits_processor import LogitsProcessor

class Plugin(LogitsProcessor):
    def __init__(self, vllm_config, device, is_pin_memory):
        key = vllm_config.additional_config["key"]
        path = Path(vllm_config.model_config.tokenizer, "tokenizer_config.json")
        self.token = json.loads(path.read_text())[key]
        self.end = vllm_config.model_config.hf_config.eos_token_id

    def is_argmax_invariant(self):
        return False

    def update_state(self, batch_update):
        pass

    def apply(self, logits):
        raise RuntimeError(f"{self.token} comes before {self.end}")
"""

DEPLOYED_PROFILE = """
[logits-processor]
on = [ {} ]
off = []
tokenizer = "model"
additional_config = { key = "marker" }
config = { eos_token_id = 11 }
"""


def test_a_case_has_the_profile_and_its_program_the_variables(tmp_path: Path) -> None:
    """It is played again, and its program runs, where nothing is set."""
    (tmp_path / "opens.py").write_text(PLUGIN)
    profile = tmp_path / "elsewhere" / "opens.toml"
    profile.parent.mkdir()
    profile.write_text(PROFILE)
    command = (*CLI, "certify", "opens.py", f"--plugin-profile={profile.relative_to(tmp_path)}")
    run(*command, folder=tmp_path)
    (document,) = certificates(tmp_path).values()
    (case,) = tmp_path.rglob("cases/LB-16.json")

    assert verdicts(document)["LB-16"] == "fail"
    assert json.loads(case.read_text(encoding="utf-8"))["profile"] == str(profile)

    status, said = run(*CLI, "replay", str(case), folder=tmp_path)

    assert "STILL FAILS" in said
    assert status == 1

    program = [sys.executable, str(case.with_suffix(".py"))]
    done = subprocess.run(
        program, check=False, capture_output=True, text=True, env=environment(tmp_path)
    )

    assert "the second key opens nothing" in done.stdout
    assert done.returncode == 1


def test_programs_have_the_model_and_the_engine_of_the_profile(tmp_path: Path) -> None:
    """A plugin is made with its tokenizer, config and additional_config, as where it failed."""
    (tmp_path / "deployed.py").write_text(DEPLOYED)
    (tmp_path / "deployed.conformance.toml").write_text(DEPLOYED_PROFILE)
    model = tmp_path / "model"
    model.mkdir()
    (model / "tokenizer.json").write_text(json.dumps(tokenizer_document()))
    kind = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>", "marker": 67}
    (model / "tokenizer_config.json").write_text(json.dumps(kind))
    run(*CLI, "certify", "deployed.py", folder=tmp_path)
    (document,) = certificates(tmp_path).values()
    (case,) = tmp_path.rglob("cases/LB-16.json")

    assert document["profile"]["tokenizer"] == "model"
    assert document["profile"]["additional_config"] == {"key": "marker"}
    assert document["profile"]["config"] == {"eos_token_id": 11}

    program = [sys.executable, str(case.with_suffix(".py"))]
    done = subprocess.run(
        program, check=False, capture_output=True, text=True, env=environment(tmp_path)
    )

    assert "67 comes before 11" in done.stdout
    assert done.returncode == 1
