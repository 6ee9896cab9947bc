# SPDX-License-Identifier: Apache-2.0
"""Slots on a device that is not the CPU, where there is none."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import torch
from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcRequestState

from conformance.findings import Finding
from conformance.inputs.history import Choice
from conformance.logits import devices
from conformance.logits.calls import call
from conformance.logits.configuration import vllm_config
from conformance.logits.pinning import DEVICE
from conformance.logits.pretended import Accelerator
from conformance.logits.trial import Trial
from conformance.logits_slot.bench import READ, Alone, Bench, Watched, together
from conformance.logits_slot.host import request_states


def keeps_to_device(trial: Trial) -> Finding:
    """LS-42: each request alone, and all of them in one batch."""
    return devices.keeps_to_device(trial.bench, serve)


def serve(
    bench: Bench, accelerator: Accelerator | None, choices: Sequence[Choice]
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Serve requests together, a row each.

    Raises:
        PluginRaised: the plugin raised.

    """
    states = request_states(bench.vocabulary)
    shown = LogitsProcRequestState.from_request_state(states)
    if accelerator is not None:
        shown = dataclasses.replace(shown, device=DEVICE)
        # Buffers take turns: what is read now is not what is read in the next step.
        accelerator.engine = lambda: [getattr(states, name).gpu for name in READ]
    plugin = call("__init__", bench.plugin, vllm_config(bench.model), shown)
    instance = Watched(plugin, states, trusted=True)
    requests = [
        Alone(instance, bench.params(choice), bench.prompt, name=f"{choice[0]}-{choice[1]}")
        for choice in choices
    ]
    for request in requests:
        request.begin()
    for step in range(devices.steps_of(bench, choices)):
        before = bench.masking.unmasked(range(step, step + len(requests)))
        after = together(requests, before)
        yield before, after
        for request, row in zip(requests, after, strict=True):
            request.append(bench.takes(row, bench.words.said(step)))
