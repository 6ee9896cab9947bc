# SPDX-License-Identifier: Apache-2.0
"""Runs in a worker: the simulator's host, driven step by step, and what it sends a plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import torch
from vllm.sampling_params import SamplingParams

from conformance.engine.slot_recording import Applied, Entered, SlotRecording
from conformance.logits_slot.bench import Bench
from conformance.logits_slot.host import Host, Joining, request_states
from reference_plugins.logits_slot.target_token import TargetTokenSlotLogitsProcessor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from multiprocessing.connection import Connection

    from conformance.engine.slot_recording import Event

    #: One step: ``finish``, ``pause``, ``rest``, ``chunk`` as the host takes them; ``join``, the
    #: name, prompt and outputs of each request; ``off``, those of them that do not opt in;
    #: ``drafts``, ``parts``; ``sampled``, the tokens that a request gets, where not 9.
    Step = Mapping[str, Any]

ON = {"target_token": 67}


def play(
    connection: Connection, *, model: str, steps: Sequence[Step], max_requests: int, most: int
) -> None:
    """Answer with what was told to a plugin in each step; ``most`` drafts are guessed."""
    connection.recv()
    plugin = TargetTokenSlotLogitsProcessor
    bench = Bench(plugin, model, {("on", 0): {"extra_args": ON}}, 1)
    states = request_states(bench.vocabulary, max_requests)
    host = Host(states, bench.construct(states), model, most)
    recording = SlotRecording.insert(host.sampler, plugin)
    connection.send([_play(host, recording.events, bench.vocabulary, step) for step in steps])


def _play(host: Host, events: list[Event], vocabulary: int, step: Step) -> dict[str, Any]:
    events.clear()
    host.schedule(
        finish=step.get("finish", ()),
        pause=step.get("pause", ()),
        join=[
            # Nothing but the plugin needs the logits of a greedy request.
            Joining(
                name,
                prompt,
                outputs,
                SamplingParams(
                    temperature=0.0, extra_args=None if name in step.get("off", ()) else ON
                ),
            )
            for name, prompt, outputs in step.get("join", ())
        ],
        rest=step.get("rest", ()),
        chunk=step.get("chunk"),
    )
    names: tuple[str, ...] = ()
    if host.scheduled:
        rows = host.prepare(step.get("drafts", {}))
        names = rows.names
        host.process(torch.zeros(rows.starts[-1], vocabulary), rows, step.get("parts", 1))
        sampled = step.get("sampled", {})
        host.complete(rows, lambda position: sampled.get(names[position], (9,)))
    # Nothing of vLLM: whoever reads it would have to import it.
    return {
        "slots": dict(host.states.req_id_to_index),
        "batch": list(names),
        "entered": [
            (event.name, event.slot, event.prompt_len, event.prefill_len)
            for event in events
            if isinstance(event, Entered)
        ],
        "calls": [
            [attrs.asdict(row) for row in event.rows]
            for event in events
            if isinstance(event, Applied)
        ],
    }
