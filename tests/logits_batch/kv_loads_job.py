# SPDX-License-Identifier: Apache-2.0
"""Runs in a worker: what plugins see where keys and values fail to load, in engines and here."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from vllm.config import KVTransferConfig
from vllm.sampling_params import SamplingParams
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor

from conformance.engine import offline
from conformance.logits_batch.host import Host, Joining
from conformance.logits_batch.recording import Rows, call_of

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from conformance.engine.model_runner import Runner

PROMPTS = [[7 * number % 200 + 5 for number in range(40)], list(range(5, 15))]

#: So many, and so long, that some are preempted and come back with their outputs.
MANY = [[(7 * i + 5 * j) % 200 + 5 for j in range(20 + 11 * (i % 4))] for i in range(8)]

TOKENS = 16


class Watching(LogitsProcessor):
    """Writes down each update, and the live lists by row at every call."""

    seen: list[tuple[str, Any, dict[int, tuple[int, ...]]]]
    #: The lists by identity, kept so that none takes the place of another.
    lists: list[list[int]]
    #: Whether a list was ever shorter than at an earlier call.
    shorter: bool

    def __init__(self, *_: object) -> None:
        self._rows: Rows[list[int]] = Rows()
        self._lengths: dict[int, int] = {}
        Watching.seen, Watching.lists, Watching.shorter = [], [], False

    def is_argmax_invariant(self) -> bool:
        """Say that greedy requests count too."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Keep the lists, and look at them."""
        if batch_update is not None:
            self._rows.update(batch_update, lambda *added: added[3])
        self._look("update", call_of(batch_update))

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Look at the lists."""
        self._look("apply", len(logits))
        return logits

    def _look(self, call: str, what: object) -> None:
        for tokens in self._rows.at.values():
            Watching.lists.append(tokens)
            Watching.shorter |= len(tokens) < self._lengths.get(id(tokens), 0)
            self._lengths[id(tokens)] = len(tokens)
        at = {row: tuple(tokens) for row, tokens in self._rows.at.items()}
        Watching.seen.append((call, what, at))


def _engine(model: str, runner: Runner, *processors: type) -> offline.OfflineEngine:
    """Start an engine with a connector that fails, which is nothing that the harness starts."""
    arguments = offline.engine_arguments

    def more(*given: Any) -> dict[str, Any]:  # noqa: ANN401 - as offline's own
        return {
            **arguments(*given),
            "kv_transfer_config": KVTransferConfig(
                kv_connector="FailingConnector",
                kv_connector_module_path="failing_connector",
                kv_role="kv_both",
                kv_load_failure_policy="recompute",
            ),
        }

    offline.engine_arguments = more  # type: ignore[assignment]
    return offline.OfflineEngine.start(model, processors, runner=runner)


def _params(*, load: bool, tokens: int = 5) -> SamplingParams:
    asked = {"load": True} if load else None
    return SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, extra_args=asked)


def engine_and_simulator(connection: Connection, model: str) -> None:
    """Answer with what a plugin sees in an engine whose first load fails, and in the simulator."""
    connection.recv()
    engine = _engine(model, "v1", Watching)
    Watching.seen.clear()
    params = [_params(load=True), _params(load=False)]
    outputs = engine.generate(PROMPTS, params)
    lived = list(Watching.seen)

    host = Host(Watching(), 500)
    for step in range(6):
        host.schedule(
            join=[Joining("a", PROMPTS[0], params[0]), Joining("b", PROMPTS[1], params[1])]
            if step == 0
            else [],
            lost=["a"] if step == 0 else [],
            finish=["b"] if step == 5 else [],
        )
        host.plugin.apply(torch.zeros(host.batch.num_reqs, 1))
        tokens = [
            dict(zip("ab", outputs, strict=True))[name][len(host.outputs[name])]
            for name in host.batch.req_ids
        ]
        host.complete(tokens.__getitem__)
    connection.send((lived, Watching.seen))


def many(connection: Connection, model: str) -> None:
    """Answer with the tokens with and without failing loads, and with what a plugin sees."""
    connection.recv()
    engine = _engine(model, "v1", Watching)
    plain = engine.generate(MANY, [_params(load=False, tokens=TOKENS)] * len(MANY))
    Watching.seen.clear()
    failing = engine.generate(MANY, [_params(load=True, tokens=TOKENS)] * len(MANY))
    applied = [at for call, _, at in Watching.seen if call == "apply"]
    again = sum(
        bool(tokens) and before.get(row) == tokens
        for before, after in pairwise(applied)
        for row, tokens in after.items()
    )
    connection.send((plain, failing, again, Watching.shorter))


def slots(connection: Connection, model: str) -> None:
    """Answer with what a slot plugin could read in each step of a request whose load fails.

    And how often the request was added.
    """
    connection.recv()
    engine = _engine(model, "v2")
    runner = engine.runner
    states, sample = runner.req_states, runner.sampler.sample
    seen: list[tuple[int, int]] = []
    joined: list[int] = []
    add = runner.sampler.add_request

    def joins(slot: int, *others: Any) -> Any:  # noqa: ANN401 - vLLM's own
        joined.append(slot)
        return add(slot, *others)

    def watched(logits: torch.Tensor, slots: torch.Tensor, *others: Any, **more: Any) -> Any:  # noqa: ANN401
        _, _, positions, *_ = others
        seen.append((int(positions[0]), int(states.total_len.gpu[int(slots[0])])))
        return sample(logits, slots, *others, **more)

    runner.sampler.sample, runner.sampler.add_request = watched, joins
    engine.generate(PROMPTS[:1], [_params(load=True)])
    connection.send((seen, len(joined)))


def asynchronous(connection: Connection, model: str) -> None:
    """Answer with how many outputs the asynchronous scheduler says that a runner has, by step."""
    connection.recv()
    engine = _engine(model, "v1")
    core = engine.llm.llm_engine.engine_core.engine_core
    plain = core.scheduler
    core.scheduler = scheduler = AsyncScheduler(
        vllm_config=plain.vllm_config,
        kv_cache_config=plain.kv_cache_config,
        structured_output_manager=plain.structured_output_manager,
        block_size=plain.block_size,
    )
    engine.llm.enqueue([{"prompt_token_ids": PROMPTS[0]}], [_params(load=True)], use_tqdm=False)
    counts: list[int] = []
    waiting = scheduler.schedule()
    for token in range(100, 104):
        # The next step is ordered before anything is known of this one.
        following = scheduler.schedule()
        counts += following.scheduled_cached_reqs.num_output_tokens
        (name,) = waiting.num_scheduled_tokens
        failed = set(waiting.kv_connector_metadata.blocks)
        scheduler.update_from_output(
            waiting,
            ModelRunnerOutput(
                req_ids=[name],
                req_id_to_index={name: 0},
                sampled_token_ids=[[token]],
                kv_connector_output=KVConnectorOutput(invalid_block_ids=failed),
            ),
        )
        waiting = following
    (request,) = scheduler.requests.values()
    connection.send((counts, list(request.output_token_ids)))


def placeholders(connection: Connection) -> None:
    """Answer with the outputs that ``apply`` finds, of a plugin in the list and of an entry point.

    In the end a request with a penalty joins.
    """
    connection.recv()
    found = []
    for entry_point in (False, True):
        host = Host(Watching(), 500, asynchronous=True, entry_point=entry_point)
        for step, token in enumerate((11, 12, 13, 14, 15)):
            join = {
                0: [Joining("a", [3, 4], SamplingParams())],
                3: [Joining("b", [3, 4], SamplingParams(presence_penalty=1.0))],
            }
            host.schedule(join=join.get(step, []))
            host.batch.update_async_output_token_ids()
            host.plugin.apply(torch.zeros(host.batch.num_reqs, 1))
            host.complete([token, token].__getitem__)
        found.append([at[0] for call, _, at in Watching.seen if call == "apply"])
    connection.send(found)
