# SPDX-License-Identifier: Apache-2.0
"""Cases of slot plugins, played again; and their programs, run without this harness."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest
from programs import write
from support import DEFECTIVE_SLOT, ROOT, certify, gallery
from user import CACHE

from conformance.engine.environment import host_environment
from conformance.replay import Outcome, replay_case
from conformance.settings import Budget
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from support import Specimen

    from conformance.worker import Zygote

SPECIMENS = {specimen.name: specimen for specimen in gallery(DEFECTIVE_SLOT)}
REFERENCE = ROOT / "reference_plugins" / "logits_slot" / "target_token.py"

#: Plugins of the target token, and what their counterexamples are.
KINDS = {
    "keeps_target_of_previous_occupant": "history",
    "writes_zero_for_target": "check",
    "has_no_validate_params": "check",
}


@attrs.frozen
class Case:
    """A case file, and the plugin that it is about, in a folder of their own."""

    path: Path
    plugin: Path
    qualname: str

    def mend(self) -> None:
        """Put the reference plugin in the place of the defective one, under its name."""
        correct = REFERENCE.read_text(encoding="utf-8")
        name = "TargetTokenSlotLogitsProcessor"
        self.plugin.write_text(correct.replace(name, self.qualname), encoding="utf-8")

    def raise_in_apply(self) -> None:
        """Let the plugin raise, which is another fault."""
        source = self.plugin.read_text(encoding="utf-8")
        head = "def apply(self, logits, ctx):"
        assert head in source
        broken = source.replace(head, f"{head}\n        raise OSError")
        self.plugin.write_text(broken, encoding="utf-8")

    def replay(self) -> tuple[Outcome, str]:
        """Play the case again."""
        return replay_case(self.path, python_path=())


def _case(zygote: Zygote, original: Specimen, folder: Path) -> Case:
    """Certify a copy of a defective plugin, and write the case of its failure."""
    source, _, qualname = original.target.rpartition(":")
    plugin = folder / Path(source).name
    shutil.copy(source, plugin)
    specimen = attrs.evolve(original, target=f"{plugin}:{qualname}")
    rule = str(specimen.rule)
    result = certify(zygote, specimen, folder, rules={rule}, budget=Budget.QUICK)[rule]
    assert result.verdict is Verdict.FAIL, result.message
    return Case(write(specimen, result, folder).with_suffix(".json"), plugin, qualname)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.usefixtures("shared_zygote")
def test_a_case_is_played_again(zygote: Zygote, name: str, tmp_path: Path) -> None:
    """With the plugin as it was it still fails, and with a correct one it is fixed."""
    case = _case(zygote, SPECIMENS[name], tmp_path)
    document = json.loads(case.path.read_text(encoding="utf-8"))

    assert document["generation"] == "logits/slot"
    assert document["counterexample"]["kind"] == KINDS[name]
    outcome, sentence = case.replay()
    assert outcome is Outcome.STILL_FAILS, sentence
    assert sentence.startswith(f"{SPECIMENS[name].rule}: ")

    case.mend()
    assert case.replay()[0] is Outcome.FIXED


@pytest.mark.parametrize("name", ["keeps_target_of_previous_occupant", "writes_zero_for_target"])
@pytest.mark.usefixtures("shared_zygote")
def test_another_fault_is_no_mending(zygote: Zygote, name: str, tmp_path: Path) -> None:
    """A plugin that fails in another way, or cannot be imported any more, is not fixed."""
    case = _case(zygote, SPECIMENS[name], tmp_path)

    case.raise_in_apply()
    outcome, sentence = case.replay()
    assert outcome is Outcome.CHANGED, sentence
    assert "OSError" in sentence

    case.plugin.write_text("import nothing_of_that_name\n", encoding="utf-8")
    outcome, sentence = case.replay()
    assert outcome is Outcome.CHANGED, sentence
    assert "nothing_of_that_name" in sentence


@pytest.mark.usefixtures("shared_zygote")
def test_a_case_is_of_its_generation(zygote: Zygote, tmp_path: Path) -> None:
    """A class that was mended and serves both runners now is asked as the slot plugin it was."""
    case = _case(zygote, SPECIMENS["keeps_target_of_previous_occupant"], tmp_path)
    dual = REFERENCE.with_name("dual_target_token.py").read_text(encoding="utf-8")
    (name,) = [
        line.partition("class ")[2].partition("(")[0]
        for line in dual.splitlines()
        if line.startswith("class ")
    ]
    case.plugin.write_text(dual.replace(name, case.qualname), encoding="utf-8")

    assert case.replay()[0] is Outcome.FIXED


def test_a_program_needs_nothing_but_python(zygote: Zygote, tmp_path: Path) -> None:
    """``python program.py`` in an empty folder: it fails, and with a correct plugin it does not."""
    case = _case(zygote, SPECIMENS["keeps_target_of_previous_occupant"], tmp_path)
    program = case.path.with_suffix(".py")

    failing = _execute(program, tmp_path)
    case.mend()
    fixed = _execute(program, tmp_path)

    assert failing.returncode == 1, failing.stderr
    assert "FAILS: " in failing.stdout
    assert "conformance" not in failing.stderr.replace(str(ROOT), "")
    assert fixed.returncode == 0, fixed.stdout + fixed.stderr
    assert fixed.stdout.splitlines()[-1].startswith("OK: ")


def _execute(program: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program with an environment that knows nothing of this harness."""
    place = folder / "elsewhere"
    place.mkdir(exist_ok=True)
    prepared = host_environment(extra={"VLLM_CONFORMANCE_CACHE": CACHE})
    kept = ("PATH", "HOME", "LD_LIBRARY_PATH", "LD_PRELOAD")
    environment = {key: os.environ[key] for key in kept if key in os.environ}
    # Where vLLM keeps what it has learnt about model classes; learning it again takes long.
    environment["VLLM_CACHE_ROOT"] = prepared["VLLM_CACHE_ROOT"]
    return subprocess.run(
        [sys.executable, str(program)],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
