# SPDX-License-Identifier: Apache-2.0
"""The process that loads a plugin, and what it sees of itself: before, after, and at its end."""

from __future__ import annotations

import atexit
import ctypes
import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import attrs
import psutil

from conformance.plugin.loader import LoadFailure, load_class
from conformance.plugin.target import Target
from conformance.watching import process_effects, replaced
from conformance.watching.interruption import CONSTRUCTOR_LIMIT
from conformance.watching.process_effects import Effect, Kind
from conformance.watching.process_facts import generator_states, seed_generators

#: Gets ready, and returns what makes an instance of a class as the engine does.
Maker = Callable[[], Callable[[Any], object]]
Mend = Callable[[str | None], object]  # takes the plugin's file

#: Instances that are made.
INSTANCES = 2

#: Seconds that a process may take to end, and what it has started after it.
ENDING = 5.0

MAKING = "making an instance"

#: The signals with which engines and servers are ended.
ENDED_BY = ("SIGTERM", "SIGINT")

_PR_SET_PDEATHSIG = 1  # from <linux/prctl.h>

#: Exit status of a process that handed a signal on to the handler that was there before.
_HANDED_ON = 97


@attrs.frozen
class Started:
    """A thread or a process that was there when the instances were gone."""

    name: str
    who: str | None = None
    pid: int | None = None
    born: float = 0.0


@attrs.frozen
class Seen:
    """What one process saw."""

    effects: tuple[Effect, ...] = ()
    generators: dict[str, bytes] = attrs.field(factory=dict)
    #: Whether the import alone has changed a generator.
    at_import: frozenset[str] = frozenset()
    threads: tuple[Started, ...] = ()
    children: tuple[Started, ...] = ()
    problem: str | None = None  #: why no instance could be made


def alone() -> None:
    """Have nothing of this process outlive its parent, and no signal mean more than it says."""
    for name in ENDED_BY:
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def watched(
    target: Target, maker: Maker | None, mend: Mend | None, seed: int
) -> tuple[Seen | None, tuple[Effect, ...]]:
    """Load a plugin in a process; return what it saw, and what stayed when it was to end."""
    mine, theirs = multiprocessing.Pipe()
    send = theirs.send  # before a plugin replaces it
    if (pid := os.fork()) == 0:
        try:
            alone()
            mine.close()
            mine_seen = _load(target, maker, mend, seed)
            send(mine_seen)
            if mine_seen.threads or mine_seen.children:
                # What Python does at its end: wait for threads, and call what was registered.
                threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - as above
                atexit._run_exitfuncs()  # noqa: SLF001 - as above
        finally:
            os._exit(0)
    theirs.close()
    seen: Seen | None = None
    with suppress(EOFError, OSError):
        if mine.poll(INSTANCES * CONSTRUCTOR_LIMIT):
            seen = mine.recv()
    ended = _has_ended(pid, 0.0 if seen is None else ENDING)
    if not ended:
        process = psutil.Process(pid)
        for each in (*(process.children(recursive=True) if seen is None else ()), process):
            with suppress(psutil.NoSuchProcess):
                each.kill()
        os.waitpid(pid, 0)
    if seen is None:
        return None, ()
    staying = _left(seen.children)
    if not ended:
        what = seen.threads or seen.children
        why = "keeps the process from ending"
        return seen, tuple(Effect(Kind.LINGERING, s.name, after=why, who=s.who) for s in what)
    return seen, tuple(
        Effect(Kind.LINGERING, s.name, after="outlives the process", who=s.who) for s in staying
    )


def _has_ended(pid: int, limit: float) -> bool:
    end = time.monotonic() + limit
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() >= end:
            return False
        time.sleep(0.01)
    return True


def _left(children: Sequence[Started]) -> list[Started]:
    """Return those that are still there some time after the process that started them; end them."""
    there: dict[int, tuple[Started, psutil.Process]] = {}
    for child in children:
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(child.pid)
            if process.create_time() == child.born:
                there[process.pid] = (child, process)
    end = time.monotonic() + ENDING
    while there and time.monotonic() < end:
        there = {pid: entry for pid, entry in there.items() if _alive(entry[1])}
        time.sleep(0.02)
    for _, process in there.values():
        with suppress(psutil.NoSuchProcess):
            process.kill()
    return [child for child, _ in there.values()]


def _alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _load(target: Target, maker: Maker | None, mend: Mend | None, seed: int) -> Seen:
    """Import a plugin and make instances here; return what is other than before."""
    seed_generators(seed)
    hand_on()
    if target.root and target.root not in sys.path:
        sys.path.insert(0, target.root)  # as loading does
    make = maker() if maker else None
    before, drawn = process_effects.taken(), generator_states()
    problem = None
    at_import: frozenset[str] = frozenset()
    try:
        cls = load_class(target)
        states = generator_states()
        at_import = frozenset(name for name in states if states[name] != drawn[name])
        if make is not None:
            for _ in range(INSTANCES):
                make(cls)
                gc.collect()
    except LoadFailure as error:
        problem = str(error)
    except BaseException as error:  # noqa: BLE001 - as the trial will say by another rule
        problem = f"making an instance raised {type(error).__name__}: {error}"
    try:
        patches = process_effects.attributes_replaced(before)
        if mend is not None:  # what comes now calls some of them
            mend(getattr(sys.modules.get(target.module), "__file__", None))
        seen = Seen(at_import=at_import, threads=_threads(), children=_children(), problem=problem)
        facts = process_effects.facts_changed(before)
        effects = (*(told(effect) for effect in facts), *patches)
        return attrs.evolve(seen, effects=effects, generators=generator_states())
    except Exception as error:  # noqa: BLE001 - what the plugin replaced is what this is made of
        why = f"nothing can be compared: {type(error).__name__}: {error}"
        return Seen(at_import=at_import, problem=problem or why)


def _threads() -> tuple[Started, ...]:
    """Return the threads that Python waits for at its end."""
    found = []
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            run = getattr(thread, "_target", None) or type(thread).run
            found.append(Started(f"thread {thread.name}", replaced.place_of(run)))
    return tuple(found)


def _children() -> tuple[Started, ...]:
    found = []
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if child.status() != psutil.STATUS_ZOMBIE:
                # Its first words: what follows may be a whole program.
                command = child.cmdline()[:3] or [child.name()]
                line = " ".join(" ".join((Path(command[0]).name, *command[1:])).split())[:60]
                found.append(Started(f"process {line!r}", pid=child.pid, born=child.create_time()))
    return tuple(found)


def hand_on() -> None:
    """Have handlers of which :func:`told` sees whether signals come to them."""
    for name in ENDED_BY:
        signal.signal(getattr(signal, name), _handed_on)


def told(effect: Effect) -> Effect:
    """Return an effect; of a handler, say whether it hands on to that of :func:`hand_on`."""
    if effect.kind is Kind.SIGNAL and effect.name in ENDED_BY:
        pid = os.fork()
        if pid == 0:
            try:
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(int(ENDING))
                os.kill(os.getpid(), getattr(signal, effect.name))
                time.sleep(0.01)
            finally:
                os._exit(1)
        if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == _HANDED_ON:
            name = f"the handler of {effect.name}, which hands on"
            return attrs.evolve(effect, kind=Kind.HOOK, name=name, before="another")
    return effect


def _handed_on(_: int, __: FrameType | None) -> None:
    """Stand for the engine's handler: what is asked in :func:`told` has come to it."""
    os._exit(_HANDED_ON)
