# SPDX-License-Identifier: Apache-2.0
"""Which generation a class is certified for: those that it is of, or the one that is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from support import ROOT
from user import certificates

from conformance.cli import main
from conformance.generations import all_generations
from conformance.rules import Evidence
from conformance.running.runner import Certification
from conformance.settings import Settings, folder_name
from conformance.verdict import ExitStatus, Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.worker import Zygote

REFERENCE = ROOT / "reference_plugins"
DUAL = REFERENCE / "logits_slot" / "dual_target_token.py"
DUAL_CLASS = "DualTargetTokenLogitsProcessor"
SLOT_BASE = "vllm.v1.worker.gpu.sample.logits_processor.LogitsProcessor"
BATCH_BASE = "vllm.v1.sample.logits_processor.LogitsProcessor"

#: A class of one interface, asked for as one of the other.
STRANGERS = {
    "batch-as-slot": (
        "logits_batch/target_token.py",
        "TargetTokenLogitsProcessor",
        "logits/slot",
        "LS-01",
        SLOT_BASE,
    ),
    "slot-as-batch": (
        "logits_slot/target_token.py",
        "TargetTokenSlotLogitsProcessor",
        "logits/batch",
        "LB-01",
        BATCH_BASE,
    ),
}


def _refused(target: str) -> str:
    """Return what is said of a target that is a mistake."""
    done = CliRunner().invoke(main, ["certify", target])
    assert done.exit_code == ExitStatus.USAGE, done.output
    return done.output


@pytest.mark.usefixtures("shared_zygote")
def test_a_class_of_both_interfaces_gets_two_certificates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One for each generation, in a folder of its own, with that generation's rules."""
    monkeypatch.chdir(tmp_path)
    target = f"{DUAL}:{DUAL_CLASS}"
    done = CliRunner().invoke(main, ["certify", target, "--budget", "quick"])

    assert done.exit_code == 0, done.output
    found = certificates(tmp_path)
    assert list(found) == [f"{target}@logits/batch", f"{target}@logits/slot"]
    for name, prefix in (("logits/batch", "LB-"), ("logits/slot", "LS-")):
        document = found[f"{target}@{name}"]
        assert document["plugin"]["generation"] == name
        assert document["verdict"] == "conformant"
        assert {rule["id"][:3] for rule in document["rules"]} == {prefix}
        folder = tmp_path / "reports" / "local" / folder_name(f"{target}@{name}")
        assert (folder / "certificate.json").is_file()


@pytest.mark.parametrize("form", [f"{DUAL}:{DUAL_CLASS}", str(DUAL)], ids=["class", "file"])
@pytest.mark.parametrize("name", ["logits/batch", "logits/slot"])
def test_a_generation_that_is_named_is_the_only_one(zygote: Zygote, form: str, name: str) -> None:
    """``TARGET@GENERATION`` is about that generation, whatever else the class serves."""
    with Certification(Settings(targets=(f"{form}@{name}",)), zygote=zygote) as certification:
        (plugin,) = certification.load()
        checks = certification.checks()

    assert plugin.generation == name
    assert plugin.target.endswith(f"@{name}")
    assert plugin.target.count("@") == 1
    assert plugin.broken is None
    assert {check.plugin for check in checks} == {plugin}


def test_one_class_named_in_several_ways_is_certified_once(zygote: Zygote) -> None:
    """A class of both interfaces and one of its generations are two plugins, not three."""
    target = f"{DUAL}:{DUAL_CLASS}"
    settings = Settings(targets=(target, f"{target}@logits/slot"))
    with Certification(settings, zygote=zygote) as certification:
        found = [plugin.target for plugin in certification.load()]

    assert found == [f"{target}@logits/batch", f"{target}@logits/slot"]


@pytest.mark.usefixtures("shared_zygote")
def test_an_unknown_generation_is_a_mistake(tmp_path: Path) -> None:
    """The sentence says which there are, and which one was probably meant."""
    known = ", ".join(generation.name for generation in all_generations())
    expected = (
        f"there is no generation 'logits/slots' (there are {known}). Did you mean 'logits/slot'?"
    )
    target = f"{DUAL}:{DUAL_CLASS}@logits/slots"

    assert expected in " ".join(_refused(target).split())

    broken = tmp_path / "broken.py"
    broken.write_text("raise RuntimeError\n", encoding="utf-8")
    assert expected in " ".join(_refused(f"{broken}@logits/slots").split())


@pytest.mark.parametrize("case", STRANGERS)
def test_a_class_of_the_other_interface_fails_the_loading_rule(
    zygote: Zygote, case: str, tmp_path: Path
) -> None:
    """One sentence says what it is not a subclass of, and no engine or server starts."""
    file, name, generation, rule, base = STRANGERS[case]
    settings = Settings(
        targets=(f"{REFERENCE / file}:{name}@{generation}",),
        evidence=tuple(Evidence),
        report=tmp_path / "report",
    )
    with Certification(settings, zygote=zygote) as certification:
        (plugin,) = certification.load()
        certification.select(checks := certification.checks())
        results = [certification.run(check) for check in checks]

    assert plugin.generation == generation
    loading = [result for result in results if result.rule == rule]
    assert {result.evidence for result in loading} == set(Evidence)
    assert {result.verdict for result in loading} == {Verdict.FAIL}
    assert {result.message for result in loading} == {f"{name} is not a subclass of {base}"}
    others = {result.verdict for result in results if result.rule != rule}
    assert others == {Verdict.NOT_VERIFIED}
    # Every process of a trial writes a log.
    assert not list(tmp_path.rglob("*.log"))


@pytest.mark.parametrize("case", STRANGERS)
def test_without_a_name_a_class_is_what_it_is(zygote: Zygote, case: str) -> None:
    """A class of one interface is a plugin of that one, under the name that was typed."""
    file, name, generation, *_ = STRANGERS[case]
    target = f"{REFERENCE / file}:{name}"
    with Certification(Settings(targets=(target,)), zygote=zygote) as certification:
        (plugin,) = certification.load()

    assert plugin.generation != generation
    assert (plugin.target, plugin.broken) == (target, None)
