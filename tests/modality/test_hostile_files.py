# SPDX-License-Identifier: Apache-2.0
"""Files made to harm end in one sentence, soon, and without taking the memory with them.

Each kind is read in a process of its own, whose memory is looked at from inside.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("hostile_files.py")
#: Far above what any of them takes on a busy machine, and far below what it was made to take:
#: twenty seconds for the BMP of single runs, gigabytes for whatever declares them.
SECONDS = 5
MEBIBYTES = 150
#: How many files there are of each kind, so that none is lost on the way.
KINDS = {"images": 23, "videos": 10, "films": 7, "sounds": 18, "clouds": 15}
NEEDS = {"films": "av", "sounds": "soundfile"}


@pytest.mark.parametrize("kind", KINDS)
def test_every_hostile_file_is_refused_within_its_bounds(kind: str) -> None:
    """With an `InputError` whose sentence says what is wrong, and names nothing of this process."""
    library = NEEDS.get(kind)
    if library is not None and importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    run = subprocess.run(
        [sys.executable, PROGRAM, kind], capture_output=True, text=True, check=True, timeout=120
    )
    files = [json.loads(line) for line in run.stdout.splitlines()]

    assert len(files) == KINDS[kind]
    for file in files:
        assert file["raised"] == "InputError", file
        assert 10 < len(file["said"]) < 300, file
        assert " 0x" not in file["said"], file
        assert file["seconds"] < SECONDS, file
        assert file["mebibytes"] < MEBIBYTES, file
