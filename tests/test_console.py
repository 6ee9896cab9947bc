# SPDX-License-Identifier: Apache-2.0
"""What is shown of work that goes on."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from conformance.commands.console import make_console, progress

#: A folder that rich would take for the end of a style.
TARGET = f"[/plugins]/{'a_long_name/' * 12}plugin.py:Plugin"


def test_a_log_file_has_room_for_titles(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A report in a log file is as wide as a page, or as wide as somebody says."""
    monkeypatch.delenv("COLUMNS", raising=False)
    wide = make_console()
    monkeypatch.setenv("COLUMNS", "60")
    narrow = make_console(stderr=True)
    wide.print("title " * 16)
    narrow.print("title " * 16)
    printed = capsys.readouterr()

    assert len(printed.out.splitlines()) == 1
    assert len(printed.err.splitlines()) == 2


def test_a_log_file_gets_whole_lines() -> None:
    """A line is neither wrapped nor read as markup; what is only shown is left out."""
    written = io.StringIO()
    with progress(Console(file=written, width=80), "starting") as display:
        display.show(f"{TARGET}: LB-01")
        display.say(f"{TARGET}: judging 40 rules (simulator)")

    assert written.getvalue() == f"{TARGET}: judging 40 rules (simulator)\n"


@pytest.mark.parametrize("quiet", [False, True])
def test_a_terminal_gets_a_display(*, quiet: bool) -> None:
    """A terminal shows the sentence of the moment, brackets and all."""
    written = io.StringIO()
    console = Console(file=written, width=300, force_terminal=True)
    with progress(console, "starting", quiet=quiet) as display:
        display.say(TARGET)

    assert TARGET in written.getvalue()


def test_a_quiet_log_file_stays_empty() -> None:
    """Whoever asks for the verdict alone gets no lines."""
    written = io.StringIO()
    with progress(Console(file=written), "starting", quiet=True) as display:
        display.say(TARGET)

    assert written.getvalue() == ""
