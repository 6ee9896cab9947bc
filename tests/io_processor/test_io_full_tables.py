# SPDX-License-Identifier: Apache-2.0
"""Tables of requests that have an end: who takes no more for ever, and who does after a time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import attrs
from support import DEFECTIVE_IO, certify, gallery

from conformance.verdict import Verdict

if TYPE_CHECKING:
    from conformance.worker import Zygote

FULL = next(
    each for each in gallery(DEFECTIVE_IO[0]) if each.name == "refuses_all_once_its_table_is_full"
)

#: The same table with entries that are too old to count.
FORGETS = """            now = time.monotonic()
            for old in [each for each, since in self.served.items() if now - since > 600]:
                del self.served[old]
            if request_id in self.served:
"""


def test_a_full_table_is_told_with_its_size(zygote: Zygote, tmp_path: Path) -> None:
    """The message and its program have the number of requests after which one is refused."""
    found = certify(zygote, FULL, tmp_path, rules={"IO-36"})["IO-36"]

    assert found.verdict is Verdict.FAIL
    assert "after 1024 abandoned requests" in (found.message or "")
    assert "RuntimeError: too many requests at once" in (found.message or "")
    assert found.counterexample is not None
    assert found.counterexample["program"]["count"] == 1024


def test_a_table_whose_entries_grow_old_is_no_fault(zygote: Zygote, tmp_path: Path) -> None:
    """What is refused for ten minutes is no loss of the server."""
    source = Path(FULL.target.rpartition(":")[0]).read_text(encoding="utf-8")
    for before, after in (
        ("import threading\n", "import threading\nimport time\n"),
        ("            if request_id in self.served:\n", FORGETS),
        ("= len(prompt)", "= now"),
    ):
        assert before in source
        source = source.replace(before, after)
    path = tmp_path / "forgets.py"
    path.write_text(source, encoding="utf-8")
    specimen = attrs.evolve(FULL, target=f"{path}:RefusesAllOnceItsTableIsFull", rule=None)
    found = certify(zygote, specimen, tmp_path, rules={"IO-36"})["IO-36"]

    assert found.verdict is Verdict.PASS, found.message
