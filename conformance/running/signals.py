# SPDX-License-Identifier: Apache-2.0
"""What ends a run before its time."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


@contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGTERM interrupt the block once as Ctrl-C does: time limits of CI jobs send it."""

    def interrupt(*_: object) -> NoReturn:
        # A second one would interrupt the writing of certificates.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # not the main thread, which alone hears of signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
