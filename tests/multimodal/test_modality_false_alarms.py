# SPDX-License-Identifier: Apache-2.0
"""Correct plugins of a modality pass everything: the library's, and unusual ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest
from specimens import modality_references
from support import GOOD, UNUSUAL_MODALITY, Specimen, certify, gallery

from conformance.settings import UsageError
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.worker import Zygote


#: A plugin of which nobody knows what it takes.
STRANGE = """\
from reference_plugins.modality import AudioPlugin


class Smells(AudioPlugin):
    def __init__(self):
        super().__init__()
        object.__setattr__(self, "modality", "smell")
"""

#: Recordings, of which files take a library that is not installed.
DEAF = """\
from reference_plugins.modality import AudioPlugin, MissingLibraryError


class Deaf(AudioPlugin):
    def _from_file(self, content):
        if not content.startswith(b"RIFF"):
            return super()._from_file(content)
        ENDS
"""

#: A model whose placeholder has the id that text might have.
LOW = """\
from reference_plugins.modality import FixedResolution, MultiModalConfig


class Low:
    @classmethod
    def get_multimodal_config(cls):
        return MultiModalConfig(
            ["image"],
            recipes={"image": FixedResolution(side=56)},
            placeholder_tokens={"image": TOKEN},
            max_image_per_prompt=3,
        )
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


@pytest.mark.parametrize(
    "ends",
    [
        "raise MissingLibraryError('WAV', 'soundfile', 'send arrays')",
        "import soundfile_of_tomorrow",
    ],
)
def test_no_plugin_is_blamed_for_a_library_that_is_not_installed(
    zygote: Zygote, tmp_path: Path, ends: str
) -> None:
    """What takes one is not verified, and the library is named; arrays are judged."""
    path = tmp_path / "deaf.py"
    path.write_text(DEAF.replace("ENDS", ends), encoding="utf-8")
    profile = {"forms": ["bytes", "data URL", "array"]}
    specimen = Specimen(f"{path}:Deaf", None, profile, generation="mm/modality")
    results = certify(zygote, specimen, tmp_path)

    unread = {rule for rule, found in results.items() if found.verdict is Verdict.NOT_VERIFIED}
    assert unread == {"MM-50", "MM-51", "MM-52", "MM-55", "MM-57"}
    for rule in unread:
        assert "soundfile" in str(results[rule].message)
    rest = {rule: found for rule, found in results.items() if rule not in unread}
    assert not {rule: found.message for rule, found in rest.items() if found.verdict not in GOOD}
    assert rest["MM-67"].acted


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


@pytest.mark.parametrize("token", [0, 1, 2, 3, 9000])
def test_any_token_may_be_the_placeholder(zygote: Zygote, tmp_path: Path, token: int) -> None:
    """The text of the harness has nothing of a model's placeholder in it."""
    path = tmp_path / "low.py"
    path.write_text(LOW.replace("TOKEN", str(token)), encoding="utf-8")
    image = attrs.evolve(modality_references()[0], profile={"model": f"{path}:Low"})
    result = certify(zygote, image, tmp_path, rules={"MM-67"})["MM-67"]

    assert result.verdict is Verdict.PASS, result.message
    assert result.acted
