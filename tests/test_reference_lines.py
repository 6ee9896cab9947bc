# SPDX-License-Identifier: Apache-2.0
"""No line or branch of a reference never runs without a reason: ``never_ran.toml`` has those."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from support import ROOT, references

from conformance.running.runner import Certification
from conformance.settings import Settings
from conformance.worker import Zygote

REASONS: dict[str, dict[str, str]] = tomllib.loads(
    (ROOT / "tests" / "never_ran.toml").read_text(encoding="utf-8")
)


def _targets() -> list[str]:
    """Return the reference plugins; a file of several generations is one of each."""
    return [target.partition("@")[0] for target in references()]


def _never(zygote: Zygote, target: str, folder: Path) -> dict[str, dict[str, set[int]]]:
    """Return, by file, what kept which lines from running for every plugin of a target.

    Ways for which no line stands count by the lines of their statements.
    """
    settings = Settings(targets=(target,), report=folder, directory=ROOT)
    with Certification(settings, zygote=zygote) as certification:
        certification.load()
        checks = certification.checks()
        certification.select(checks)
        for check in checks:
            certification.run(check)
        files: list[dict[str, Any]] = [
            file
            for plugin in certification.plugins
            for file in certification.contexts[plugin.target]["lines"]
        ]
    never: dict[str, set[int]] = {}
    for file in files:
        never.setdefault(file["file"], set(file["never"])).intersection_update(file["never"])
    found: dict[str, dict[str, set[int]]] = {name: {} for name in never}
    ways: dict[str, set[tuple[str, int]]] = {}
    for file in files:
        explained = {line for why in file["why"] for line in why["lines"] if not why["branch"]}
        assert never[file["file"]] <= explained
        for why in file["why"]:
            lines = never[file["file"]] & set(why["lines"])
            if lines and not why["branch"]:
                found[file["file"]][why["says"]] = lines
        untaken = {(why["says"], *why["lines"]) for why in file["why"] if why["branch"]}
        ways.setdefault(file["file"], untaken).intersection_update(untaken)
    for name, untaken in ways.items():
        for says, line in untaken:
            found[name].setdefault(says, set()).add(line)
    return found


@pytest.mark.slow
@pytest.mark.gallery
@pytest.mark.parametrize("target", _targets())
def test_every_line_runs_or_has_a_reason(zygote: Zygote, target: str, tmp_path: Path) -> None:
    """At the standard budget in the simulator; and no reason is out of date."""
    found = _never(zygote, target, tmp_path)
    own = target.partition(":")[0]
    without = {
        (name, says, *lines)
        for name, gaps in found.items()
        for says, lines in gaps.items()
        if says not in {**REASONS.get(name, {}), **REASONS.get(own, {})}
    }

    assert not without
    assert set(REASONS.get(own, {})) <= {says for gaps in found.values() for says in gaps}
