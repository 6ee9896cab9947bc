# SPDX-License-Identifier: Apache-2.0
"""What the system tells of a job's processes."""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path

import psutil


def descendants(pid: int) -> list[int]:
    """Return the processes below one, as far as it is still there."""
    with contextlib.suppress(psutil.Error):
        return [each.pid for each in psutil.Process(pid).children(recursive=True)]
    return []


def tells_its_stack(pid: int) -> bool:
    """Tell whether a process catches SIGUSR1; any other one it would end."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
        caught = next(line.split()[1] for line in lines if line.startswith("SigCgt"))
        return bool(int(caught, 16) >> signal.SIGUSR1 - 1 & 1)
    return False


def describe(status: int | None) -> str:
    """Say how a process ended."""
    if status is None:
        return "ended"
    if status < 0:
        return f"was ended by signal {signal.Signals(-status).name}"
    return f"ended with exit status {status}"


def last_line(log: Path) -> str:
    """Return the last line of what a process printed, or where to look."""
    with contextlib.suppress(OSError):
        lines = log.read_text(errors="replace").strip().splitlines()
        if lines:
            return lines[-1]
    return f"see {log}"
