# SPDX-License-Identifier: Apache-2.0
"""Which lines of a plugin run, in whatever process: watched while the plugin is called.

A file that the processes of a run map into memory has a byte for each line, so that nothing is lost
with a process that is killed.  coverage.py traces every call of a process, from its start to an end
that a trial often does not have; only the calls of the plugin are traced here.
"""

from __future__ import annotations

import mmap
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import attrs

#: As they are before a plugin is imported.
_settrace, _gettrace = sys.settrace, sys.gettrace


@attrs.frozen
class Sheet:
    """A file with a byte for each line of some source files."""

    path: str
    #: Where the byte before that of the first line is, by source file.
    starts: dict[str, int]

    @classmethod
    def laid(cls, path: Path, sources: Sequence[str]) -> Sheet:
        """Write one on which no line has run."""
        starts, size = _layout(sources)
        path.write_bytes(bytes(size))
        return cls(str(path), starts)

    def ran(self) -> dict[str, frozenset[int]]:
        """Return the lines that have run, by source file."""
        marks = Path(self.path).read_bytes()
        ends = [*list(self.starts.values())[1:], len(marks)]
        return {
            source: frozenset(n - start for n in range(start, end) if marks[n])
            for (source, start), end in zip(self.starts.items(), ends, strict=True)
        }


def _layout(sources: Sequence[str]) -> tuple[dict[str, int], int]:
    """Return where the bytes of each file are, and how many bytes there are."""
    starts, size = {}, 0
    for source in sources:
        starts[source] = size
        file = Path(source)
        size += 2 + (len(file.read_bytes().splitlines()) if file.is_file() else 0)
    return starts, size


#: What this process knows: the sheet, where the bytes of a file are by the name that code has for
#: it (None for other files), and the same by its path.
_marks: mmap.mmap | bytearray | None = None
_starts: dict[str, int | None] = {}
_sources: dict[Path, int] = {}
#: Lines that have not run, by the function: one that has none left is not looked at again.
_left: dict[tuple[str, int, str], set[int]] = {}
#: Who collects lines, beside the sheet.
_collecting: list[set[int]] = []

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
        _use(mmap.mmap(file.fileno(), 0), sheet.starts)
    if always:
        begin()


def forget() -> None:
    """Watch nothing any more."""
    _use(None, {})


def _use(marks: mmap.mmap | bytearray | None, starts: dict[str, int]) -> None:
    global _marks  # noqa: PLW0603 - a process tries one plugin
    _marks = marks
    _sources.clear()
    _sources.update({Path(name).resolve(): start for name, start in starts.items()})
    _starts.clear()
    _left.clear()


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
def collected(path: str) -> Iterator[set[int]]:
    """Collect what stands for lines of a plugin's file that run within the block."""
    ran: set[int] = set()
    alone = _marks is None
    if alone:
        starts, size = _layout([path])
        _use(bytearray(size), starts)
    _collecting.append(ran)
    try:
        with watched():
            yield ran
    finally:
        _collecting.remove(ran)
        if alone:
            forget()


def _called(frame: FrameType, _event: str, _argument: object) -> Any:  # noqa: ANN401 - what sys.settrace wants
    """Have the lines of a function watched that has some which have not run."""
    code = frame.f_code
    name = code.co_filename
    try:
        start = _starts[name]
    except KeyError:
        start = _starts[name] = _sources.get(Path(name).resolve())
    if start is None:
        return None
    key = (name, code.co_firstlineno, code.co_name)
    if (left := _left.get(key)) is None:
        left = _left[key] = {line for *_, line in code.co_lines() if line}
    return _line if left or _collecting else None


def _line(frame: FrameType, event: str, _argument: object) -> object:
    """Mark a line."""
    if event == "line" and _marks is not None:
        code, line = frame.f_code, frame.f_lineno
        place = (_starts.get(code.co_filename) or 0) + line
        if place < len(_marks):  # what has been written since is not told apart
            _marks[place] = 1
        if left := _left.get((code.co_filename, code.co_firstlineno, code.co_name)):
            left.discard(line)
        for ran in _collecting:
            ran.add(place)
    return _line
