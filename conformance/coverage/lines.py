# SPDX-License-Identifier: Apache-2.0
"""Which lines of a plugin run, in whatever process: watched while the plugin is called.

A file that the processes of a run map into memory has a byte for each line, so that nothing is lost
with a process that is killed, and one for each way that no line stands for.  coverage.py traces
every call of a process, from its start to an end that a trial often does not have; only the calls
of the plugin are traced here, and of those only functions with something that has not run.
"""

from __future__ import annotations

import dis
import inspect
import mmap
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import attrs

from conformance.coverage.statements import Arm, Way, arms

#: As they are before a plugin is imported.
_settrace, _gettrace = sys.settrace, sys.gettrace


#: Instructions that leave a function for good, and no generator for a while.
_LEAVES = {dis.opmap[name] for name in ("RETURN_VALUE", "RETURN_CONST") if name in dis.opmap}


@attrs.frozen
class Part:
    """Where the bytes of a source file are."""

    start: int  #: before that of the first line
    ways: int  #: where those begin of the ways that no line stands for
    arms: tuple[Arm, ...] = ()


@attrs.frozen
class Sheet:
    """A file with a byte for each line of some source files, and for each way that has none."""

    path: str
    parts: dict[str, Part]  #: by source file

    @classmethod
    def laid(cls, path: Path, sources: Sequence[str]) -> Sheet:
        """Write one on which no line has run."""
        parts, size = _layout(sources)
        path.write_bytes(bytes(size))
        return cls(str(path), parts)

    def ran(self) -> dict[str, frozenset[int]]:
        """Return the lines that have run, by source file."""
        marks = Path(self.path).read_bytes()
        return {
            source: frozenset(n - part.start for n in range(part.start, part.ways) if marks[n])
            for source, part in self.parts.items()
        }

    def taken(self) -> dict[str, frozenset[Arm]]:
        """Return the ways that statements have gone and no line stands for, by source file."""
        marks = Path(self.path).read_bytes()
        return {
            source: frozenset(arm for n, arm in enumerate(part.arms, part.ways) if marks[n])
            for source, part in self.parts.items()
        }


def _layout(sources: Sequence[str]) -> tuple[dict[str, Part], int]:
    """Return where the bytes of each file are, and how many bytes there are."""
    parts, size = {}, 0
    for source in sources:
        file = Path(source)
        text = file.read_bytes() if file.is_file() else b""
        part = Part(size, size + 2 + len(text.splitlines()), _arms(text))
        parts[source] = part
        size = part.ways + len(part.arms)
    return parts, size


def _arms(text: bytes) -> tuple[Arm, ...]:
    try:
        return arms(text.decode())
    except (SyntaxError, ValueError):  # no plugin either
        return ()


@attrs.define
class _Fork:
    """A statement with ways that have not been gone: where its test and its block are."""

    first: int
    last: int
    inner: int
    end: int
    #: Where the bytes of its ways are.
    left: dict[Way, int] = attrs.field(factory=dict)


@attrs.define
class _Function:
    """What of a function has not run in this process."""

    start: int  #: where the byte before that of its file's first line is
    lines: set[int]
    forks: dict[int, _Fork]  #: by each line of a test
    called: int = 0  #: when it was, by the number of :func:`since_now`

    @property
    def whole(self) -> bool:
        """Whether everything has."""
        return not (self.lines or self.forks)


#: What this process knows: the sheet, and the part of it for a file by the name that code has for
#: it (None for other files), and the same by its path.
_marks: mmap.mmap | bytearray | None = None
_parts: dict[str, Part | None] = {}
_sources: dict[Path, Part] = {}
#: What has not run, by the function: one of which everything has is not looked at again.
_functions: dict[tuple[str, int, str], _Function] = {}
#: How often something ran that had not run before in this process, or the one that it is a fork of.
_new = 0
#: How often :func:`since_now` was called.
_times = 0
#: Who collects lines, beside the sheet, and who steps from one line to the next.
_collecting: list[set[int]] = []
_stepping: list[list[tuple[int, int, int]]] = []

_depths = threading.local()


def watch(sheet: Sheet | None, *, always: bool = False) -> None:
    """Have lines that run from now on marked on a sheet, in this process and its forks.

    Args:
        sheet: where, if anywhere.
        always: whether lines are watched outside the calls that the harness makes, too.

    """
    if sheet is None:
        return
    with Path(sheet.path).open("r+b") as file:
        _use(mmap.mmap(file.fileno(), 0), sheet.parts)
    if always:
        begin()


def watch_alone(path: str | None) -> bool:
    """Have the lines of a file noted in this process; tell whether nothing was watched before."""
    if path is None or _marks is not None:
        return False
    parts, size = _layout([path])
    _use(bytearray(size), parts)
    return True


def forget() -> None:
    """Watch nothing any more."""
    _use(None, {})


def _use(marks: mmap.mmap | bytearray | None, parts: dict[str, Part]) -> None:
    global _marks  # noqa: PLW0603 - a process tries one plugin
    _marks = marks
    _sources.clear()
    _sources.update({Path(name).resolve(): part for name, part in parts.items()})
    _parts.clear()
    _functions.clear()


def news() -> int:
    """Return a number that grows when something of the plugin runs which never ran.

    It is that of this process, so that the same calls give the same numbers whatever others do.
    """
    return _new


def since_now() -> None:
    """Have :func:`anything_left` tell of functions that are called from now on."""
    global _times  # noqa: PLW0603 - a process tries one plugin
    _times += 1


def anew() -> None:
    """Take nothing for run in this process, so that what runs now is new, whatever ran before."""
    _functions.clear()
    since_now()


def anything_left() -> bool:
    """Tell whether functions were called of which lines, or ways, have never run in this process.

    Others may wait for something else, as what refuses a request does.
    """
    called = (each for each in _functions.values() if each.called == _times)
    return _marks is not None and any(not each.whole for each in called)


def begin() -> bool:
    """Begin to watch this thread, and those that it starts; tell whether :func:`end` is to follow.

    Another's tracer is left alone.  Where the host calls the plugin by itself nothing ends it.
    """
    if _marks is None:
        return False
    depth: int = getattr(_depths, "now", 0)
    if depth == 0:
        if _gettrace() is not None:
            return False
        threading.settrace(_called)
        _settrace(_called)
    _depths.now = depth + 1
    return True


def end() -> None:
    """End what :func:`begin` began; what the plugin has set meanwhile stays."""
    _depths.now -= 1
    if _depths.now == 0:
        threading.settrace(None)
        if _gettrace() is _called:
            _settrace(None)


@contextmanager
def watched() -> Iterator[None]:
    """Watch the lines that run within the block."""
    begun = begin()
    try:
        yield
    finally:
        if begun:
            end()


@contextmanager
def unwatched(*, when: bool = True) -> Iterator[None]:
    """Watch no lines of this thread within the block, whose time is then the plugin's alone.

    Each step of a generator costs what watches lines a call, which may be most of the time.
    """
    if not when:
        yield
        return
    before = _gettrace()
    if before is _called:
        _settrace(None)
    _depths.now = getattr(_depths, "now", 0) + 1  # who begins now is not the first
    try:
        yield
    finally:
        _depths.now -= 1
        if before is _called:
            _settrace(before)


@contextmanager
def collected(path: str) -> Iterator[set[int]]:
    """Collect what stands for lines of a plugin's file that run within the block."""
    ran: set[int] = set()
    alone = watch_alone(path)
    _collecting.append(ran)
    try:
        with watched():
            yield ran
    finally:
        _collecting.remove(ran)
        if alone:
            forget()


@contextmanager
def stepping() -> Iterator[list[tuple[int, int, int]]]:
    """Collect the steps from line to line of the plugin's files in the calls within the block."""
    steps: list[tuple[int, int, int]] = []
    _stepping.append(steps)
    try:
        yield steps
    finally:
        _stepping.remove(steps)


def _called(frame: FrameType, _event: str, _argument: object) -> Any:  # noqa: ANN401 - what sys.settrace wants
    """Have the lines of a function watched that has some which have not run."""
    code = frame.f_code
    name = code.co_filename
    try:
        part = _parts[name]
    except KeyError:
        part = _parts[name] = _sources.get(Path(name).resolve())
    if part is None:
        return None
    key = (name, code.co_firstlineno, code.co_name)
    if (function := _functions.get(key)) is None:
        function = _functions[key] = _known(code, part)
    function.called = _times
    waited = frame.f_trace
    if waited is not None and waited.__module__ == __name__:
        return waited  # a coroutine goes on
    if function.forks or _stepping:
        return _following(function)
    if function.lines or _collecting:
        return _marking(function)
    return None


def _known(code: CodeType, part: Part) -> _Function:
    """Return what there is of a function."""
    lines = {line for *_, line in code.co_lines() if line}
    module = code.co_name == "<module>"
    if not module:
        # Nothing is told of the line that it begins with, unless all of it stands there.
        lines = lines - {code.co_firstlineno} or lines
    forks: dict[int, _Fork] = {}
    if module or not code.co_name.startswith("<"):  # others hold expressions
        for place, arm in enumerate(part.arms, part.ways):
            # An opening bracket alone on the first line has no code in CPython 3.11.
            if lines.intersection(range(arm.first, arm.last + 1)):
                fork = forks.get(arm.first) or _Fork(arm.first, arm.last, arm.inner, arm.end)
                fork.left[arm.way] = place
                forks.update(dict.fromkeys(range(arm.first, arm.last + 1), fork))
    return _Function(part.start, lines, forks)


def _marking(function: _Function) -> Any:  # noqa: ANN401 - what sys.settrace wants
    """Return what marks lines of a function."""

    def mark(frame: FrameType, event: str, _argument: object) -> object:
        if event == "line":
            _mark(function, frame.f_lineno)
        return mark

    return mark


def _following(function: _Function) -> Any:  # noqa: ANN401 - what sys.settrace wants
    """Return what marks lines of a function, and the ways between them."""
    lines, forks = function.lines, function.forks
    before = 0  # the line that ran last
    came = 0  # from which line, to the test that it is at

    def follow(frame: FrameType, event: str, argument: Any) -> object:  # noqa: ANN401 - what sys.settrace wants
        nonlocal before, came
        fork = forks.get(before)
        if event == "line":
            line = frame.f_lineno
            if line in lines or _collecting:
                _mark(function, line)
            for steps in _stepping:
                steps.append((function.start, before, line))
            if fork is not None and not fork.first <= line < fork.inner:
                _leave(function, fork, came, line)
            if line in forks and (fork is None or not fork.first <= line < fork.inner):
                came = before
            before = line
        elif event == "return":
            # A generator that waits has not left.
            if fork is not None and frame.f_code.co_code[frame.f_lasti] in _LEAVES:
                _leave(function, fork, came, 0)
        elif event == "exception" and not (_ends(frame, fork) and issubclass(argument[0], _ENDS)):
            before = 0
        return follow

    return follow


#: What iterators say at their end, and what is waited for.
_ENDS = (StopIteration, StopAsyncIteration)


def _ends(frame: FrameType, fork: _Fork | None) -> bool:
    """Tell whether a statement goes on when an iterator comes to its end."""
    waits = frame.f_code.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR)
    return fork is not None and bool(waits or Way.PAST not in fork.left)


def _leave(function: _Function, fork: _Fork, came: int, line: int) -> None:
    """Mark the way that a statement goes from its test to a line, 0 for out of the function."""
    global _new  # noqa: PLW0603 - a process tries one plugin
    if fork.inner <= line <= fork.end:
        return
    gone = {Way.PAST, Way.END}
    if not fork.first <= came <= fork.end:
        gone.add(Way.EMPTY)
    for way in gone.intersection(fork.left):
        place = fork.left.pop(way)
        _new += 1
        if _marks is not None and place < len(_marks):
            _marks[place] = 1
        for ran in _collecting:
            ran.add(place)
    if not fork.left:
        for each in range(fork.first, fork.last + 1):
            function.forks.pop(each, None)


def _mark(function: _Function, line: int) -> None:
    """Mark a line."""
    global _new  # noqa: PLW0603 - a process tries one plugin
    place = function.start + line
    if _marks is not None and place < len(_marks):  # what has been written since is not told apart
        _marks[place] = 1
    if line in function.lines:
        function.lines.discard(line)
        _new += 1
    for ran in _collecting:
        ran.add(place)
