# SPDX-License-Identifier: Apache-2.0
"""What the tutorial says is what happens."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import tutorial
from support import ROOT, Specimen, certify
from user import CACHE

from conformance.verdict import Verdict

if TYPE_CHECKING:
    from conformance.worker import Zygote

PAGE = ROOT / "docs" / "tutorial.md"

#: Characters that a person reads at a glance.
LONGEST_VALUE = 10


@pytest.mark.slow
@pytest.mark.timeout(900)  # it is several certifications
def test_a_newcomer_gets_what_the_tutorial_says(tmp_path: Path) -> None:
    """Every command but the slow ones, in order, with what it says and its exit status."""
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "VLLM_CONFORMANCE_CACHE": CACHE,
        "COLUMNS": "100",
    }
    wrong = tutorial.follow(PAGE, tmp_path, environment, slow=False)

    assert not wrong, "\n".join(wrong)
    assert tutorial.blocks(PAGE)


def test_its_plugin_needs_no_profile_to_be_found_out(zygote: Zygote, tmp_path: Path) -> None:
    """As it is at first, any client can end the engine with a short value; as mended, none can."""
    path = tmp_path / "boost.py"
    plugin = Specimen(f"{path}:Boost", None, {})
    first, *edits = [block for block in tutorial.blocks(PAGE) if block.kind == "python"]

    path.write_text(first.text, encoding="utf-8")
    found = certify(zygote, plugin, tmp_path, rules={"LB-38"})["LB-38"]
    assert found.verdict is Verdict.FAIL
    value = re.search(r'"boost": ([^}]*)\}', str(found.message))
    assert value is not None, found.message
    assert len(value[1]) <= LONGEST_VALUE

    for block in edits:
        tutorial.edit(path, block.text)
    mended = certify(zygote, plugin, tmp_path, rules={"LB-06", "LB-38"})
    assert {each.verdict for each in mended.values()} == {Verdict.PASS}
