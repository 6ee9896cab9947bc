# SPDX-License-Identifier: Apache-2.0
"""What vLLM's log says about the end of a server.

Several processes write to the log, most of their lines marked with the process::

    (EngineCore pid=12) ERROR 11-21 06:37:56 [core.py:99] Traceback (most recent call last):

An engine that fails prints its traceback so, and again unmarked when the process ends; the API
server then fails with an exception that says only that the engine has failed.
"""

from __future__ import annotations

import re
from pathlib import Path

import attrs

_LINE = re.compile(
    r"(?P<process>\([\w ]+ pid=\d+\))? ?"
    r"(?:[A-Z]+ \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]+\] ?)?"
    r"(?P<text>.*)"
)
_TRACEBACK = "Traceback (most recent call last):"
_DIRECT_CAUSE = "The above exception was the direct cause of"
_ENGINE_FAILED = re.compile(
    r"\S*EngineDeadError\b|\w+: (Engine core|WorkerProc) initialization failed"
)
_LEAVING = re.compile(r"(\w+\.)*(CancelledError|KeyboardInterrupt|SystemExit)\b")
_USAGE_ERROR = re.compile(r"^\S+: error: (.+)", re.MULTILINE)
_PYDANTIC = re.compile(r"\S*ValidationError: \d+ validation errors? for ")
_NOISE = re.compile(r"\s*$|\s*warnings\.warn\(|\S+: UserWarning: resource_tracker")

_TAIL = 1 << 20  # bytes
_LONGEST = 300  # characters


@attrs.frozen
class _Raised:
    process: str  #: "(EngineCore pid=12)", or "" where unmarked
    text: str  #: "ValueError: the message"
    root: str | None  #: the exception at the root of a "raise ... from ..."


def read_log(path: Path) -> str:
    """Return the last mebibyte of the log, or nothing if there is none."""
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(max(0, size - _TAIL))
            return stream.read().decode(errors="replace")
    except OSError:
        return ""


def difference(log: str, other: str) -> list[str]:
    """Return what a log says and another one does not, whatever the time, the process and the port.

    A line that comes again and again is returned once.
    """
    known = {_alike(line) for line in other.splitlines()}
    found: list[str] = []
    for line in log.splitlines():
        if (alike := _alike(line)) not in known:
            known.add(alike)
            found.append(_text(line))
    return found


def _text(line: str) -> str:
    matched = _LINE.match(line)
    return matched["text"].rstrip() if matched else line


def _alike(line: str) -> str:
    return re.sub(r"0x[0-9a-f]+|/\S+|[0-9a-f]{8,}|\d+", "#", _text(line))


def cause(log: str) -> str | None:
    """Return why a server that died did so, in one line, or None if the log does not say."""
    raised = _raised(log)
    telling = [one for one in raised if not _ENGINE_FAILED.match(one.text)]
    if len(telling) < len(raised):
        # The API server only passes on that its engine failed; what requests raised in the API
        # server before is another matter.
        telling = [one for one in telling if one.process.startswith(("(Engine", "(Worker"))]
        if not telling:
            return "its engine process ended without an exception"
    if telling:
        last = telling[-1]
        return _shortened(f"{last.text} (from {last.root})" if last.root else last.text)
    usage = _USAGE_ERROR.search(log)
    return _shortened(usage[1]) if usage else None


def last_line(log: str) -> str | None:
    """Return the last line that says something, without its mark, or None."""
    lines = [line for line in log.splitlines() if not _NOISE.match(line)]
    return _shortened(_split(lines[-1])[1]) if lines else None


def port_was_taken(log: str) -> bool:
    """Whether the server died because another process had its port."""
    return "address already in use" in log.lower()


def _raised(log: str) -> list[_Raised]:
    """Return the exceptions whose tracebacks end in the log, in order."""
    raised: list[_Raised] = []
    inside: set[str] = set()
    last: dict[str, _Raised] = {}
    roots: dict[str, str] = {}
    lines = [_split(line) for line in log.splitlines()]
    for number, (process, text) in enumerate(lines):
        if text == _TRACEBACK:
            inside.add(process)
        elif text.startswith(_DIRECT_CAUSE) and process in last:
            roots[process] = last[process].root or last[process].text
        elif process in inside and text and not text[0].isspace():
            inside.remove(process)
            if _LEAVING.match(text):
                continue
            # Which field pydantic means, and what is wrong with it, are on the next two lines.
            extent = 3 if _PYDANTIC.match(text) else 1
            whole = " ".join(part.strip() for _, part in lines[number : number + extent])
            last[process] = _Raised(process, whole, roots.pop(process, None))
            raised.append(last[process])
    return raised


def _split(line: str) -> tuple[str, str]:
    match = _LINE.match(line)
    assert match is not None
    return match["process"] or "", match["text"]


def _shortened(text: str) -> str:
    text = text.strip()
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 4]} ..."
