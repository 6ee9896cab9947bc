# SPDX-License-Identifier: Apache-2.0
"""Stopping a thread at a line of the plugin, for what other threads may do in the meantime.

Python changes threads between any two lines; waiting for it to do so in the right place would
take many tries, and another number of them each time.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

#: Seconds after which a thread that was not let go goes on anyhow.
LONGEST = 5.0


@attrs.define(eq=False)
class Lines:
    """Follows a thread through the lines of a plugin, and stops it at one of them."""

    files: tuple[str, ...]  #: how the paths of the plugin's files begin
    stop: int | None = None  #: the line to stop at, counted as the thread comes to them
    count: int = 0
    #: The number with which each line was come to last.
    last: dict[tuple[str, int], int] = attrs.field(factory=dict)
    reached: threading.Event = attrs.field(factory=threading.Event)
    let_go: threading.Event = attrs.field(factory=threading.Event)

    def run(self, work: Callable[[], Any]) -> Any:  # noqa: ANN401 - whatever the work returns
        """Do the work on this thread, followed."""
        before = sys.gettrace()
        sys.settrace(self._called)
        try:
            return work()
        finally:
            sys.settrace(before)
            self.reached.set()

    def _called(self, frame: FrameType, _event: str, _argument: object) -> Any:  # noqa: ANN401
        return self._came if frame.f_code.co_filename.startswith(self.files) else None

    def _came(self, frame: FrameType, event: str, _argument: object) -> Any:  # noqa: ANN401
        if event == "line":
            if self.count == self.stop:
                self.reached.set()
                self.let_go.wait(LONGEST)
            self.last[frame.f_code.co_filename, frame.f_lineno] = self.count
            self.count += 1
        return self._came


def own_files(cls: type) -> tuple[str, ...]:
    """Return how the paths begin that hold a plugin's own code."""
    found = set()
    for each in cls.__mro__:
        module = sys.modules.get(each.__module__)
        path = getattr(module, "__file__", None)
        if path is None or each.__module__.partition(".")[0] in ("abc", "typing", "vllm"):
            continue
        # A package's other modules are its own, too; beside a single file may lie anybody's.
        found.add(str(Path(path).parent) if getattr(module, "__package__", "") else path)
    return tuple(sorted(found))
