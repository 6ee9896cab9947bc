# SPDX-License-Identifier: Apache-2.0
"""Runs in a worker: streams in the simulator, played again and recorded."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from batch_model_job import PARAMS, VOCABULARY, History
from vllm.config import VllmConfig
from vllm.sampling_params import SamplingParams

from conformance.engine.offline import Order
from conformance.logits_batch.host_engine import MarkingProcessor, Tape
from conformance.logits_batch.recording import replay

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


def play_stream(connection: Connection) -> None:
    """Answer with the calls that a plugin gets where the simulator plays a stream's orders."""
    records: list[dict[str, Any]] = connection.recv()
    host = next(record for record in records if record["event"] == "host")
    sent = {record["request"]: record for record in records if record["event"] == "sent"}
    outputs = {r["request"]: r["outputs"] for r in records if r["event"] == "finished"}
    orders = []
    seen: set[str] = set()
    for step in (record for record in records if record["event"] == "step"):
        new = [name for name in step["scheduled"] if name not in seen]
        seen.update(new)
        orders.append(
            Order(
                finished=tuple(step["finished"]),
                new=tuple(
                    (name, tuple(sent[name]["prompt"]), SamplingParams(**sent[name]["params"]))
                    for name in new
                ),
                scheduled=step["scheduled"],
                computed={n: c for n, c in step["computed"].items() if n not in new},
                preempted=(),
            )
        )
    calls = replay(
        orders,
        outputs,
        vocabulary=host["vocabulary"],
        reorder=False,
        asynchronous=host["asynchronous"],
    )
    connection.send(calls)


class RecordedHistory(History):
    """A random history in vLLM's own batch, recorded as an engine's is."""

    def __init__(self, chance: random.Random) -> None:
        self.tape = MarkingProcessor.tape = Tape()
        super().__init__(chance, MarkingProcessor(VllmConfig(), torch.device("cpu"), False))
        self.tape.runner = SimpleNamespace(input_batch=self.host.batch)
        first = {"asynchronous": self.host.asynchronous, "vocabulary": VOCABULARY}
        self.tape.records.insert(0, {"event": "host", **first})
        self.outputs: dict[str, list[int]] = {}

    def params(self, name: str) -> SamplingParams:
        """Return parameters that name the request."""
        params = PARAMS.clone()
        params.extra_args = {"request": name}
        return params

    def schedule(self, **what: Any) -> None:  # noqa: ANN401 - the arguments of the host
        """Begin a step, and write its order down before the calls that it led to."""
        for request in what["join"]:
            sent = {"extra_args": request.params.extra_args}
            self.tape.write("sent", request=request.name, prompt=request.prompt, params=sent)
            MarkingProcessor.validate_params(request.params)
        position = len(self.tape.records)
        super().schedule(**what)
        host = self.host
        order = {
            "finished": sorted(what["finish"]),
            "scheduled": dict(host.scheduled),
            "computed": {name: host.requests[name].num_computed_tokens for name in host.scheduled},
        }
        self.tape.records.insert(position, {"event": "step", **order})

    def complete(self) -> None:
        """End a step; the processor is applied once the last tokens are known."""
        self.host.batch.update_async_output_token_ids()
        if self.host.scheduled:
            self.host.plugin.apply(torch.zeros(self.host.batch.num_reqs, VOCABULARY))
        super().complete()
        self.outputs |= {name: list(tokens) for name, tokens in self.host.outputs.items()}

    def records(self) -> list[dict[str, Any]]:
        """Return the stream, with what each request got in the end."""
        for name, tokens in self.outputs.items():
            self.tape.write("finished", request=name, outputs=tokens)
        return self.tape.records


def record_histories(connection: Connection) -> None:
    """Answer with the streams of as many random histories as asked for."""
    streams = []
    for number in range(connection.recv()):
        history = RecordedHistory(random.Random(number))
        for _ in range(10):
            assert history.step() is None
        streams.append(history.records())
    connection.send(streams)
