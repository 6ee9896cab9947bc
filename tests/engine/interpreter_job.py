# SPDX-License-Identifier: Apache-2.0
"""Jobs of a process that has Triton's interpreter."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import torch
from kernel_cases import CASES, Draw
from triton.runtime.interpreter import InterpretedFunction

from conformance.engine.kernels import KERNELS

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

SEEDS = 8


def compare(connection: Connection, kernel: str) -> None:
    """Answer how many launches were compared, and with the first that differs."""
    connection.recv()
    module, _, name = kernel.rpartition(".")
    interpreted = getattr(importlib.import_module(module), name)
    assert isinstance(interpreted, InterpretedFunction)
    stand_in = KERNELS[kernel]
    compared = 0
    for case in CASES[stand_in.__name__]:
        for seed in range(SEEDS):
            theirs, ours = case(Draw(seed)), case(Draw(seed))
            interpreted[theirs.grid](*theirs.arguments, **theirs.options)
            stand_in(*ours.arguments, **ours.options)
            for number, (a, b) in enumerate(zip(theirs.watched, ours.watched, strict=True)):
                exact = torch.equal(a, b)
                if not exact and (theirs.exact or not torch.allclose(a, b, rtol=1e-5, atol=1e-5)):
                    where = (a != b).nonzero()[:3].tolist()
                    connection.send((compared, f"{case.__name__}, seed {seed}: {number}, {where}"))
                    return
            compared += 1
    connection.send((compared, None))
