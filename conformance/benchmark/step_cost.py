# SPDX-License-Identifier: Apache-2.0
"""Runs in a worker: what the steps of one plugin take, in turns with others.

In every round each contestant makes one step on the same logits: the plugin, a second instance of
it, a processor that does nothing, and another plugin to compare it with.
The second instance shows what this machine makes of two things that are the same.
"""

from __future__ import annotations

import random
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection

import attrs
import torch

from conformance.benchmark.figures import Cost, Failed, Opened, Switches
from conformance.benchmark.intervals import LEAST_PAIRS, difference, ratio
from conformance.benchmark.loads import Load
from conformance.benchmark.served import (
    HISTORY,
    LONGEST,
    PROMPT,
    STEPS,
    Keywords,
    Served,
    identity,
    parameters,
)
from conformance.benchmark.surroundings import environment
from conformance.engine.environment import chosen_device
from conformance.plugin.target import Plugin
from conformance.settings import Settings, UsageError
from conformance.worker.jobs import class_of

#: Rounds of one load: no more than a request has room for.
MOST_ROUNDS = LONGEST - HISTORY - len(PROMPT) - 10

#: The first rounds take in the batch and fill caches.
WARM_UP = 4

#: What torch's warning of a synchronization says, whatever else there is in it.
_SYNCHRONIZED = "called a synchronizing CUDA operation"


@attrs.frozen
class Contestant:
    """A plugin class, and the requests that switch it on and off."""

    plugin: type
    generation: str
    on: tuple[Keywords, ...] = ()
    off: tuple[Keywords, ...] = ({},)

    def start(self, load: Load, model: str, device: str) -> Served:
        """Make an instance with a full batch."""
        params = parameters(load, self.on, self.off)
        return STEPS[self.generation](self.plugin, load, params, model, device)


def measure(
    plugin: Contestant,
    other: Contestant | None,
    load: Load,
    *,
    model: str,
    device: str = "cpu",
    seconds: float = 2.0,
    seed: int = 0,
) -> Cost:
    """Measure one load.

    Raises:
        Exception: whatever a plugin raises.

    """
    idle = Contestant(identity(plugin.generation), plugin.generation)
    contestants = [plugin, plugin, idle, *([other] if other else [])]
    served = [each.start(load, model, device) for each in contestants]
    generator = torch.Generator().manual_seed(seed)
    master = torch.randn((load.requests, load.vocabulary), generator=generator).to(device)
    scratch = torch.empty_like(master)
    taken = _rounds(served, master, scratch, seconds=seconds, seed=seed)
    mine, again, nothing, *others = taken
    return Cost(
        load=load,
        rounds=len(mine),
        step=difference(mine, [0.0] * len(mine), seed=seed),
        added=difference(mine, nothing, seed=seed),
        same=ratio(mine, again, seed=seed),
        against=ratio(mine, others[0], seed=seed) if others else None,
        samples=tuple(mine),
        waits=_waits(served[0], master, scratch),
    )


def _rounds(
    served: Sequence[Served],
    master: torch.Tensor,
    scratch: torch.Tensor,
    *,
    seconds: float,
    seed: int,
) -> list[list[float]]:
    """Return what the steps of each contestant took, round by round."""
    clock = _clock(master.device)
    order = list(range(len(served)))
    choose = random.Random(seed)
    taken: list[list[float]] = [[] for _ in served]
    deadline = time.monotonic() + seconds
    with torch.inference_mode():
        for number in range(-WARM_UP, MOST_ROUNDS):
            if number >= LEAST_PAIRS and time.monotonic() > deadline:
                break
            choose.shuffle(order)
            for which in order:
                scratch.copy_(master)  # steps may write to the logits
                served[which].prepare()
                started = clock()
                served[which].step(scratch)
                passed = clock() - started
                if number >= 0:
                    taken[which].append(passed)
    return taken


def _waits(served: Served, master: torch.Tensor, scratch: torch.Tensor) -> int | None:
    """Return how often the host waits for the GPU in one step; on a CPU nothing is waited for."""
    if master.device.type == "cpu":
        return None
    scratch.copy_(master)
    served.prepare()
    with torch.inference_mode(), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            served.step(scratch)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    # What torch warns of has no class of its own: only its words tell it from other warnings.
    return sum(_SYNCHRONIZED in str(each.message) for each in warned)


def _clock(device: torch.device) -> Callable[[], float]:
    """Return a clock in seconds that other processes disturb as little as they can."""
    if device.type == "cpu":
        return time.thread_time

    def wall() -> float:
        torch.cuda.synchronize(device)
        return time.perf_counter()

    return wall


def serve(
    connection: Connection,
    *,
    plugin: Plugin,
    switches: Switches,
    other: tuple[Plugin, Switches] | None,
    settings: Settings,
    model: str,
) -> None:
    """Answer ``"open"`` with the device, and each load with its :class:`Cost`.

    A load comes as ``(load, seconds)``; where something raised, the answer is :class:`Failed`.
    """
    torch.set_num_threads(1)  # a second thread waits for whatever else the machine does
    try:
        connection.recv()
        device = chosen_device(settings.device)
        try:
            mine = _contestant(plugin, switches)
            others = _contestant(*other) if other else None
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything
            traceback.print_exc()
            connection.send(UsageError(f"{plugin.target} cannot be measured: {error}."))
            return
        connection.send(Opened(mine.on, environment(device)))
        while True:
            load, seconds = connection.recv()
            try:
                found: Cost | Failed = measure(
                    mine,
                    others,
                    load,
                    model=model,
                    device=device,
                    seconds=seconds,
                    seed=settings.seed,
                )
            except Exception as error:  # noqa: BLE001 - a plugin may raise anything
                traceback.print_exc()
                found = Failed(f"{load.name}: {type(error).__name__}: {error}")
            connection.send(found)
    except EOFError:
        pass


def _contestant(plugin: Plugin, switches: Switches) -> Contestant:
    return Contestant(class_of(plugin), plugin.generation, switches.on, switches.off)
