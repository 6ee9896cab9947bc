# SPDX-License-Identifier: Apache-2.0
"""Limiting how long a plugin may take, and knowing which of its calls it was."""

from __future__ import annotations

import inspect
import math
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import attrs

from conformance.coverage import lines
from conformance.watching.clocks import delayed_threads

#: A single call that takes this long hangs, unless it is torch that compiles something of the
#: plugin's.
CALL_LIMIT = 20.0

#: So many seconds of a processor may that take altogether, its compilers' among them, and so many
#: times as many of the clock where others have the processors; it is kept for later runs.
COMPILING_LIMIT, BUSY = 280.0, 3.0

#: What is on the stack while something is compiled, and not when it runs.
_COMPILERS = ("/torch/_dynamo/convert_frame.py", "/triton/compiler/compiler.py")

CONSTRUCTOR_LIMIT = 120.0

#: What calls that make an instance are called.
CONSTRUCTORS = frozenset({"__init__", "making an instance", "the processor's constructor"})
#: Seconds in which is seen, when the time is over, whether the process waits for a processor; the
#: largest part of its time for which that is taken.
SAMPLE, BUSIEST = 1.0, 0.8

#: ``signal.signal`` without the enumerations that it makes of numbers, which take ten times as long
#: as the call itself.
_set_handler: Callable[[int, Any], Any] = inspect.unwrap(signal.signal)

OURS = Path(__file__).resolve().parents[1]

#: Seconds between two signs of life.
HEARTBEAT = 5.0


class PluginHung(BaseException):
    """A call did not return in time; a ``BaseException`` so that plugins do not swallow it."""

    def __init__(self, call: str, seconds: float) -> None:
        super().__init__(f"{call} did not return within {seconds:.0f} s")
        self.call, self.seconds = call, seconds


class PluginExited(Exception):
    """A call raised ``SystemExit``."""


class OutOfTime(TimeoutError):
    """Nothing of the plugin was running when the time was over: the host is slow, or stuck."""


#: The plugin calls in progress, for whoever interrupts them.
_in_progress: list[str] = []

#: When :func:`progressed` was called last within each limited block, the innermost last.
_progressed = [-math.inf]

#: The seconds that no limited block may exceed for now, and who hears of more: :func:`hurried`.
_hurry: list[tuple[float, Callable[[float], None]]] = []

#: Tells whoever waits for this process that it is at work, and since when it has told nothing.
_tell: Callable[[], None] = lambda: None  # noqa: E731 - replaced by a worker
_told = 0.0


@attrs.define
class _Returns:
    """When a call into the plugin returned last, and who hears of it."""

    last: float = -math.inf
    _tell: Callable[[], None] | None = None
    _told: float = -math.inf
    #: The process and the thread that tell: no other may write to the caller.
    _place: tuple[int, int] | None = None

    def tell(self, tell: Callable[[], None]) -> None:
        """Let this thread of this process call ``tell`` when calls return."""
        self._tell, self._place = tell, (os.getpid(), threading.get_ident())

    def note(self) -> None:
        """Note that a call has returned."""
        self.last = time.monotonic()
        if self._tell is None or self.last - self._told <= HEARTBEAT:
            return
        self._told = self.last
        if self._place == (os.getpid(), threading.get_ident()):
            self._tell()


_returns = _Returns()

#: Hears of what calls into the plugin raise.
_hear: Callable[[str, BaseException], None] = lambda *_: None  # noqa: E731 - as above


def tell_raised(hear: Callable[[str, BaseException], None]) -> None:
    """Have each exception from a call into the plugin reported, with the name of the call."""
    global _hear  # noqa: PLW0603 - a process tries one plugin
    _hear = hear


def tell_progress(tell: Callable[[], None]) -> None:
    """Have somebody told when :func:`progressed` is called, every few seconds at the most."""
    global _tell  # noqa: PLW0603 - a process waits for, and works on, one thing
    _tell = tell


def progressed() -> None:
    """Say that the host gets on: the time of the limited block begins anew."""
    global _told  # noqa: PLW0603 - a process waits for, and works on, one thing
    _progressed[-1] = now = time.monotonic()
    if now - _told > HEARTBEAT:
        _told = now
        _tell()


def tell_returned(tell: Callable[[], None]) -> None:
    """Call ``tell`` when a call into the plugin returns, at most once in :data:`HEARTBEAT`."""
    _returns.tell(tell)


@contextmanager
def in_call(what: str) -> Iterator[None]:
    """Say that the plugin is being called within the block, on whatever thread."""
    _in_progress.append(what)
    begun = lines.begin()
    try:
        yield
    except BaseException as error:
        _hear(what, error)
        raise
    finally:
        if begun:
            lines.end()
        _in_progress.remove(what)
        _returns.note()


def in_plugin() -> bool:
    """Tell whether the plugin is being called."""
    return bool(_in_progress)


@contextmanager
def hurried(seconds: float, prolong: Callable[[float], None]) -> Iterator[None]:
    """Give every limited block within this one so many seconds at the most.

    ``prolong`` is called with the seconds more that others on a busy machine cost.
    """
    _hurry.append((seconds, prolong))
    try:
        yield
    finally:
        _hurry.pop()


@contextmanager
def limited(seconds: float = CALL_LIMIT) -> Iterator[None]:
    """Interrupt the block when it takes longer than ``seconds`` of wall time.

    Of what is held up by others on a busy machine it waits longer, five times as long at most.
    Within another limited block, the time of the inner one does not count for the outer one.
    Time begins anew with :func:`progressed`, and while torch compiles, up to
    :data:`COMPILING_LIMIT`.  The limit that is usual is one of each call: it begins anew when a
    call returns, for a slow plugin does not hang.

    Raises:
        PluginHung: the plugin was being called.
        OutOfTime: nothing of the plugin was running: the host, or the harness, is slow.

    """
    seconds = min([seconds, *(most for most, _ in _hurry)])
    of_each_call = seconds == CALL_LIMIT
    started = time.monotonic()
    begun: float | None = None  # asked at the first alarm: at each call it is a tenth of a trial
    sample: list[tuple[float, float]] = []

    def interrupt(_: int, frame: FrameType | None) -> None:
        nonlocal begun
        now = time.monotonic()
        since = max(started, _progressed[-1], _returns.last if of_each_call else started)
        if (left := since + seconds - now) > 0:
            # Only now: to set the timer with each sign of progress is a tenth of some trials.
            signal.setitimer(signal.ITIMER_REAL, left, 1.0)
            return
        if begun is None:
            begun = _worked() - (now - started)  # until now it has worked, for all that is known
        spent = max(_worked() - begun, (now - started) / BUSY)
        if _compiling(frame) and spent < max(seconds, COMPILING_LIMIT):
            signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
            _tell()
            return
        if not sample:
            sample.append((now, delayed_threads()))
            signal.setitimer(signal.ITIMER_REAL, min(SAMPLE, seconds / 4), 1.0)
            return
        looked, before = sample.pop()
        waited = (delayed_threads() - before) / (now - looked)
        more = seconds / (1.0 - min(max(waited, 0.0), BUSIEST)) - (now - since)
        if more > SAMPLE:
            for _most, prolong in _hurry:
                prolong(more)
            signal.setitimer(signal.ITIMER_REAL, more, 1.0)
            return
        if _in_progress:
            raise PluginHung(_in_progress[-1], now - started if _compiling(frame) else seconds)
        raise OutOfTime(
            f"this machine got no further for {seconds:.0f} s, with nothing of the plugin running"
        )

    _progressed.append(-math.inf)
    handler = _set_handler(signal.SIGALRM, interrupt)
    # Again and again, in case the plugin catches everything and goes on.
    outer = signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        _progressed.pop()
        signal.setitimer(signal.ITIMER_REAL, *outer)
        _set_handler(signal.SIGALRM, handler)


def place_in(error: BaseException, path: str | None) -> str | None:
    """Return the place in a plugin that was being executed when an error was raised, if any was."""
    frames = [(each.filename, each.lineno) for each in traceback.extract_tb(error.__traceback__)]
    return innermost(reversed(frames), path)


def innermost(frames: Iterable[tuple[str, int | None]], path: str | None) -> str | None:
    """Return ``file.py:LINE`` of the first frame that is the plugin's, given as file and line."""
    for file, line in frames:
        # What is frozen into Python has no path, and is in no folder.
        if path is None or not Path(file).is_absolute():
            continue
        if _beside(Path(file).resolve(), Path(path).resolve()):
            return f"{Path(file).name}:{line}"
    return None


def _beside(file: Path, plugin: Path) -> bool:
    """Tell whether a file is that of a plugin, or one of its package."""
    folder = plugin.parent
    if file == plugin or not file.is_relative_to(folder):
        return file == plugin
    # An environment may lie in the project's folder, and a module directly in an environment.
    whole = "site-packages" in (folder.name, *file.relative_to(folder).parts)
    return not whole and not file.is_relative_to(OURS)


def _worked() -> float:
    """Return seconds of a processor of this process, and of its children that have ended."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def _compiling(frame: FrameType | None) -> bool:
    """Tell whether a frame is part of a compilation."""
    while frame is not None:
        if frame.f_code.co_filename.endswith(_COMPILERS):
            return True
        frame = frame.f_back
    return False
