# SPDX-License-Identifier: Apache-2.0
"""Plugins that are installed with an entry point, as published ones are."""

from __future__ import annotations

import importlib.metadata
import sys
from typing import TYPE_CHECKING

import pytest
from old_hosts import failures
from support import ROOT
from user import CLI, certificates, run

from conformance.engine.entry_points import unlisted, write_distribution
from conformance.plugin.target import LOGITS_PROCESSORS
from conformance.verdict import ExitStatus

if TYPE_CHECKING:
    from pathlib import Path

TARGET = "reference_plugins.logits_batch.target_token:TargetTokenLogitsProcessor"

ENTRIES = f"""\
[{LOGITS_PROCESSORS}]
decoder = json:JSONDecoder
encoder = json:JSONEncoder

[console_scripts]
command = json.tool:main
"""


def _install(folder: Path, entries: str) -> Path:
    files = {"entry_points.txt": entries}
    return write_distribution(folder, name="some-plugin", version="1.2.3", files=files)


def test_one_entry_point_is_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything else of its distribution is as it was, its version too."""
    from json import JSONDecoder

    monkeypatch.syspath_prepend(_install(tmp_path / "installed", ENTRIES))
    hidden = unlisted(tmp_path / "unlisted", JSONDecoder)
    monkeypatch.syspath_prepend(*hidden)

    listed = importlib.metadata.entry_points(group=LOGITS_PROCESSORS)
    assert [entry.name for entry in listed] == ["encoder"]
    assert importlib.metadata.distribution("some-plugin").version == "1.2.3"
    scripts = importlib.metadata.entry_points(group="console_scripts")
    assert "command" in scripts.names


def test_a_class_that_nobody_lists_needs_nothing(tmp_path: Path) -> None:
    """No folder is written, so no path changes."""
    assert unlisted(tmp_path / "unlisted", type(sys)) == []
    assert not (tmp_path / "unlisted").exists()


def test_a_class_has_the_name_that_its_package_gives_it(tmp_path: Path) -> None:
    """What a package hands on under another name is certified under that; its source is its own."""
    package = tmp_path / "handy"
    package.mkdir()
    source = (ROOT / "reference_plugins" / "logits_batch" / "target_token.py").read_text("utf-8")
    (package / "inner.py").write_text(source, encoding="utf-8")
    line = "from handy.inner import TargetTokenLogitsProcessor as Renamed\n"
    (package / "__init__.py").write_text(line, encoding="utf-8")
    profile = ROOT / "reference_plugins" / "logits_batch" / "target_token.conformance.toml"

    command = (*CLI, "certify", "handy:Renamed", "--budget=quick", f"--plugin-profile={profile}")
    status, output = run(*command, folder=tmp_path)

    (document,) = certificates(tmp_path).values()
    assert status == ExitStatus.CONFORMANT, (failures(document), output)
    assert document["plugin"]["target"] == "handy:Renamed"
    assert document["plugin"]["source"] == "handy/inner.py"


@pytest.mark.server
def test_an_installed_plugin_is_not_there_twice(tmp_path: Path) -> None:
    """A second instance would find its work done, and an engine without it would have it."""
    installed = _install(tmp_path / "installed", f"[{LOGITS_PROCESSORS}]\nmine = {TARGET}\n")
    profile = ROOT / "reference_plugins" / "logits_batch" / "target_token.conformance.toml"

    status, output = run(
        *CLI,
        "certify",
        f"entry-point:{LOGITS_PROCESSORS}/mine",
        "--evidence=all",
        "--budget=quick",
        f"--plugin-profile={profile}",
        folder=tmp_path,
        paths=(installed,),
    )

    (document,) = certificates(tmp_path).values()
    assert status == ExitStatus.CONFORMANT, (failures(document), output)
    assert document["plugin"]["version"] == "1.2.3"
