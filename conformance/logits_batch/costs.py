# SPDX-License-Identifier: Apache-2.0
"""Checks of what a step costs, by counting: idle, as the batch grows, and in memory.

What is counted is the same in every run; what is timed is for ``vllm-conformance bench``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from vllm.v1.sample.logits_processor import BatchUpdate

from conformance.findings import Finding, failed
from conformance.interruption import limited
from conformance.logits.calls import call
from conformance.logits.configuration import vllm_config
from conformance.logits.work import Memory, instructions
from conformance.logits_batch import host
from conformance.logits_batch.bench import Watched
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from conformance.history import Choice
    from conformance.logits.trial import Trial
    from conformance.logits_batch.bench import Bench

#: Requests of an idle batch, small and large.
FEW, MANY = 8, 128

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

#: Requests and outputs of the batch whose memory is counted.
MEMORY_ROWS, HISTORY = 32, 40

LIMIT = 60.0


def idles(trial: Trial) -> Finding:
    """LB-35: where nobody opts in, a large batch costs what a small one does."""
    bench: Bench = trial.bench
    # Others that change nothing may have to be followed all the same.
    off = [choice for choice, keywords in bench.parameters.items() if not keywords]
    if not off or off[0][0] == "on" or not trial.parameters.on:
        return Finding(Verdict.NOT_APPLICABLE, message="the plugin has no opt-in")
    with limited(LIMIT):
        small, large = (_counted(bench, off, rows) for rows in (FEW, MANY))
    if large > small * MOST_LONGER + NOISE:
        return failed(
            f"a step in which no request opts in executes {large} instructions of Python with "
            f"{MANY} requests, and {small} with {FEW}",
            2,
            2,
        )
    return Finding(Verdict.PASS, 2, 2)


def grows(trial: Trial) -> Finding:
    """LB-36: a step is longer by no more than its batch is larger, whatever the vocabulary."""
    bench: Bench = trial.bench
    on = [choice for choice in bench.parameters if choice[0] == "on"]
    if not on:
        return Finding(Verdict.NOT_APPLICABLE, message="nothing switches the plugin on")
    with limited(LIMIT):
        first, second, third = (_counted(bench, on, rows) for rows in SIZES)
        usual, large = (
            _counted(bench, on, FEW, vocabulary=bench.vocabulary * factor) for factor in (1, LARGER)
        )
    counts = len(SIZES) + 2
    if third - second > MOST_GROWTH * max(second - first, second / 10, NOISE):
        shown = ", ".join(
            f"{count} with {rows}"
            for count, rows in zip((first, second, third), SIZES, strict=True)
        )
        return failed(
            f"a step of a batch of opted-in requests executes more instructions of Python than the "
            f"batch has grown: {shown} requests",
            counts,
            counts,
        )
    if large > usual * MOST_LONGER + NOISE:
        return failed(
            f"a step of {FEW} requests executes {usual} instructions of Python with a vocabulary "
            f"of {bench.vocabulary}, and {large} with one of {bench.vocabulary * LARGER}",
            counts,
            counts,
        )
    return Finding(Verdict.PASS, counts, counts)


def fits(trial: Trial) -> Finding:
    """LB-37: a step holds a few times the memory of its logits, and no more."""
    bench: Bench = trial.bench
    on = [choice for choice in bench.parameters if choice[0] == "on"]
    if not on:
        return Finding(Verdict.NOT_APPLICABLE, message="nothing switches the plugin on")
    with limited(LIMIT):
        instance, logits = _started(bench, on, MEMORY_ROWS, HISTORY)
        before = logits.numel() * logits.element_size()
        with Memory() as memory:
            instance.update_state(None)
            instance.apply(logits.clone())
    peak = memory.peak - before  # the copy of the logits is ours
    if peak > MOST_MEMORY * before:
        return failed(
            f"a step of {MEMORY_ROWS} requests with {HISTORY} outputs holds {peak} bytes, "
            f"{peak / before:.0f} times as much as its logits",
            1,
            1,
        )
    return Finding(Verdict.PASS, 1, 1)


def _counted(
    bench: Bench, choices: list[Choice], rows: int, *, vocabulary: int | None = None
) -> int:
    """Return the instructions of a step in which nobody comes or goes."""
    instance, logits = _started(bench, choices, rows, 0, vocabulary or bench.vocabulary)
    with instructions() as counted:
        instance.update_state(None)
        instance.apply(logits)
    return counted.count


def _started(
    bench: Bench, choices: list[Choice], rows: int, history: int, vocabulary: int | None = None
) -> tuple[Watched, torch.Tensor]:
    """Return an instance after some steps with a request in each row, and logits for the next."""
    vocabulary = vocabulary or bench.vocabulary
    config = vllm_config(bench.model, max(SIZES), vocabulary)
    instance = Watched(call("__init__", bench.plugin, config, host.CPU, False))  # noqa: FBT003 - as vLLM calls it
    outputs = [
        [bench.tokens[(row + place) % len(bench.tokens)] for place in range(history)]
        for row in range(rows)
    ]
    added = [
        (row, bench.params(choices[row % len(choices)]), [bench.tokens[0]], outputs[row])
        for row in range(rows)
    ]
    generator = torch.Generator().manual_seed(bench.seed)
    logits = torch.randn((rows, vocabulary), generator=generator)
    for step in range(WARM_UP):
        instance.update_state(None if step else BatchUpdate(rows, [], added, []))
        instance.apply(logits.clone())
        for row, tokens in enumerate(outputs):
            tokens.append(bench.tokens[(row + step) % len(bench.tokens)])
    return instance, logits
