# SPDX-License-Identifier: Apache-2.0
"""Tells what loading a plugin, or serving a request, does to the process, whatever the plugin is.

A function returns what happened and what was expected, or None where it is as the docstring says.
"""

import asyncio
import atexit
import functools
import hashlib
import importlib
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from conformance.watching.process_facts import (
    blanket_filters,
    generator_states,
    interpreter_hooks,
    logger_settings,
    seed_generators,
    signal_handlers,
    torch_settings,
)


def forked(function: Callable[[], object], *, ends: bool = False) -> tuple[int, int]:
    """Call a function in a process of its own; return that, and where its answer is read.

    ``ends`` says whether the process then does what Python does at its end.
    """
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, f"{json.dumps(function())}\n".encode())
            if ends:
                threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
                atexit._run_exitfuncs()
        finally:
            os._exit(0)
    os.close(write)
    return pid, read


def told_by(read: int) -> Any:
    """Return what a process says."""
    with os.fdopen(read) as stream:
        return json.loads(stream.readline())


def elsewhere(function: Callable[[], object]) -> Any:
    """Return what a function returns in a process of its own."""
    pid, read = forked(function)
    found = told_by(read)
    os.waitpid(pid, 0)
    return found


def digests() -> dict[str, str]:
    """Return the states of the generators that all share."""
    every = generator_states().items()
    return {name: hashlib.sha256(state).hexdigest() for name, state in every}


#: The signals with which engines and servers are ended.
SIGNALS = (signal.SIGTERM, signal.SIGINT)


def handle_signals() -> None:
    """Have the handlers of an engine, which end it."""
    for number in SIGNALS:
        signal.signal(number, lambda *_: os._exit(97))


def is_handled(number: signal.Signals) -> bool:
    """Return whether a signal still comes to the handler of the engine."""
    pid = os.fork()
    if pid == 0:
        try:
            os.kill(os.getpid(), number)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 97


def changed_by(
    make: Callable[[], Any], serve: Callable[[Any], Awaitable[object]], names: Sequence[str]
) -> str | None:
    """Say which of some things that a process shares are other after a request."""

    def shared() -> dict[str, Any]:
        every = torch_settings() | signal_handlers() | interpreter_hooks() | logger_settings()
        return every | blanket_filters()

    async def main(plugin: Any) -> dict[str, str]:
        before = shared()
        try:
            await serve(plugin)
        except Exception:
            traceback.print_exc()
        after = shared()
        # A handler may hand on to the one that was there.
        after |= {each.name: before[each.name] for each in SIGNALS if is_handled(each)}
        pairs = {name: (before.get(name), after.get(name)) for name in names}
        return {
            name: f"{name} is {late} after a request\nexpected: {early}, as before it"
            for name, (early, late) in pairs.items()
            if early is not late and early != late
        }

    def noted(seed: int) -> list[dict[str, str]]:
        plugin = make()
        handle_signals()
        seed_generators(seed)
        torch.set_num_threads(3)  # an unusual number, so that any other one shows
        return [asyncio.run(main(plugin)), digests()]

    (changed, first), (_, second) = (elsewhere(functools.partial(noted, each)) for each in (11, 12))
    for name, state in first.items():
        if name in names and state == second[name]:
            what = f"serving a request seeds the global generator of {name}"
            return f"{what}\nexpected: a generator of the plugin's own"
    return next(iter(changed.values()), None)


def children() -> list[int]:
    """Return the processes that this one has started, as Linux knows them."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, parent = entry.read_text().rpartition(")")[2].split()[:2]
            if state != "Z" and int(parent) == os.getpid():
                found.append(int(entry.parent.name))
    return found


def is_running(pid: int) -> bool:
    """Return whether a process is there that has not ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def stays_on(still_there: Callable[[], bool]) -> bool:
    """Return whether something is still there after some seconds."""
    deadline = perf_counter() + 5
    while (there := still_there()) and perf_counter() < deadline:
        threading.Event().wait(0.05)
    return there


def lingering(load: Callable[[], None]) -> str | None:
    """Say what keeps a process from ending that has loaded the plugin, or outlives it."""

    def started() -> list[int]:
        load()
        return children()

    # The process of an engine, which is then asked to end.
    pid, read = forked(started, ends=True)
    ours = told_by(read)
    stays = stays_on(lambda: os.waitpid(pid, os.WNOHANG) == (0, 0))
    if stays:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    others = [child for child in ours if stays_on(functools.partial(is_running, child))]
    for child in others:
        os.kill(child, signal.SIGKILL)
    if stays:
        return "a process that has loaded the plugin does not end\nexpected: nothing keeps it"
    if others:
        what = f"{len(others)} process(es) that the plugin started go on without it"
        return f"{what}\nexpected: they end with it"
    return None


def seeding(load: Callable[[], None]) -> str | None:
    """Say which generator loading seeds for all."""

    def seeded(seed: int) -> dict[str, str]:
        seed_generators(seed)
        load()
        return digests()

    # Two processes with other seeds: what is the same in both was seeded by the plugin.
    first, second = (elsewhere(functools.partial(seeded, each)) for each in (1, 2))
    for name, state in first.items():
        if state == second[name]:
            what = f"loading seeds the global generator of {name}"
            return f"{what}\nexpected: a generator of the plugin's own"
    return None


def setting(load: Callable[[], None]) -> str | None:
    """Say which setting of torch loading changes, or which signal it takes."""
    torch.set_default_dtype(torch.float32)
    torch.set_default_device("cpu")
    torch.use_deterministic_algorithms(mode=False)
    before = torch_settings()
    handle_signals()
    load()
    for each in ("default_dtype", "default_device", "are_deterministic_algorithms_enabled"):
        for name, value in torch_settings().items():
            if each in name and value != before[name]:
                return f"{name} is {value} after loading\nexpected: {before[name]}, as before"
    for number in SIGNALS:
        if not is_handled(number):
            what = f"{number.name} no longer comes to the handler that was there"
            return f"{what}\nexpected: it is handed on"
    return None


def check_loading(module: str, name: str, new: Callable[[Any], object]) -> str | None:
    """What all requests share is what it was before the plugin was loaded."""

    def load() -> None:
        """Import the plugin, as if for the first time, and make two instances."""
        package = module.rpartition(".")[0] or module
        for each in [each for each in sys.modules if f"{each}.".startswith(f"{package}.")]:
            del sys.modules[each]
        plugin = functools.reduce(getattr, name.split("."), importlib.import_module(module))
        for _ in range(2):
            new(plugin)

    return lingering(load) or seeding(load) or setting(load)
