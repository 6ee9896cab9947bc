# SPDX-License-Identifier: Apache-2.0
"""Plugins of a modality in a real engine and behind the chat route of a real server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from specimens import modality_references
from support import DEFECTIVE_MODALITY, UNUSUAL_MODALITY, Specimen, certify, gallery

from conformance.rules import Evidence
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from conformance.worker import Zygote

OFFLINE, SERVER = Evidence.OFFLINE, Evidence.SERVER

#: What engines and servers show.
RULES = {
    *("MM-41", "MM-43", "MM-50", "MM-53", "MM-54"),
    *("MM-62", "MM-66", "MM-70", "MM-71", "MM-72"),
}

#: Defects that show in engines or servers, by where.
SHOWN = [
    ("exits_on_web_pages", "MM-43", SERVER),
    ("lets_the_decoder_speak", "MM-53", OFFLINE),
    ("lets_the_decoder_speak", "MM-53", SERVER),
    ("takes_empty_spectra", "MM-54", OFFLINE),
    ("takes_empty_spectra", "MM-54", SERVER),
    ("hashes_the_beginning", "MM-62", OFFLINE),
    ("forgets_the_rate", "MM-62", OFFLINE),
    ("counts_one_too_few", "MM-66", OFFLINE),
    ("counts_one_too_few", "MM-66", SERVER),
    ("crops_at_random", "MM-70", OFFLINE),
    ("scales_by_the_loudest_so_far", "MM-71", OFFLINE),
    ("scales_by_the_loudest_so_far", "MM-71", SERVER),
    ("keeps_the_picture_on_self", "MM-72", OFFLINE),
    ("keeps_the_picture_on_self", "MM-72", SERVER),
]

#: Images, of which an instance takes eight and no more.
TIRES = """\
from reference_plugins.modality import ImagePlugin


class Tires(ImagePlugin):
    served = 0

    def preprocess(self, data, model_config):
        object.__setattr__(self, "served", self.served + 1)
        if self.served > 8:
            raise RuntimeError("tired")
        return super().preprocess(data, model_config)
"""

#: A plugin as the article has it, with nothing of the library.
CLOUDS = """\
import numpy as np


class PointCloudPlugin:
    def parse_input(self, data):
        return np.asarray(data, dtype=np.float32)

    def validate(self, data, limits):
        for item in data:
            if item.ndim != 2 or len(item) > 10000:
                raise ValueError("no cloud, or too many points")

    def get_max_per_prompt(self, model_config):
        return 5

    def preprocess(self, data, model_config=None):
        return {"points": data - data.mean(axis=0)}
"""


def broken(results: dict[str, Any]) -> dict[str, str]:
    """Return the messages of rules that failed, or that the harness could not judge."""
    bad = (Verdict.FAIL, Verdict.ERROR)
    return {found.rule: found.message for found in results.values() if found.verdict in bad}


@pytest.mark.server
@pytest.mark.parametrize(
    "specimen",
    [
        pytest.param(each, marks=[pytest.mark.smoke] if "point_clouds" in each.target else [])
        for each in modality_references()
    ],
    ids=lambda specimen: specimen.label,
)
def test_references_are_conformant_live(zygote: Zygote, specimen: Specimen, tmp_path: Path) -> None:
    """Pictures, films, sounds and clouds pass in an engine, and as chat parts of a server."""
    results = certify(zygote, specimen, tmp_path, evidence=(OFFLINE, SERVER))

    assert not broken(results)
    assert {found.rule for found in results.values() if found.acted} == RULES


def _of_gallery(name: str, rule: str) -> Specimen:
    found = [one for one in gallery(DEFECTIVE_MODALITY) if (one.name, one.rule) == (name, rule)]
    return attrs.evolve(found[0], evidence=OFFLINE)


@pytest.mark.server
@pytest.mark.parametrize(
    ("name", "rule", "evidence"), SHOWN, ids=[f"{name}-{kind}" for name, _, kind in SHOWN]
)
def test_defects_show_live(
    zygote: Zygote, tmp_path: Path, name: str, rule: str, evidence: Evidence
) -> None:
    """What the simulator finds harms somebody in an engine or a server."""
    results = certify(zygote, _of_gallery(name, rule), tmp_path, evidence=(evidence,))

    assert rule in broken(results), results


@pytest.mark.engine
def test_items_that_an_engine_cannot_have(zygote: Zygote, tmp_path: Path) -> None:
    """What only a plugin that has served for a while refuses is a failure of what is promised."""
    path = tmp_path / "tires.py"
    path.write_text(TIRES, encoding="utf-8")
    specimen = Specimen(f"{path}:Tires", None, {}, generation="mm/modality")
    found = broken(dict(certify(zygote, specimen, tmp_path, evidence=(OFFLINE,))))

    assert set(found) == {"MM-50"}
    assert "raised RuntimeError: tired" in found["MM-50"]


@pytest.mark.engine
def test_the_letter_of_the_article(zygote: Zygote, tmp_path: Path) -> None:
    """A plugin without an encoder is served; its rows cannot be counted against anything."""
    path = tmp_path / "clouds.py"
    path.write_text(CLOUDS, encoding="utf-8")
    specimen = Specimen(f"{path}:PointCloudPlugin", None, {}, generation="mm/modality")
    results = certify(zygote, specimen, tmp_path, evidence=(OFFLINE,))

    assert not {rule for rule in broken(results) if rule not in ("MM-53", "MM-54")}
    assert results["MM-66"].verdict is Verdict.NOT_APPLICABLE
    assert results["MM-71"].acted


def test_a_running_server_has_no_parts_of_a_plugin(zygote: Zygote, tmp_path: Path) -> None:
    """A server of somebody else is not asked for what it cannot know."""
    specimen = modality_references()[-1]
    results = certify(
        zygote, specimen, tmp_path, evidence=(SERVER,), server_url="http://127.0.0.1:9"
    )

    assert results["MM-50"].verdict is Verdict.NOT_VERIFIED
    assert "servers of the harness" in str(results["MM-50"].message)


@pytest.mark.server
def test_lists_are_no_arrays(zygote: Zygote, tmp_path: Path) -> None:
    """An array that is refused goes out as lists, which the plugin may take."""
    video = next(each for each in modality_references() if "VideoPlugin" in each.label)
    path = Path(video.target.partition(":")[0]).with_name("samples.py")
    profile = {"invalid": [{"call": f"{path}:frames_without_colours"}]}
    specimen = attrs.evolve(video, profile=profile)

    found = certify(zygote, specimen, tmp_path, evidence=(SERVER,), rules={"MM-54"})["MM-54"]

    assert found.verdict is Verdict.PASS, found.message


@pytest.mark.server
def test_items_that_no_chat_has_a_part_for_are_asked_of_none(
    zygote: Zygote, tmp_path: Path
) -> None:
    """A server loads the plugin and serves; what it would do with items nobody can ask."""
    specimen = next(each for each in gallery(UNUSUAL_MODALITY) if each.name == "describes_arrays")
    results = certify(zygote, specimen, tmp_path, evidence=(SERVER,))

    held = {rule for rule, found in results.items() if found.verdict is Verdict.PASS}
    assert held == {"MM-41", "MM-43"}
    beyond = [found for rule, found in results.items() if rule not in held]
    assert {found.verdict for found in beyond} == {Verdict.NOT_VERIFIED}
    assert all(found.out_of_reach for found in beyond)
