# SPDX-License-Identifier: Apache-2.0
"""Correct plugins of a modality pass everything: the library's, and unusual ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from specimens import modality_references
from support import UNUSUAL_MODALITY, Specimen, certify, gallery

from conformance.settings import UsageError
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.worker import Zygote

GOOD = {Verdict.PASS, Verdict.NOT_APPLICABLE}

#: A plugin of which nobody knows what it takes.
STRANGE = """\
from reference_plugins.modality import AudioPlugin


class Smells(AudioPlugin):
    def __init__(self):
        super().__init__()
        object.__setattr__(self, "modality", "smell")
"""


@pytest.mark.parametrize(
    "specimen",
    [*modality_references(), *gallery(UNUSUAL_MODALITY)],
    ids=lambda specimen: specimen.label,
)
def test_passes_everything(zygote: Zygote, specimen: Specimen, tmp_path: Path) -> None:
    """A correct plugin passes every rule that applies to it."""
    results = certify(zygote, specimen, tmp_path)

    broken = {rule: found.message for rule, found in results.items() if found.verdict not in GOOD}
    assert set(broken) == set(specimen.advice), broken
    for rule in ("MM-50", "MM-53", "MM-67", "MM-71", "MM-72", "MM-73"):
        assert results[rule].acted, results[rule].message


def test_nothing_is_shown_of_items_that_nobody_knows(zygote: Zygote, tmp_path: Path) -> None:
    """A modality without a profile is not verified, and the message says what is missing."""
    path = tmp_path / "smells.py"
    path.write_text(STRANGE, encoding="utf-8")
    results = certify(
        zygote, Specimen(f"{path}:Smells", None, {}, generation="mm/modality"), tmp_path
    )

    assert results["MM-41"].verdict is Verdict.PASS
    assert results["MM-44"].verdict is Verdict.PASS
    for rule in ("MM-50", "MM-53", "MM-66", "MM-71"):
        assert results[rule].verdict is Verdict.NOT_VERIFIED
        assert "valid = [" in str(results[rule].message)
    assert Verdict.FAIL not in {found.verdict for found in results.values()}


def test_a_model_of_another_kind_is_a_mistake_of_the_profile(
    zygote: Zygote, tmp_path: Path
) -> None:
    """What the profile calls a model and is none is told in a sentence, and blamed on nobody."""
    (tmp_path / "smells.py").write_text(STRANGE)
    specimen = Specimen(
        f"{tmp_path / 'smells.py'}:Smells", None, {"model": "json:dumps"}, generation="mm/modality"
    )
    with pytest.raises(UsageError, match=r"'json:dumps' is no model of a modality"):
        certify(zygote, specimen, tmp_path, rules={"MM-43"})
