# SPDX-License-Identifier: Apache-2.0
"""Cases of parsers, played again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from cases import failing_copy
from support import DEFECTIVE_PARSER, gallery

from conformance.running.replay import Outcome

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.worker import Zygote

SPECIMENS = {specimen.name: specimen for folder in DEFECTIVE_PARSER for specimen in gallery(folder)}

#: How to mend some of the gallery: what is there, and what should be.
MENDED = {
    "one_call_a_delta": ("tool_calls[:1]", "tool_calls"),
    "leaks_the_marker": ("START + delta.reasoning", "delta.reasoning"),
}

pytestmark = pytest.mark.usefixtures("shared_zygote")


@pytest.mark.parametrize("name", MENDED)
def test_a_case_is_played_again(zygote: Zygote, name: str, tmp_path: Path) -> None:
    """With the parser as it was it still fails, and with a correct one it is fixed."""
    case = failing_copy(zygote, SPECIMENS[name], tmp_path)
    rule = SPECIMENS[name].rule
    saved = json.loads(case.path.read_text(encoding="utf-8"))
    assert saved["generation"] == SPECIMENS[name].generation
    assert saved["counterexample"]["answer"]["text"]

    assert case.replay() == (Outcome.STILL_FAILS, f"{rule}: {case.message}")

    case.replace(*MENDED[name])
    outcome, sentence = case.replay()
    assert outcome is Outcome.FIXED, sentence
    assert sentence == f"{rule} holds in its check now"
