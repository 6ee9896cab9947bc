# SPDX-License-Identifier: Apache-2.0
"""A real offline vLLM engine in this process, whose scheduler's orders are written down.

Worker processes only: vLLM is imported, and its environment variables are set for good.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import attrs

from conformance.engine import model_runner
from conformance.engine.environment import GPU_SHARE, eager
from conformance.engine.models import additional_config
from conformance.watching.interruption import progressed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import torch
    from vllm.sampling_params import SamplingParams

    from conformance.engine.model_runner import Runner

    Watch = Callable[[tuple[int, ...], float], None]

#: More requests than rows, prompts longer than a step's tokens, and a cache that holds fewer
#: tokens than the requests in flight have: so that requests wait, are chunked and are preempted.
MAX_SEQUENCES = 4
MAX_MODEL_LEN = 128
STEP_TOKENS = 48
BLOCK_SIZE = 32
BLOCKS = 6


@attrs.frozen
class Prefill:
    """What Model Runner V2 is told of a request that enters, or comes back after a preemption."""

    tokens: tuple[int, ...]  #: the prompt, and after it what was output before
    prompt_len: int
    computed: int  #: tokens found in the prefix cache


@attrs.frozen
class Order:
    """What the scheduler ordered for one step."""

    finished: tuple[str, ...]
    new: tuple[tuple[str, tuple[int, ...], Any], ...]  #: (name, prompt, params)
    scheduled: dict[str, int]  #: tokens to compute
    computed: dict[str, int]  #: tokens computed before, for requests that are not new
    preempted: tuple[str, ...]
    prefills: dict[str, Prefill] = attrs.field(factory=dict)  #: of new requests, in V2 alone


#: Two logits that are closer than this may change places with the batch they are computed in.
MARGIN = 1e-3


def engine_arguments(
    model: str, logits_processors: Sequence[str | type], device: str
) -> dict[str, Any]:
    """Return the options of an engine on a tiny model, for ``LLM`` and ``AsyncEngineArgs``."""
    memory = {"gpu_memory_utilization": GPU_SHARE} if device == "cuda" else {}
    return {
        "model": model,
        "logits_processors": list(logits_processors) or None,
        "enforce_eager": eager(device),
        "max_model_len": MAX_MODEL_LEN,
        "max_num_seqs": MAX_SEQUENCES,
        "max_num_batched_tokens": STEP_TOKENS,
        "num_gpu_blocks_override": BLOCKS,
        "block_size": BLOCK_SIZE,
        "enable_prefix_caching": False,
        "dtype": "float32",
        "seed": 0,
        "kv_cache_memory_bytes": 32 << 20,
        "additional_config": additional_config(model),
        **memory,
    }


@attrs.define
class OfflineEngine:
    """One ``vllm.LLM`` on a tiny model."""

    llm: Any
    orders: list[Order] = attrs.field(factory=list)

    @classmethod
    def start(
        cls,
        model: str,
        logits_processors: Sequence[str | type] = (),
        *,
        device: str = "cpu",
        runner: Runner = "v1",
        embeds: bool = False,
        options: Mapping[str, Any] = MappingProxyType({}),
    ) -> OfflineEngine:
        """Start an engine in this process, in which all engines are to have the same runner.

        With ``embeds`` it takes prompts of embeddings, too; ``options`` are more of vLLM's own.

        Raises:
            Exception: whatever vLLM raises when it cannot start with these processors.

        """
        # One process: the plugin can be watched, and nothing is imported a second time.
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        os.environ.update(model_runner.environment(runner))
        model_runner.prepare()
        from vllm import LLM

        more = {"enable_prompt_embeds": True} if embeds else {}
        llm = LLM(**engine_arguments(model, logits_processors, device), **more, **options)
        progressed()
        engine = cls(llm)
        engine.watch_scheduler()
        return engine

    @property
    def runner(self) -> Any:  # noqa: ANN401 - a model runner of vLLM
        """The model runner."""
        core = self.llm.llm_engine.engine_core.engine_core
        return core.model_executor.driver_worker.worker.model_runner

    def generate(
        self,
        prompts: Sequence[Sequence[int] | Mapping[str, Any]],
        params: Sequence[SamplingParams],
    ) -> list[tuple[int, ...]]:
        """Run all prompts, of token ids or as vLLM takes them, and return the tokens of each."""
        outputs = self.llm.generate(
            [
                prompt if isinstance(prompt, Mapping) else {"prompt_token_ids": list(prompt)}
                for prompt in prompts
            ],
            list(params),
            use_tqdm=False,
        )
        return [tuple(output.outputs[0].token_ids) for output in outputs]

    def run_in_waves(
        self,
        first: tuple[Sequence[Sequence[int]], Sequence[SamplingParams]],
        steps: int,
        then: tuple[Sequence[Sequence[int]], Sequence[SamplingParams]],
    ) -> int:
        """Run prompts with their parameters, and after so many steps others beside them.

        Returns the number of steps that this took.
        """
        before = len(self.orders)
        self._enqueue(*first)
        for _ in range(steps):
            self.llm.llm_engine.step()
        self._enqueue(*then)
        self.llm.wait_for_completion(use_tqdm=False)
        return len(self.orders) - before

    def _enqueue(self, prompts: Sequence[Sequence[int]], params: Sequence[SamplingParams]) -> None:
        inputs = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
        self.llm.enqueue(inputs, list(params), use_tqdm=False)

    def generate_decided(
        self, prompts: Sequence[Sequence[int]], params: Sequence[SamplingParams]
    ) -> list[tuple[tuple[int, ...], int]]:
        """Run prompts, all different; return the tokens of each and how many are beyond doubt.

        A greedy token is in doubt, and with it those after it, when another logit is so near to
        its own that rounding decides. All are that are drawn at random without a seed.
        """
        margins: dict[tuple[int, ...], list[float]] = {tuple(prompt): [] for prompt in prompts}
        watched = _watched_v2 if self._is_v2 else _watched_v1
        with watched(self.runner, lambda prompt, margin: margins[prompt].append(margin)):
            tokens = self.generate(prompts, params)
        decided = []
        for prompt, asked, answer in zip(prompts, params, tokens, strict=True):
            in_doubt = [m <= MARGIN or math.isnan(m) for m in margins[tuple(prompt)]]
            if asked.temperature:
                decided.append(0 if asked.seed is None else len(answer))
            else:
                decided.append(in_doubt.index(True) if any(in_doubt) else len(answer))
        return list(zip(tokens, decided, strict=True))

    @property
    def _is_v2(self) -> bool:
        return bool(self.llm.llm_engine.vllm_config.use_v2_model_runner)

    def watch_scheduler(self) -> None:
        """Write the scheduler's orders down from now on."""
        runner = self.runner
        # The one place where a runner's orders arrive, and no imagined ones of its warm-up.
        name = "finish_requests" if self._is_v2 else "_update_states"
        obey = getattr(runner, name)

        def watched(order: object) -> Any:  # noqa: ANN401 - SchedulerOutput
            # Those that compute nothing and finish nobody, too: asynchronous scheduling makes them
            # while requests wait for their last tokens, V1 then takes all rows out of the batch,
            # and V2 writes what is staged.
            progressed()
            self.orders.append(_order(order, v2=self._is_v2))
            return obey(order)

        setattr(runner, name, watched)


def _order(order: Any, *, v2: bool) -> Order:  # noqa: ANN401 - SchedulerOutput
    cached = order.scheduled_cached_reqs
    return Order(
        finished=tuple(sorted(order.finished_req_ids)),
        new=tuple(
            (new.req_id, tuple(new.prompt_token_ids or ()), new.sampling_params)
            for new in order.scheduled_new_reqs
        ),
        scheduled=dict(order.num_scheduled_tokens),
        computed=dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True)),
        preempted=tuple(sorted(order.preempted_req_ids or ())),
        prefills={
            new.req_id: Prefill(
                tuple(new.prefill_token_ids), new.prompt_len, new.num_computed_tokens
            )
            for new in order.scheduled_new_reqs
            if v2
        },
    )


@contextlib.contextmanager
def _watched_v1(runner: Any, watch: Watch) -> Iterator[None]:  # noqa: ANN401 - a model runner
    """Report the prompt of every row of greedy tokens, and how sure its token is."""
    sampler, batch = runner.sampler, runner.input_batch
    choose = sampler.greedy_sample

    def watched(logits: torch.Tensor) -> torch.Tensor:
        for row, margin in enumerate(_margins(logits)):
            if not runner.discard_request_mask.np[row]:
                prompt = batch.token_ids_cpu[row, : batch.num_prompt_tokens[row]]
                watch(tuple(prompt.tolist()), margin)
        chosen: torch.Tensor = choose(logits)
        return chosen

    sampler.greedy_sample = watched
    try:
        yield
    finally:
        del sampler.greedy_sample


@contextlib.contextmanager
def _watched_v2(runner: Any, watch: Watch) -> Iterator[None]:  # noqa: ANN401 - a model runner
    """Report the same for rows of random tokens, too; one row for each request."""
    import torch

    sampler, states = runner.sampler, runner.req_states
    sample = sampler.sample

    def watched(
        logits: torch.Tensor, slots: torch.Tensor, *others: object, **more: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        sampled, processed = sample(logits, slots, *others, **more)
        _idx_mapping, _idx_mapping_np, positions, *_ = others
        assert isinstance(positions, torch.Tensor)
        for row, (slot, margin) in enumerate(zip(slots.tolist(), _margins(processed), strict=True)):
            if int(positions[row]) + 1 >= int(states.prefill_len.np[slot]):
                prompt = states.all_token_ids.gpu[slot, : int(states.prompt_len.np[slot])]
                watch(tuple(prompt.tolist()), margin)
        return sampled, processed

    sampler.sample = watched
    try:
        yield
    finally:
        del sampler.sample


def _margins(logits: torch.Tensor) -> list[float]:
    """Return how far the highest logit of each row is from the next."""
    best = logits.topk(2).values
    margins: list[float] = (best[:, 0] - best[:, 1]).tolist()
    return margins


def embeddings(model: str, prompt: Sequence[int]) -> Any:  # noqa: ANN401 - imported late
    """Return the embeddings of a prompt, as ``float32[len(prompt), hidden]``."""
    from safetensors import safe_open

    with safe_open(str(Path(model) / "model.safetensors"), framework="pt") as file:
        return file.get_tensor("model.embed_tokens.weight")[list(prompt)].contiguous()
