# SPDX-License-Identifier: Apache-2.0
"""Whether something that is sent ends, stalls or fills the process that it is sent to.

Everything is sent in a process of its own, whose memory is limited and which says beforehand what
comes next: where it is gone in the end, that is what ended it.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import pickle
import re
import stat
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from conformance.watching.interruption import hurried, innermost
from conformance.watching.room import leave_room
from conformance.watching.untouched import Ended, Untouched

#: Seconds that anything may take that is at most a megabyte, and how many times as long as an
#: eighth of it, where that takes long already: what grows as its input takes eight times as long.
STALL = 10.0
FASTER = 16.0

#: Seconds after which it is worth while to ask no more of what grows as its input.
LONG = 0.02

#: Lengths of a form that are tried in any case: what each call takes anyway hides growth there.
SMALL = 3

#: Seconds after which a call that nothing interrupts ends the process, beyond its limit.
MARGIN = 5.0

#: Seconds for what is sent of one kind: some plugins work long for each, and the rules that wait
#: for this have a time limit.
ENOUGH = 35.0

#: Bytes that may be allocated for anything that is at most a megabyte.
FILL = 2 << 30

#: What allocators say when there is no memory.
_NO_MEMORY = re.compile(r"MemoryError|not enough memory|can't allocate memory|std::bad_alloc")

#: A value that is told to the other process has at most so many bytes.
_TOLD = 1 << 14

#: Descriptor of stderr, and the most characters of its last line that messages show.
_STDERR, _LINE = 2, 200

_FRAME = re.compile(r'^  File "(.+)", line (\d+) in', re.MULTILINE)


@attrs.frozen
class Sent:
    """What was sent when something happened."""

    number: int  #: counted from the first
    value: Any = None  #: None where it is too long to be told
    name: str = ""  #: how messages call it; empty where the value says it


@attrs.frozen
class Trouble:
    """What something that was sent did to its process."""

    sent: Sent
    what: str  #: what messages say of it, as "ends the process: ..."
    fills: bool = False  #: whether it asks for all memory, which a machine is to be spared


@attrs.frozen
class Errand:
    """What is to be sent by the other process."""

    what: str  #: ``module:function`` that sends it
    folder: str  #: where the process says what comes next, and where it hangs
    path: str | None  #: the file of the plugin
    first: int = 0  #: what comes before was sent already
    asked: Any = None  #: what the function needs


def no_memory(error: str) -> bool:
    """Tell whether an error says that there was no memory."""
    return bool(_NO_MEMORY.search(error))


def endured(
    untouched: Untouched, function: str, asked: object, *, path: str | None
) -> Any | Trouble:  # noqa: ANN401 - what the function answers
    """Send what a function sends, in a process of its own.

    What stalled must do so twice: a machine may be slow.

    Returns:
        What the function answered, or the trouble that ended its process.

    """
    with tempfile.TemporaryDirectory(prefix="vllm-conformance-") as folder:
        stalled: int | None = None
        first = 0
        while True:
            errand = Errand(function, folder, path, first, asked)
            printed = _printed()
            try:
                answer = untouched.run(errand)
            except Ended as ended:
                last = _last_words(printed)
                how = f"{ended.how}, after it wrote {last!r}" if last else ended.how
                answer = _left(Path(folder), how, path)
            if not isinstance(answer, Stalled):
                return answer
            if answer.trouble.sent.number == stalled:
                return answer.trouble
            first = stalled = answer.trouble.sent.number


def _printed() -> int:
    """Return how much was written to stderr so far, where that is a file."""
    with suppress(OSError):
        return os.fstat(_STDERR).st_size
    return 0


def _last_words(before: int) -> str:
    """Return the last line that was written to stderr since then, where that is a file."""
    with suppress(OSError), Path(f"/dev/fd/{_STDERR}").open("rb") as file:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.seek(before)
            lines = file.read().decode(errors="replace").splitlines()
            return next((line.strip()[:_LINE] for line in reversed(lines) if line.strip()), "")
    return ""


@attrs.frozen
class Stalled:
    """Trouble that another try has to confirm."""

    trouble: Trouble


def _left(folder: Path, how: str, path: str | None) -> Trouble | Stalled:
    """Return what a process was at when it ended."""
    sent: Sent = pickle.loads((folder / "next").read_bytes())  # noqa: S301 - written by ourselves
    stack = (folder / "stack").read_text(encoding="utf-8", errors="replace")
    if not stack:
        return Trouble(sent, f"ends the process ({how})")
    frames = [(file, int(line)) for file, line in _FRAME.findall(stack)]
    return Stalled(Trouble(sent, stalls(STALL, innermost(frames, path))))


def stalls(seconds: float, place: str | None) -> str:
    """Say that something stalls the server."""
    where = f", at {place}" if place else ""
    return f"stalls the server: it takes more than {seconds:.0f} s{where}"


@attrs.define
class Growth:
    """How long one form of an input takes, as it gets eight times as long each time."""

    form: object = None
    took: list[float] = attrs.field(factory=list)

    def goes_on(self, form: object) -> bool:
        """Tell whether the next one of a form may show more than those before it."""
        if form is None or form != self.form:
            self.form, self.took = form, []
        if len(self.took) < SMALL:
            return True
        # What the smallest one takes is not for its length.
        before, last = (each - min(self.took) for each in self.took[-2:])
        return self.took[-1] < LONG or last > FASTER * before

    @property
    def limit(self) -> float:
        """Seconds that the next one may take."""
        return max([STALL, *(FASTER * last for last in self.took[-1:])])

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure how long the next one takes."""
        started = time.monotonic()
        yield
        self.took.append(time.monotonic() - started)


@attrs.define
class Shares:
    """How long what was sent of each kind took, and whether that is enough."""

    left_out: int = 0  #: what was not sent any more
    _took: defaultdict[str, float] = attrs.field(factory=partial(defaultdict, float))

    def enough(self, kind: str) -> bool:
        """Tell whether enough of a kind were sent, and one more is left out."""
        enough = self._took[kind] > ENOUGH
        self.left_out += enough
        return enough

    @contextmanager
    def taken(self, kind: str) -> Iterator[None]:
        """Count the time of the block for a kind."""
        started = time.monotonic()
        try:
            yield
        finally:
            self._took[kind] += time.monotonic() - started


@attrs.define
class Guard:
    """Sees to it that what is sent ends, and that it is known what was sent last."""

    _next: int
    _stack: Any  #: an open file
    number: int = 0
    _until: float = 0.0  #: when this process ends by itself

    @classmethod
    @contextmanager
    def open(cls, errand: Errand) -> Iterator[Guard]:
        """Guard what this process sends from now on; ordinary things have been sent before."""
        folder = Path(errand.folder)
        leave_room(FILL)
        gc.freeze()  # what was there before need not be looked through for what to free
        with (folder / "stack").open("w+b") as stack:
            try:
                yield cls(os.open(folder / "next", os.O_CREAT | os.O_WRONLY), stack)
            finally:
                faulthandler.cancel_dump_traceback_later()

    @contextmanager
    def sending(self, value: object, name: str = "", *, seconds: float = STALL) -> Iterator[Sent]:
        """Send something within the block; it is told to the other process first."""
        self.number += 1
        sent = Sent(self.number, None if name else value, name)
        try:
            told = pickle.dumps(sent)
        except Exception:  # noqa: BLE001 - lists so deep that they are not pickled
            told = b""
        if not 0 < len(told) < _TOLD:
            told = pickle.dumps(Sent(self.number, None, name or "something long"))
        os.ftruncate(self._next, 0)
        os.pwrite(self._next, told, 0)
        if self._until < time.monotonic() + seconds + MARGIN:  # it takes a thread: not for each
            self._end_after(seconds)
        with hurried(seconds, self._end_after):
            yield sent

    def _end_after(self, seconds: float) -> None:
        """Have this process end where a call that nothing interrupts takes so much longer."""
        self._until = time.monotonic() + seconds + 2 * MARGIN
        faulthandler.dump_traceback_later(seconds + 2 * MARGIN, exit=True, file=self._stack)
