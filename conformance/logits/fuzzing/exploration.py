# SPDX-License-Identifier: Apache-2.0
"""Exploring what clients may send, in a process of its own with bounded memory.

A value may end the process, hang in code that no signal interrupts, or ask for all memory:
only the explorer notices, and the request that it was at is known.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING

import attrs

from conformance.logits.configuration import vllm_config
from conformance.logits.fuzzing.explorer import Explored, Explorer, bases_of
from conformance.logits.fuzzing.serving import Serving
from conformance.logits.fuzzing.slate import Slate
from conformance.logits.fuzzing.values import positions
from conformance.logits.played import Kind
from conformance.settings import Budget
from conformance.watching.interruption import CONSTRUCTOR_LIMIT

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from conformance.logits.fuzzing.serving import Play
    from conformance.logits.parameters import Parameters
    from conformance.logits.requests import Stock
    from conformance.logits.sweeps import Strata

#: Seconds without a request that is done, after which the explorer is given up.
STUCK = 120.0

_POLL = 0.5


class ExplorerFailed(Exception):
    """The harness's own failure, with the traceback of the other process."""


@attrs.define
class Exploring:
    """A forked process that explores what clients may send, while its owner does other things."""

    _pid: int = 0
    _receiver: Connection | None = None
    _slate: Slate | None = None
    found: Explored | None = None  #: once it is known

    def result(self) -> Explored:
        """Wait for what the process finds."""
        if self.found is None:
            assert self._receiver is not None
            assert self._slate is not None
            try:
                self.found = _await(self._receiver, self._slate, self._pid)
            finally:
                self.close()
        return self.found

    def close(self) -> None:
        """End the process."""
        if self._receiver is None or self._slate is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        with suppress(ProcessLookupError):  # it may have no group of its own yet
            os.kill(self._pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self._pid, 0)
        self._receiver.close()
        self._slate.close()
        self._receiver = self._slate = None


def explore(
    strata: Strata,
    play: Play,
    bench: Stock,
    parameters: Parameters,
    budget: Budget,
    *,
    shrink: bool = True,
) -> Exploring:
    """Begin to explore what clients may send, in a forked process.

    Args:
        strata: those of the generation; two of their shapes say how its host plays.
        play: plays a history, as that of the generation.
        bench: the plugin, with the parameter sets that it is tried with.
        parameters: where these come from, and what the plugin reads of requests.
        budget: how many requests.
        shrink: whether a request that does harm is made smaller.

    """
    if not parameters.keys and not any(map(positions, bases_of(parameters))):
        return Exploring(found=Explored())  # there is nothing that a client chooses
    serving = Serving(bench, vllm_config(bench.model), strata, play, bench.path)
    receiver, sender = multiprocessing.Pipe(duplex=False)
    slate = Slate()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.setpgid(0, 0)
            gc.freeze()  # Hypothesis collects garbage, and everything imported is none
            try:
                found: Explored | str = Explorer(
                    serving, parameters, budget, slate, shrink=shrink
                ).run()
            except MemoryError:
                traceback.print_exc()  # what the plugin keeps has left no room
                raise
            except Exception:  # noqa: BLE001 - the harness's own, and raised by the owner
                found = traceback.format_exc()
            sender.send(found)
            status = 0
        finally:
            os._exit(status)
    sender.close()
    return Exploring(pid, receiver, slate)


def _await(receiver: Connection, slate: Slate, pid: int) -> Explored:
    """Return what the explorer found, or the request that ended it."""
    # An honest constructor may load a model of its own before the first request.
    count, patience = slate.count, CONSTRUCTOR_LIMIT + STUCK
    left = patience
    while not receiver.poll(_POLL):
        if (now := slate.count) != count:
            count, patience = now, STUCK
            left = patience
            continue
        left -= _POLL
        if left <= 0:
            said = f"the process got no further for {patience:.0f} s"
            return Explored(count, harm=slate.lost(Kind.HUNG, said))
    try:
        found: Explored | str = receiver.recv()
    except EOFError:
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"status {status}"
        return Explored(count, harm=slate.lost(Kind.RAISED, f"the process ended ({how})"))
    if isinstance(found, str):
        raise ExplorerFailed(found)
    return found
