# SPDX-License-Identifier: Apache-2.0
"""What stands beside the code says the same as the code."""

from __future__ import annotations

import re
import shlex
import tomllib

import yaml
from click.testing import CliRunner
from support import ROOT

from conformance import __version__
from conformance.cli import main

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
TOWNCRIER = PROJECT["tool"]["towncrier"]


def test_releases_are_put_where_the_changelog_has_room_for_them() -> None:
    """The line that towncrier looks for is there once."""
    text = (ROOT / TOWNCRIER["filename"]).read_text(encoding="utf-8")
    assert text.count(TOWNCRIER["start_string"]) == 1
    assert f"## {__version__}" in text


def test_every_fragment_has_a_kind() -> None:
    """One of those that the changelog has a heading for."""
    kinds = "|".join(kind["directory"] for kind in TOWNCRIER["type"])
    names = {path.name for path in (ROOT / "changes").iterdir()} - {"README.md", ".gitkeep"}
    wrong = [n for n in names if not re.fullmatch(rf"(\+[a-z0-9-]+|\d+)\.({kinds})\.md", n)]
    assert not wrong


def test_the_citation_names_this_release() -> None:
    """Version and licence are those of the package."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == __version__
    assert citation["license"] == PROJECT["project"]["license"]
    assert citation["title"] == PROJECT["project"]["name"]


def test_hooks_before_a_commit_are_lanes() -> None:
    """Each calls ``./run`` with a lane that it lists."""
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    lanes = (ROOT / "run").read_text(encoding="utf-8")
    for repository in config["repos"]:
        for hook in repository["hooks"]:
            program, lane = hook["entry"].split()
            assert program == "./run"
            assert f"./run {lane} " in lanes


def test_the_command_for_plugins_that_nobody_trusts_has_no_network() -> None:
    """And what runs in the container is a command that there is."""
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8").replace("\\\n", "")
    (line,) = [line for line in text.splitlines() if line.startswith("    docker run")]
    words = shlex.split(line)
    assert words[words.index("--network") + 1] == "none"
    command = words[words.index("IMAGE") + 2 :]
    done = CliRunner().invoke(main, [command[0], "--help"])
    assert done.exit_code == 0
    for option in (word for word in command if word.startswith("--")):
        assert option in done.output
