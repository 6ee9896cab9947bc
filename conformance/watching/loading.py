# SPDX-License-Identifier: Apache-2.0
"""What loading a plugin does to a process: in one of its own, which then ends as Python ends.

The process is forked before the plugin is imported, and works while the trial does; where few rules
are asked for, it waits until its own is.  It imports the plugin, makes two instances, lets go of
them, and says what is other than it was; where it has threads or children left it ends, and it is
watched what stays.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import attrs

from conformance.findings import Finding, failed, simulated, unjudged, waiting
from conformance.plugin.target import Target
from conformance.verdict import RuleResult, Verdict
from conformance.watching import process_effects
from conformance.watching.interruption import CONSTRUCTOR_LIMIT, progressed
from conformance.watching.loading_process import (
    ENDED_BY,
    INSTANCES,
    MAKING,
    Maker,
    Mend,
    alone,
    watched,
)
from conformance.watching.process_effects import Effect, Kind

#: Seconds for which it is waited for what loading does; it has been looked for all the time.
LOADING_LIMIT = 2 * CONSTRUCTOR_LIMIT


#: Seeds of the generators; a generator with the same state after both was seeded by the plugin.
_SEEDS = (11, 12)

#: What a certificate says of effects that harm no one.
ABOUT = "What loading it changes in the process, which is for operators to know"
MOST_NOTES = 20
NOTES_LIMIT = 1.0  # seconds


@attrs.frozen
class Loading:
    """What loading a plugin does to a process."""

    effects: tuple[Effect, ...] = ()
    #: Those that change what others get, or keep the engine from ending.
    harms: tuple[Effect, ...] = ()
    problem: str | None = None  #: why nothing can be said


@attrs.define
class Observer:
    """The process that finds out, once it is begun."""

    _connection: Connection
    _pid: int
    _poll: Callable[[float], bool]
    _receive: Callable[[], Any]
    _begin: Callable[[Any], None]
    _begun: bool = attrs.field(init=False, default=False)
    _found: Loading | None = attrs.field(init=False, default=None)

    @classmethod
    def fork(cls, target: Target, maker: Maker | None, mend: Mend | None = None) -> Observer:
        """Fork the process; without ``maker`` the plugin is imported, and that is all.

        ``mend`` puts back what the plugin replaced, which finding out may need.
        """
        mine, theirs = multiprocessing.Pipe()
        # As they are now: a plugin may replace the methods of a class.
        send, receive, poll, begin = theirs.send, mine.recv, mine.poll, mine.send
        if (pid := os.fork()) == 0:
            try:
                alone()
                mine.close()
                theirs.recv()
                send(_observe(target, maker, mend))
            finally:
                os._exit(0)
        theirs.close()
        return cls(mine, pid, poll, receive, begin)

    def begin(self) -> None:
        """Have it find out, while whoever asked does something else."""
        if not self._begun:
            self._begun = True
            with suppress(OSError):  # that it has ended is noticed when it is asked
                self._begin("begin")

    def found(self, limit: float) -> Loading | None:
        """Return what was found, or None where that takes longer."""
        self.begin()
        end = time.monotonic() + limit
        while self._found is None:
            try:
                if self._poll(min(1.0, max(0.0, end - time.monotonic()))):
                    self._found = self._receive()
            except (EOFError, OSError):
                self._found = Loading(problem="the process that was to find out has ended")
            if time.monotonic() >= end:
                break
            progressed()
        return self._found

    def notes(self, limit: float) -> dict[str, Any] | None:
        """Return what a certificate says about it, beside the verdict; see :meth:`found`.

        Where nobody has asked what loading does, that is nothing.
        """
        found = self.found(limit) if self._begun else None
        if found is None or not found.effects:
            return None
        says = [process_effects.sentence(effect) for effect in found.effects]
        more = [f"and {len(says) - MOST_NOTES} more"] if len(says) > MOST_NOTES else []
        return {"about": ABOUT, "says": [*says[:MOST_NOTES], *more]}

    def close(self) -> None:
        """End the process, and those that it has started."""
        self._connection.close()
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)


def judged(observer: Observer | None, made: str, survives: str) -> Finding:
    """Judge whether loading changes nothing that others compute with, and the process ends.

    Args:
        observer: the process that has loaded the plugin.
        made: id of the rule that a plugin breaks of which no instance can be made.
        survives: id of the rule about calls that do not return.

    """
    if observer is None:
        return unjudged("nothing was seen of how it is loaded")
    found = observer.found(LOADING_LIMIT)
    if found is None or found.problem:
        return waiting(survives if found is None else made, found.problem if found else None)
    if found.harms:
        first = found.harms[0]
        return failed(
            "; ".join(map(sentence, found.harms)),
            INSTANCES,
            case={"effect": first.kind.value, "name": first.name},
        )
    return Finding(Verdict.PASS, INSTANCES, INSTANCES)


def result(
    rule: str,
    observer: Observer | None,
    made: str,
    survives: str,
    taken: Callable[[], Mapping[str, Any] | None],
) -> RuleResult:
    """Judge it, for families whose trials have no check of it; see :func:`judged`.

    ``taken`` returns what a program takes to make instances, if there is one.
    """
    started = time.perf_counter()
    finding = judged(observer, made, survives)
    case = None
    if finding.case:
        asked = {"seed": _SEEDS[0], "parameters": [], "invalid": []}
        case = {"kind": "check", "rule": rule, **asked, **finding.case}
        if (given := taken()) is not None:
            case["program"] = {"is": "loading", **given}
    return simulated(rule, finding, time.perf_counter() - started, case)


def again(result: RuleResult) -> tuple[list[str], str]:
    """Return what a replay says: the kind of trouble, if there is any, and a message."""
    kind = "check" if result.verdict is Verdict.FAIL else result.verdict.value
    return [] if result.verdict is Verdict.PASS else [kind], result.message or ""


def _observe(target: Target, maker: Maker | None, mend: Mend | None) -> Loading:
    """Find out; a second process is asked only where a generator is in another state."""
    seen, left = watched(target, maker, mend, _SEEDS[0])
    if seen is None:
        return Loading(problem="the process that imports it and makes instances ends or hangs")
    if seen.problem is not None:
        return Loading(seen.effects, problem=seen.problem)
    seeded: list[Effect] = []
    if any(effect.kind is Kind.GENERATOR for effect in seen.effects):
        again, _ = watched(target, maker, mend, _SEEDS[1])
        states = again.generators if again else {}
        seeded = [
            attrs.evolve(effect, after="importing it" if effect.name in seen.at_import else MAKING)
            for effect in seen.effects
            if effect.kind is Kind.GENERATOR
            and states.get(effect.name) == seen.generators[effect.name]
        ]
    other = [effect for effect in seen.effects if effect.name not in {e.name for e in seeded}]
    harms = [effect for effect in other if harmful(effect)]
    return Loading(tuple(e for e in other if e not in harms), (*seeded, *harms, *left))


#: Settings that others compute with; those that are left out change no answer.
_SHARED_SETTINGS = frozenset(
    (
        "torch.get_default_dtype()",
        "torch.get_default_device()",
        "torch.are_deterministic_algorithms_enabled()",
    )
)

#: The limit of Python, and how far it may be raised.  Before 3.12 it is all that keeps what is
#: nested that deep, as a client's body may be, from overflowing the stack, which ends the process.
_RECURSION, DEEPEST = "sys.getrecursionlimit()", 50_000


def sentence(effect: Effect) -> str:
    """Say what harms others."""
    if effect.kind is Kind.GENERATOR:
        return f"{effect.after} seeds the global generator of {effect.name} anew"
    return process_effects.sentence(effect)


def harmful(effect: Effect) -> bool:
    """Tell whether others get other answers for it, or the engine no longer ends."""
    if effect.kind is Kind.TOKENIZER:
        return True
    if effect.kind is Kind.SETTING:
        return effect.name in _SHARED_SETTINGS
    if effect.name == _RECURSION:
        return int(effect.after or 0) > DEEPEST
    return effect.kind is Kind.SIGNAL and effect.name in ENDED_BY
