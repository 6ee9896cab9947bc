# SPDX-License-Identifier: Apache-2.0
"""Checks of hooks that run on other threads, several at once."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations, islice
from pathlib import Path
from types import FrameType
from typing import Any

import attrs

from conformance.checking import checks
from conformance.findings import Finding, failed, passed, waiting
from conformance.io_processor.bench import Bench
from conformance.io_processor.direct import finished, prepared, served
from conformance.io_processor.trial import Trial
from conformance.settings import Budget
from conformance.watching.comparison import difference, shortened
from conformance.watching.interruption import limited
from conformance.watching.raised import said

#: Seconds after which a thread that was not let go goes on anyhow.
LONGEST = 5.0

#: How often a request is served alone, before another one is blamed for what became of it.
AGAIN = 50


@attrs.define(eq=False)
class Lines:
    """Follows a thread through the lines of a plugin, and stops it at one of them.

    Python changes threads between any two lines; waiting for it to do so in the right place would
    take many tries, and another number of them each time.
    """

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

    def _called(self, frame: FrameType, _event: str, _argument: object) -> Any:  # noqa: ANN401 - as sys.settrace has it
        return self._came if frame.f_code.co_filename.startswith(self.files) else None

    def _came(self, frame: FrameType, event: str, _argument: object) -> object:
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


#: Pairs of requests that are served at the same time.
PAIRS = {Budget.QUICK: 4, Budget.STANDARD: 8, Budget.DEEP: 40}

#: Seconds after which no further pair is tried.
SECONDS = {Budget.QUICK: 2.0, Budget.STANDARD: 4.0, Budget.DEEP: 30.0}

#: Seconds for which a request may wait for one that stands still; the first few times,
#: and then: behind a lock it always does.
WAIT, WAITS, LATER = 0.2, 3, 0.02


@checks("IO-31", after=("IO-26",))
def threads(trial: Trial) -> Finding:
    """``post_process`` gives what it gives alone, whatever another thread does in the meantime."""
    bench = trial.bench
    if found := bound(bench):
        return found
    end = time.monotonic() + SECONDS[trial.budget]
    waits = count = 0
    numbers = range(len(bench.stock.valid))
    for pair in islice(combinations(numbers, 2), PAIRS[trial.budget]):
        for stop in _stops(bench, pair[0]):
            if count and time.monotonic() > end:
                return passed(count)
            with limited():
                found, waited = _together(bench, pair, stop, LATER if waits >= WAITS else WAIT)
            waits += waited
            count += 1
            if found:
                return attrs.evolve(found, examples=count, acted=count)
    return passed(count)


def _stops(bench: Bench, index: int) -> Iterator[int | None]:
    """Yield where ``post_process`` of a request can be stopped: once at each of its lines."""
    lines = Lines(own_files(bench.cls))
    plugin = bench.make()
    outputs = prepared(plugin, bench, bench.stock.valid[index])
    with limited():
        lines.run(lambda: finished(plugin, bench, outputs))
    # The last time: what was gathered in a loop is all there then.
    if not lines.last:  # it is compiled
        yield None
    yield from sorted(lines.last.values())


def _together(
    bench: Bench, pair: tuple[int, int], stop: int | None, wait: float
) -> tuple[Finding | None, bool]:
    """Serve one request while another one's ``post_process`` stands still at a line.

    Returns:
        What is wrong with an answer, or None; and whether the request had to wait.

    """
    plugin = bench.make()
    data = [bench.stock.valid[index] for index in pair]
    outputs = prepared(plugin, bench, data[0])
    lines = Lines(own_files(bench.cls), stop)
    workers = (
        _Worker(lambda: lines.run(lambda: finished(plugin, bench, outputs))),
        _Worker(
            lambda: finished(plugin, bench, prepared(plugin, bench, data[1], "id-1"), "id-1"),
        ),
    )
    workers[0].start()
    lines.reached.wait()
    workers[1].start()
    workers[1].join(wait)
    waited = workers[1].is_alive()
    lines.let_go.set()
    for worker in workers:
        worker.join()
    for place in range(len(pair)):
        name = f"id-{place}"
        wanted = served(bench, data[place], name)
        if what := workers[place].difference(wanted, bench):
            if workers[place].answered and not _steady(bench, data[place], name, wanted):
                why = f"{shortened(data[place])} got another answer without another request, too"
                return waiting("IO-24", why), waited
            mine, other = (shortened(data[number]) for number in (place, 1 - place))
            why = f"{mine}, while {other} was served on another thread, {what}"
            return failed(why, case={"data": data[0], "other": data[1]}), waited
    return None, waited


def _steady(bench: Bench, data: object, name: str, wanted: object) -> bool:
    """Tell whether a request that is alone, on this thread, gets the same answer each time."""
    again = (served(bench, data, name) for _ in range(AGAIN))
    return not any(difference(got, wanted, bench.hidden) for got in again)


class _Worker(threading.Thread):
    """A thread that serves one request."""

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__()
        self._work = work
        self._got: Any = None
        self._error: Exception | None = None

    def run(self) -> None:
        try:
            self._got = self._work()
        except Exception as error:  # noqa: BLE001 - told by difference()
            self._error = error

    @property
    def answered(self) -> bool:
        """Whether the request was answered."""
        return self._error is None

    def difference(self, wanted: object, bench: Bench) -> str | None:
        """Say in what the answer is not the one that was wanted, or return None."""
        if self._error is not None:
            return f"raised {said(self._error, bench.path)}"
        what = difference(self._got, wanted, bench.hidden)
        return what and f"gave {what}"


def bound(bench: Bench) -> Finding | None:
    """Return what goes wrong where ``post_process`` runs on another thread, or None."""
    for data in bench.stock.originals:
        try:
            wanted = served(bench, data)
            plugin = bench.make()
            outputs = prepared(plugin, bench, data)
        except Exception:  # noqa: BLE001, S112 - another rule is about that
            continue
        worker = _Worker(partial(finished, plugin, bench, outputs))
        with limited():
            worker.start()
            worker.join()
        if what := worker.difference(wanted, bench):
            if worker.answered and not _steady(bench, data, "id-0", wanted):
                continue  # another rule is about that, too
            where = "on another thread than pre_process"
            return failed(
                f"post_process of {shortened(data)}, {where}, {what}", case={"data": data}
            )
    return None
