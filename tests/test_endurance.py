# SPDX-License-Identifier: Apache-2.0
"""What is sent to a process of its own may end, stall or fill it, and it is known what did."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from conformance.watching import endurance
from conformance.watching.endurance import Errand, Growth, Guard, Stalled, Trouble, endured
from conformance.watching.interruption import PluginHung, in_call, limited
from conformance.watching.untouched import Untouched

if TYPE_CHECKING:
    from collections.abc import Iterator


class Plugin:
    """Stands for a plugin."""


def exits(_: type, errand: Errand) -> int:
    """End the process at the second of three values."""
    with Guard.open(errand) as guard:
        for value in errand.asked:
            with guard.sending(value):
                if value == 2:
                    os._exit(3)
    return guard.number


def sleeps(_: type, errand: Errand) -> int:
    """Stay where no signal handler of Python runs."""
    with Guard.open(errand) as guard, guard.sending("long", "a long text", seconds=0.1):
        ctypes.PyDLL(None).usleep(60_000_000)  # it keeps the interpreter's lock
    return guard.number


def works(_: type, errand: Errand) -> str | Stalled:
    """Need so many seconds of a processor, of which other processes take their part."""
    others, needed = errand.asked
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(others)]
    try:
        with Guard.open(errand) as guard, guard.sending("work", seconds=1.0) as sent:
            try:
                with limited(), in_call("work"):
                    begun = time.process_time()
                    while time.process_time() - begun < needed:
                        pass
            except PluginHung:
                return Stalled(Trouble(sent, "stalls"))
    finally:
        for other in busy:
            other.kill()
            other.wait()
    return "done"


def allocates(_: type, errand: Errand) -> str:
    """Ask for more memory than there may be."""
    with Guard.open(errand):
        try:
            bytearray(errand.asked)
        except MemoryError as error:
            return type(error).__name__
    return "taken"


@pytest.fixture
def untouched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Untouched]:
    """A process that knows the functions above, and waits for little."""
    monkeypatch.setattr(endurance, "MARGIN", 0.2)
    process = Untouched.fork(Plugin)
    yield process
    process.close()


def _endured(untouched: Untouched, name: str, asked: Any) -> Any:  # noqa: ANN401 - as they answer
    return endured(untouched, f"{__name__}:{name}", asked, path=__file__)


def test_what_ends_a_process_is_known(untouched: Untouched) -> None:
    """The value that was told last is the one, and a process that ends has no say in it."""
    found = _endured(untouched, "exits", [1, 2, 3])

    assert isinstance(found, Trouble)
    assert (found.sent.number, found.sent.value) == (2, 2)
    assert found.what == "ends the process (status 3)"
    assert _endured(untouched, "exits", [1, 3]) == 2


def test_what_nothing_interrupts_is_ended(untouched: Untouched) -> None:
    """A call in C that keeps the interpreter's lock stalls its process, and is found in it."""
    found = _endured(untouched, "sleeps", None)

    assert isinstance(found, Trouble)
    assert found.sent.name == "a long text"
    assert found.what.startswith("stalls the server")
    assert "at test_endurance.py:" in found.what


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says how long threads wait")
def test_what_others_cost_is_no_stall() -> None:
    """A call has its limit in seconds of a processor, where others want the same one."""
    untouched = Untouched.fork(Plugin)
    try:
        assert _endured(untouched, "works", (2, 0.5)) == "done"  # 1.5 s on the clock
        assert isinstance(_endured(untouched, "works", (0, 30.0)), Trouble)
    finally:
        untouched.close()


def test_memory_is_limited(untouched: Untouched) -> None:
    """What may be allocated is allocated, and no more."""
    assert _endured(untouched, "allocates", 1 << 20) == "taken"
    assert _endured(untouched, "allocates", 2 * endurance.FILL) == "MemoryError"
    assert endurance.no_memory("RuntimeError: ... DefaultCPUAllocator: can't allocate memory")
    assert not endurance.no_memory("ValueError: out of range")


@pytest.mark.parametrize(
    ("took", "goes_on", "limit"),
    [
        ([], True, endurance.STALL),
        ([0.001, 0.002, 0.01], True, endurance.STALL),  # too short to tell
        ([0.02, 0.2, 1.6], False, 16 * 1.6),  # as its input
        ([0.001, 0.05, 3.0], True, 48.0),  # faster than that
    ],
)
def test_linear_growth_needs_no_megabyte(took: list[float], goes_on: bool, limit: float) -> None:
    """What takes long goes on only where it grows faster than its input, and has its time."""
    growth = Growth("form", took)

    assert growth.goes_on("form") is goes_on
    assert growth.limit == pytest.approx(limit)
    assert growth.goes_on("another form")
    assert growth.limit == endurance.STALL


def test_enough_of_one_kind_leaves_the_others_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What works long for each request is sent fewer of a kind; what is left out is counted."""
    monkeypatch.setattr(endurance, "ENOUGH", 0.01)
    shares = endurance.Shares()
    sent = 0
    for kind in ("odd", "odd", "odd", "long"):
        if not shares.enough(kind):
            with shares.taken(kind):
                time.sleep(0.02)
            sent += 1

    assert sent == 2
    assert shares.left_out == 2
