# SPDX-License-Identifier: Apache-2.0
"""A contributor is told whether a killer fails by its own rule alone."""

from __future__ import annotations

import alone
import pytest


def test_a_plugin_is_found_by_the_name_of_its_file() -> None:
    """With its profile and rule; the same file may be in several galleries."""
    (found,) = alone.specimens("shields_its_request")

    assert (found.rule, found.generation) == ("CH-24", "hook/rfc")
    assert found.profile


def test_a_name_that_no_gallery_has_is_said() -> None:
    """So is a missing one."""
    with pytest.raises(SystemExit, match=r"no index.toml .* names a file nothing.py"):
        alone.main(["nothing"])
    with pytest.raises(SystemExit, match=r"python tests/alone.py NAME"):
        alone.main([])


def test_other_rules_are_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit status says whether there are any."""
    monkeypatch.setattr(alone, "failing", lambda _: {"CH-24": "a task", "CH-30": "another"})

    assert alone.main(["shields_its_request"]) == 1
    said = capsys.readouterr().out
    assert said.splitlines()[0].startswith("ShieldsItsRequest (hook/rfc) fails")
    assert "CH-30  another" in said

    monkeypatch.setattr(alone, "failing", lambda _: {"CH-24": "a task"})
    assert alone.main(["shields_its_request"]) == 0
