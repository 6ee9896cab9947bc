# SPDX-License-Identifier: Apache-2.0
"""Failures that only a GPU shows: their programs, their cases, and what is no failure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cases import failing_copy
from programs import execute, write
from support import DEFECTIVE, DEFECTIVE_SLOT, Specimen, certify, gallery

from conformance.counterexample import logits_checks
from conformance.running.replay import Outcome
from conformance.settings import Budget
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from conformance.verdict import RuleResult
    from conformance.worker import Zygote

BATCH = next(each for each in gallery(DEFECTIVE) if each.name == "adds_bias_of_host")
SLOT = next(each for each in gallery(DEFECTIVE_SLOT) if each.name == "adds_bias_of_host")
BOTH = pytest.mark.parametrize("specimen", [BATCH, SLOT], ids=lambda each: each.generation)


def _changed(specimen: Specimen, place: Path, changes: dict[str, str]) -> Specimen:
    """Write a plugin of the gallery with other lines in it."""
    source, _, name = specimen.target.rpartition(":")
    text = Path(source).read_text(encoding="utf-8")
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    path = place / Path(source).name
    path.write_text(text, encoding="utf-8")
    return Specimen(
        f"{path}:{name}", specimen.rule, specimen.profile, generation=specimen.generation
    )


def _judged(zygote: Zygote, specimen: Specimen, place: Path) -> RuleResult:
    rule = str(specimen.rule)
    return certify(zygote, specimen, place, rules={rule}, budget=Budget.QUICK)[rule]


def _mended(specimen: Specimen) -> dict[str, str]:
    """Return what mends a plugin."""
    device = "device" if specimen is BATCH else "req_states.device"
    end = "get_vocab_size())" if specimen is BATCH else "vocab_size)"
    return {end: f"{end[:-1]}, device={device})"}


@BOTH
@pytest.mark.usefixtures("shared_zygote")
def test_a_case_is_played_again(zygote: Zygote, specimen: Specimen, tmp_path: Path) -> None:
    """The case still fails without a GPU, and is fixed with the tensor made where it belongs."""
    mended = _changed(specimen, tmp_path, _mended(specimen)).target.rpartition(":")[0]
    correct = Path(mended).read_text(encoding="utf-8")
    case = failing_copy(zygote, specimen, tmp_path, budget=Budget.QUICK, correct=correct)

    outcome, sentence = case.replay()
    assert outcome is Outcome.STILL_FAILS, sentence
    assert "adds_bias_of_host.py:" in sentence

    case.mend()
    assert case.replay()[0] is Outcome.FIXED


@BOTH
def test_a_program_says_that_it_takes_a_gpu(
    zygote: Zygote, specimen: Specimen, tmp_path: Path
) -> None:
    """Told to take the CPU for a device, it runs whole: there nothing is wrong."""
    path = write(specimen, _judged(zygote, specimen, tmp_path), tmp_path)
    source = path.read_text(encoding="utf-8")
    assert logits_checks.NEEDS_GPU in source

    path.write_text(_on(source, "cpu"), encoding="utf-8")
    status, said = execute(zygote, path)
    assert status == 0, said
    assert "OK: Requests are served on a GPU" in said


def test_a_program_fails_where_the_logits_are_elsewhere(zygote: Zygote, tmp_path: Path) -> None:
    """On a device that this machine has, and that is no CPU, the program shows the fault."""
    # Where an operation changes its first tensor, that device does not look at the others.
    anew = {"logits[row] += scale * self.bias": "logits = logits + scale * self.bias"}
    specimen = _changed(BATCH, tmp_path, anew)
    path = write(specimen, _judged(zygote, specimen, tmp_path), tmp_path)
    path.write_text(_on(path.read_text(encoding="utf-8"), "meta"), encoding="utf-8")

    status, said = execute(zygote, path)
    assert status == 1, said
    assert "FAILS: on a GPU: RuntimeError: Tensor on device " in said

    _changed(BATCH, tmp_path, anew | _mended(BATCH))
    status, said = execute(zygote, path)
    assert status == 0, said


def _on(source: str, device: str) -> str:
    """Return a program for another device than a GPU."""
    assert "not torch.cuda.is_available()" in source
    return source.replace("not torch.cuda.is_available()", "False").replace("cuda:0", device)


@BOTH
@pytest.mark.parametrize(
    "line",
    [
        "if torch.cuda.is_available():\n            self.bias = self.bias.cuda()",
        'self.fast = __import__("torch").device("cuda").type == "cuda"',
    ],
    ids=["asks", "names"],
)
def test_who_looks_at_the_machine_is_not_judged(
    zygote: Zygote, specimen: Specimen, line: str, tmp_path: Path
) -> None:
    """What such a plugin does on a GPU nobody sees here: it may be right there."""
    text = Path(specimen.target.rpartition(":")[0]).read_text(encoding="utf-8")
    whole = next(each for each in text.splitlines() if "self.bias = torch.linspace(" in each)
    changes = {whole: f"{whole}\n        {line}"}
    result = _judged(zygote, _changed(specimen, tmp_path, changes), tmp_path)

    assert result.verdict is Verdict.NOT_APPLICABLE, result.message
    assert "looks at the machine" in str(result.message)


@BOTH
def test_what_takes_a_real_device_is_not_judged(
    zygote: Zygote, specimen: Specimen, tmp_path: Path
) -> None:
    """What asks a GPU for its kind raises where there is none: that is no fault, and no pass."""
    device = "device" if specimen is BATCH else "req_states.device"
    asked = f"            self.kind = torch.cuda.get_device_capability({device})\n"
    text = Path(specimen.target.rpartition(":")[0]).read_text(encoding="utf-8")
    whole = next(each for each in text.splitlines() if "self.bias = torch.linspace(" in each)
    wanted = f'        if {device}.type == "cuda":\n{asked}{whole}'
    result = _judged(zygote, _changed(specimen, tmp_path, {whole: wanted}), tmp_path)

    assert result.verdict is Verdict.NOT_APPLICABLE, result.message
    assert "only pretended" in str(result.message)
