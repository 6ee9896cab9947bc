# SPDX-License-Identifier: Apache-2.0
"""What a step may cost, counted in batches in which nobody comes or goes.

What is counted is the same in every run; what is timed is for ``vllm-conformance bench``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
import torch

from conformance.counterexample.work_player import Memory, executed
from conformance.findings import Finding, failed
from conformance.inputs.history import Choice
from conformance.logits.calls import PluginRaised
from conformance.logits.findings import refused, switched_on
from conformance.logits.requests import Stock
from conformance.logits.trial import Trial
from conformance.verdict import Verdict
from conformance.watching.interruption import limited

#: Requests of batches whose steps are compared; each has four times as many as the one before.
SIZES = (16, 64, 256)

#: From 64 requests to 256 a step may become longer by so many times what it does from 16 to 64:
#: four times where it grows with the batch, sixteen times where it grows with its square.
MOST_GROWTH = 8.0

#: Instructions that say nothing: a table that is enlarged now and then, an early step.
NOISE = 100

#: A vocabulary so many times larger may make a step longer by this factor.
LARGER, MOST_LONGER = 4, 1.5

#: A step may hold so many times the memory of its logits.
MOST_MEMORY = 16

#: Steps before the one that is counted: a first one may set something up.
WARM_UP = 3

#: Requests of a small batch, where something else than the batch is varied.
FEW = 8

#: Requests and outputs of the batch whose memory is counted.
MEMORY_ROWS, HISTORY = 32, 40

LIMIT = 60.0

_FLOAT = 4  # bytes of a number in the logits


@attrs.frozen
class Batch:
    """A batch in which every request gets a token in each step."""

    choices: tuple[Choice, ...]  #: parameter sets, in turn
    vocabulary: int
    requests: int = FEW
    history: int = 0  #: outputs of every request that has no end before :data:`WARM_UP`

    def choice(self, row: int) -> Choice:
        """Return the parameter set of the request in a row."""
        return self.choices[row % len(self.choices)]

    def logits(self, stock: Stock) -> torch.Tensor:
        """Return float32 logits ``[requests, vocabulary]`` for any of the steps."""
        generator = torch.Generator().manual_seed(stock.seed)
        return torch.randn(
            (self.requests, self.vocabulary), generator=generator, dtype=torch.float32
        )


#: Starts a batch in an instance of its own; returns the calls of a step that comes after
#: :data:`WARM_UP` others.
Start = Callable[[Any, Batch], Callable[[], None]]


def counted(stock: Stock, start: Start, batch: Batch) -> int:
    """Return how many instructions of Python a step executes."""
    return executed(start(stock, batch))


def grows(trial: Trial, start: Start) -> Finding:
    """Judge that a step is longer by no more than its batch is larger, whatever the vocabulary.

    Raises:
        PluginRaised: the plugin raised.
        PluginHung: the steps took too long.

    """
    return _opted_in(trial, partial(_grown, trial.bench, start), len(SIZES) + 2)


def fits(trial: Trial, start: Start) -> Finding:
    """Judge that a step holds a few times the memory of its logits, and no more.

    Raises:
        PluginRaised: the plugin raised.
        PluginHung: the steps took too long.

    """
    return _opted_in(trial, partial(_held, trial.bench, start), 1)


def _opted_in(trial: Trial, look: Callable[[Batch], str | None], batches: int) -> Finding:
    """Look at batches of opted-in requests, and return what is said of them; nothing is a pass."""
    on = tuple(switched_on(trial.bench))
    if not on:
        return Finding(Verdict.NOT_APPLICABLE, message="nothing switches the plugin on")
    try:
        with limited(LIMIT):
            message = look(Batch(on, trial.bench.vocabulary))
    except PluginRaised as error:
        return refused(error, SIZES[-1])
    if message:
        return failed(message, batches, case={"choices": list(on)})
    return Finding(Verdict.PASS, batches, batches)


def _grown(stock: Stock, start: Start, few: Batch) -> str | None:
    """Say what makes a step too long, if anything does."""
    first, second, third = (
        counted(stock, start, attrs.evolve(few, requests=requests)) for requests in SIZES
    )
    if third - second > MOST_GROWTH * max(second - first, second / 10, NOISE):
        shown = ", ".join(
            f"{count} with {requests}"
            for count, requests in zip((first, second, third), SIZES, strict=True)
        )
        return (
            "a step of a batch of opted-in requests executes more instructions of Python than the "
            f"batch has grown: {shown} requests"
        )
    larger = attrs.evolve(few, vocabulary=few.vocabulary * LARGER)
    usual = counted(stock, start, few)
    try:
        large = counted(stock, start, larger)
    except PluginRaised:
        return None  # whether other vocabularies are served, the rule about those tells
    if large > usual * MOST_LONGER + NOISE:
        return (
            f"a step of {few.requests} requests executes {usual} instructions of Python with a "
            f"vocabulary of {few.vocabulary}, and {large} with one of {larger.vocabulary}"
        )
    return None


def _held(stock: Stock, start: Start, few: Batch) -> str | None:
    """Say how much a step holds, if it is too much."""
    batch = attrs.evolve(few, requests=MEMORY_ROWS, history=HISTORY)
    step = start(stock, batch)
    with Memory() as memory:
        step()
    size = batch.requests * batch.vocabulary * _FLOAT
    if memory.peak > MOST_MEMORY * size:
        return (
            f"a step of {batch.requests} requests with {batch.history} outputs holds "
            f"{memory.peak} bytes, {memory.peak / size:.0f} times as much as its logits"
        )
    return None
