# SPDX-License-Identifier: Apache-2.0
"""The commands of the pages: those of sessions are run, all others are at least commands."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
import tutorial
from support import ROOT
from user import CACHE

from conformance.cli import main
from conformance.generations import all_generations

PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
SESSIONS = [
    page
    for page in PAGES
    if page.stem != "tutorial" and any(block.kind == "console" for block in tutorial.blocks(page))
]
#: A command in a block that is indented, or in the middle of a sentence, without its comment.
_COMMAND = re.compile(r"(?:^    |`|^\$ )((?:vllm-conformance|\./run) [^`\n#]*)", re.MULTILINE)


@pytest.mark.slow
@pytest.mark.timeout(900)  # several certifications
@pytest.mark.parametrize("page", SESSIONS, ids=lambda page: page.stem)
def test_sessions_say_what_they_say(page: Path, tmp_path: Path) -> None:
    """Every command of a session is run where the reference plugins are."""
    (tmp_path / "reference_plugins").symlink_to(ROOT / "reference_plugins")
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "VLLM_CONFORMANCE_CACHE": CACHE,
        "COLUMNS": "100",
    }
    wrong = tutorial.follow(page, tmp_path, environment, slow=False)

    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_are_commands(page: Path) -> None:
    """Each names a command and options that there are, or a lane."""
    lanes = subprocess.run(["./run"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for command in _COMMAND.findall(page.read_text(encoding="utf-8")):
        program, *words = shlex.split(command.replace("...", "placeholder"))
        if program == "./run":
            assert f"./run {words[0]} " in lanes, command
        elif words and not words[0].startswith("-") and words[0] != "placeholder":
            _parse(words, command)


def _parse(words: list[str], command: str) -> None:
    name, *arguments = words
    known = main.get_command(click.Context(main), name)
    assert known is not None, command
    # Files that are only named need not be there, and an argument may be left to the reader.
    options = [word for word in arguments if word.startswith("-")]
    for option in options:
        named = {each for parameter in known.params for each in parameter.opts}
        assert option.partition("=")[0] in named | {"--help"}, command
    takes = [p for p in known.params if isinstance(p, click.Argument)]
    assert takes or not [w for w in arguments if not w.startswith("-")] or options, command


def test_the_readme_counts_the_rules() -> None:
    """Behind each generation stands how many rules it has."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    said = re.findall(r"\[(\d+) rules\]\(docs/rules/(.*?)\.md\)", readme)
    known = {each.name.replace("/", "-"): len(each.rules) for each in all_generations()}

    assert {name: int(count) for count, name in said} == known
