# SPDX-License-Identifier: Apache-2.0
"""What the tutorial says is what happens."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import tutorial
from support import ROOT
from user import CACHE

PAGE = ROOT / "docs" / "tutorial.md"


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
