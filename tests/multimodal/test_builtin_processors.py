# SPDX-License-Identifier: Apache-2.0
"""What is told of vLLM's own multi-modal processors is what was found, and was read."""

from __future__ import annotations

import importlib.util
import json
import tomllib
from typing import TYPE_CHECKING

import builtin_processors
import pytest
from families import FAMILIES
from support import ROOT, Specimen, certify

from conformance.running.runner import Certification
from conformance.settings import Settings
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.worker import Zygote

DATA = json.loads(builtin_processors.DATA.read_text(encoding="utf-8"))
NOTES = tomllib.loads(builtin_processors.NOTES.read_text(encoding="utf-8"))

#: Families that need nothing beside vLLM: an encoder-decoder, and one whose template writes chats.
ALONE = ("whisper", "audio-flamingo-3")

#: What each family fails, by the table.
FAILING = {
    name: {rule["id"] for rule in family["failing"]} for name, family in DATA["families"].items()
}


def test_the_page_is_drawn_from_the_data() -> None:
    """Nobody edits it: ``python tests/builtin_processors.py --draw`` draws it again."""
    drawn = builtin_processors.page(DATA, NOTES)

    assert builtin_processors.PAGE.read_text(encoding="utf-8") == drawn


def test_each_failure_was_read() -> None:
    """A sentence says of each what vLLM does, and of no other; programs are there."""
    read = {name: set(rules) for name, rules in NOTES["read"].items()}
    programs = {
        note["program"]
        for rules in NOTES["read"].values()
        for note in rules.values()
        if "program" in note
    }

    assert read == {name: rules for name, rules in FAILING.items() if rules}
    assert all((ROOT / "docs" / "findings" / name).is_file() for name in programs)


def test_families_are_judged_or_not() -> None:
    """At least fifteen are, and those that are not have a reason."""
    judged = set(DATA["families"])

    assert len(judged) >= 15
    assert set(FAMILIES) - judged <= NOTES["not_judged"].keys()
    assert not judged & NOTES["not_judged"].keys()


def _failed(zygote: Zygote, name: str, folder: Path) -> set[str]:
    """Certify a family, and return the rules that it fails; those that wait are none."""
    model = FAMILIES[name].write(folder / name)
    specimen = Specimen(str(model), None, {}, generation="mm/processor")
    results = certify(zygote, specimen, folder)
    assert results["MM-10"].acted
    return {rule for rule, found in results.items() if found.verdict is Verdict.FAIL}


@pytest.mark.parametrize("name", ALONE)
def test_a_family_passes_without_torchvision(zygote: Zygote, name: str, tmp_path: Path) -> None:
    """Whisper has its sound in a prompt of the encoder's own; a template writes for the other."""
    assert _failed(zygote, name, tmp_path) == set()


def test_a_missing_package_is_no_fault(zygote: Zygote, tmp_path: Path) -> None:
    """A folder whose class cannot be imported here is a model's, and nothing is shown of it."""
    if importlib.util.find_spec("torchvision"):
        pytest.skip("torchvision is installed")
    model = FAMILIES["llava-next"].write(tmp_path / "model")
    with Certification(Settings(targets=(str(model),)), zygote=zygote) as run:
        (plugin,) = run.load()

    assert plugin.generation == "mm/processor"
    assert plugin.unavailable
    assert "install torchvision" in str(plugin.broken)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in FAMILIES if name in FAILING])
def test_a_family_fails_what_the_table_says(seeing: Zygote, name: str, tmp_path: Path) -> None:
    """A rule that fails for one that is right is a fault of ours."""
    assert _failed(seeing, name, tmp_path) == FAILING[name]
