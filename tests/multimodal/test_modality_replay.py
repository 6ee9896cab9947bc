# SPDX-License-Identifier: Apache-2.0
"""Cases of modality plugins, played again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from cases import failing_copy
from support import DEFECTIVE_MODALITY, gallery

from conformance.running.replay import Outcome

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.worker import Zygote

SPECIMENS = {specimen.name: specimen for specimen in gallery(DEFECTIVE_MODALITY)}

#: How to mend some of the gallery: what is there, and what should be.
MENDED = {
    "reads_every_letter": ('"input_audio"', '("input_audio",)'),
    "exits_on_web_pages": ('sys.exit("not a picture")', "return content"),
    "judges_by_its_own_limits": ("(data, self.limits)", "(data, limits)"),
    "rounds_the_estimate_down": (
        "max(1, samples // recipe.hop // recipe.frames_per_token)",
        "recipe.estimate_tokens(data.samples, data.rate)",
    ),
    "counts_one_too_few": ("count - 1 if count > 4 else count", "count"),
    "scales_by_the_loudest_so_far": ("max(self.loudest, float(", "max(0.1, float("),
    "keeps_the_picture_on_self": ("(self.picture, model_config)", "(data, model_config)"),
    "refuses_short_spectra": ("len(data) < 2", "not data"),
}

#: Those whose case holds a history as a table, with the names of its columns.
TABLES = {
    "rounds_the_estimate_down": ["item", "what", "estimated", "actual"],
    "counts_one_too_few": ["item", "what", "placeholders", "rows"],
    "scales_by_the_loudest_so_far": ["item", "what", "alone"],
    "keeps_the_picture_on_self": ["item", "what", "then"],
}

pytestmark = pytest.mark.usefixtures("shared_zygote")


@pytest.mark.parametrize("name", MENDED)
def test_a_case_is_played_again(zygote: Zygote, name: str, tmp_path: Path) -> None:
    """With the plugin as it was it still fails, and with a correct one it is fixed."""
    case = failing_copy(zygote, SPECIMENS[name], tmp_path)
    rule = SPECIMENS[name].rule
    saved = json.loads(case.path.read_text(encoding="utf-8"))
    assert saved["generation"] == "mm/modality"
    assert saved["counterexample"].get("table", {}).get("columns") == TABLES.get(name)

    assert case.replay() == (Outcome.STILL_FAILS, f"{rule}: {case.message}")

    case.replace(*MENDED[name])
    outcome, sentence = case.replay()
    assert outcome is Outcome.FIXED, sentence
    assert sentence == f"{rule} holds in its check now"


def test_a_mismatch_is_two_items_at_the_most(zygote: Zygote, tmp_path: Path) -> None:
    """The history of placeholders that do not fit names item, expected and actual."""
    case = failing_copy(zygote, SPECIMENS["counts_one_too_few"], tmp_path)
    table = json.loads(case.path.read_text(encoding="utf-8"))["counterexample"]["table"]

    assert "image[0]" in case.message
    assert "expected 15, got 16" in case.message
    assert len(table["rows"]) <= 2
    assert ["15", "16"] in [row[2:] for row in table["rows"]]


@pytest.mark.parametrize(
    ("new", "said"),
    [
        ("        raise OSError('disk')\n", "OSError: disk"),
        ("        raise SystemExit(3)\n", "SystemExit(3)"),
    ],
    ids=["raises", "exits"],
)
def test_another_fault_is_no_mending(zygote: Zygote, new: str, said: str, tmp_path: Path) -> None:
    """A plugin that fails in another way by now is not fixed."""
    case = failing_copy(zygote, SPECIMENS["scales_by_the_loudest_so_far"], tmp_path)
    case.replace("        self.loudest = 0.0\n", new)

    outcome, sentence = case.replay()
    assert outcome is Outcome.CHANGED, sentence
    assert said in sentence
