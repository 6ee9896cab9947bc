# SPDX-License-Identifier: Apache-2.0
"""Batches on a device that is not the CPU, where there is none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from vllm.v1.sample.logits_processor import BatchUpdate, MoveDirectionality

from conformance.findings import Finding
from conformance.inputs.history import Choice
from conformance.logits import devices
from conformance.logits.calls import call
from conformance.logits.configuration import vllm_config
from conformance.logits.pinning import DEVICE
from conformance.logits.pretended import Accelerator
from conformance.logits.trial import Trial
from conformance.logits_batch import host
from conformance.logits_batch.bench import Bench, Call, Watched, all_join

#: Steps after the first request has finished.
_AFTER = 2


def keeps_to_device(trial: Trial) -> Finding:
    """LB-44: each request alone, and all of them in a batch that changes."""
    return devices.keeps_to_device(trial.bench, serve)


def serve(
    bench: Bench, accelerator: Accelerator | None, choices: Sequence[Choice]
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Serve requests together; the first finishes, the last moves up, and one like it joins.

    Raises:
        PluginRaised: the plugin raised.

    """
    count = len(choices)
    steps = devices.steps_of(bench, choices, _AFTER)
    if count > 1 and steps < 1:
        return
    config = vllm_config(bench.model)
    pinned = accelerator is not None  # as on GPUs
    device = DEVICE if accelerator else host.CPU
    instance = Watched(call(Call.CONSTRUCTOR, bench.plugin, config, device, pinned))
    joined, served = all_join(bench, choices)  # lists in the order of the rows
    last = count - 1
    moved = [(last, 0, MoveDirectionality.UNIDIRECTIONAL)] if last else []
    anew = (last, bench.params(choices[0]), bench.prompt, list[int]())
    updates: dict[int, BatchUpdate] = {
        0: joined,
        steps: BatchUpdate(last, [0], [], moved),
        steps + 1: BatchUpdate(count, [], [anew], []),
    }
    for step in range(steps + _AFTER):
        instance.update_state(updates.get(step))
        if step == steps:
            served = [served[last], *served[1:last]][:last]
        elif step == steps + 1:
            served = [*served, anew[-1]]
        if not served:
            continue
        before = bench.masking.unmasked(range(step, step + len(served)))
        after = instance.apply(before.clone())
        yield before, after
        for row, tokens in zip(after, served, strict=True):
            tokens.append(bench.takes(row, bench.words.said(step)))
