# SPDX-License-Identifier: Apache-2.0
"""Where commands write, and what one is doing right now: a display, or lines in a log file."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

import attrs
from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.status import Status

#: Columns of a log file, which has no width of its own; a title of a rule is cut off in fewer.
_LOG_WIDTH = 100


def make_console(*, stderr: bool = False) -> Console:
    """Return a console on a standard stream."""
    console = Console(highlight=False, stderr=stderr)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _LOG_WIDTH
    return console


def log(console: Console, sentence: str) -> None:
    """Write a sentence where no terminal shows it, as a whole line, since logs are searched."""
    if not console.is_terminal:
        console.print(sentence, style="dim", markup=False, soft_wrap=True)


@attrs.frozen
class Progress:
    """Sentences about work that goes on."""

    _console: Console
    _display: Status
    _quiet: bool

    def show(self, sentence: str) -> None:
        """Show a sentence until the next one; a log file does not have it."""
        # Not as a str, of which rich would take a folder in brackets for a style.
        self._display.update(Text(sentence))

    def say(self, sentence: str) -> None:
        """Show a sentence; in a log file it is a line."""
        self.show(sentence)
        if not self._quiet:
            log(self._console, sentence)


@contextmanager
def progress(console: Console, sentence: str, *, quiet: bool = False) -> Iterator[Progress]:
    """Show what is being done until the block ends, beginning with *sentence*.

    *quiet* leaves the lines of log files out.
    """
    with console.status(Text(sentence)) as display:
        yield Progress(console, display, quiet)
