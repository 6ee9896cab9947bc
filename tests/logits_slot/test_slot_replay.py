# SPDX-License-Identifier: Apache-2.0
"""Cases of slot plugins, played again; and their programs, run without this harness."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from cases import failing_copy
from programs import execute_apart
from support import DEFECTIVE_SLOT, ROOT, gallery

from conformance.running.replay import Outcome
from conformance.settings import Budget

if TYPE_CHECKING:
    from pathlib import Path

    from cases import Case

    from conformance.worker import Zygote

SPECIMENS = {specimen.name: specimen for specimen in gallery(DEFECTIVE_SLOT)}
QUALNAMES = {name: one.target.rpartition(":")[2] for name, one in SPECIMENS.items()}
REFERENCE = ROOT / "reference_plugins" / "logits_slot" / "target_token.py"

#: Plugins of the target token, and what their counterexamples are.
KINDS = {
    "keeps_target_of_previous_occupant": "history",
    "writes_zero_for_target": "check",
    "has_no_validate_params": "check",
}


def _case(zygote: Zygote, name: str, folder: Path) -> Case:
    """Let a plugin of the gallery fail; the reference plugin under its name is correct."""
    correct = REFERENCE.read_text(encoding="utf-8")
    correct = correct.replace("TargetTokenSlotLogitsProcessor", QUALNAMES[name])
    return failing_copy(zygote, SPECIMENS[name], folder, budget=Budget.QUICK, correct=correct)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.usefixtures("shared_zygote")
def test_a_case_is_played_again(zygote: Zygote, name: str, tmp_path: Path) -> None:
    """With the plugin as it was it still fails, and with a correct one it is fixed."""
    case = _case(zygote, name, tmp_path)
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
    case = _case(zygote, name, tmp_path)

    head = "def apply(self, logits, ctx):"
    case.replace(head, f"{head}\n        raise OSError")
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
    slot = "keeps_target_of_previous_occupant"
    case = _case(zygote, slot, tmp_path)
    dual = REFERENCE.with_name("dual_target_token.py").read_text(encoding="utf-8")
    (name,) = [
        line.partition("class ")[2].partition("(")[0]
        for line in dual.splitlines()
        if line.startswith("class ")
    ]
    case.plugin.write_text(dual.replace(name, QUALNAMES[slot]), encoding="utf-8")

    assert case.replay()[0] is Outcome.FIXED


def test_a_program_needs_nothing_but_python(zygote: Zygote, tmp_path: Path) -> None:
    """``python program.py`` in an empty folder: it fails, and with a correct plugin it does not."""
    case = _case(zygote, "keeps_target_of_previous_occupant", tmp_path)

    failing = execute_apart(case.program)
    case.mend()
    fixed = execute_apart(case.program)

    assert failing.returncode == 1, failing.stderr
    assert "FAILS: " in failing.stdout
    assert "conformance" not in failing.stderr.replace(str(ROOT), "")
    assert fixed.returncode == 0, fixed.stdout + fixed.stderr
    assert fixed.stdout.splitlines()[-1].startswith("OK: ")
