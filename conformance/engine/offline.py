# SPDX-License-Identifier: Apache-2.0
"""A real offline vLLM engine in this process, whose scheduler's orders are written down.

Worker processes only: vLLM is imported, and its environment variables are set for good.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm.sampling_params import SamplingParams

#: More requests than rows, prompts longer than a step's tokens, and a cache that holds fewer
#: tokens than the requests in flight have: so that requests wait, are chunked and are preempted.
MAX_SEQUENCES = 4
MAX_MODEL_LEN = 128
STEP_TOKENS = 48
BLOCK_SIZE = 32
BLOCKS = 6


@attrs.frozen
class Order:
    """What the scheduler ordered for one step."""

    finished: tuple[str, ...]
    new: tuple[tuple[str, tuple[int, ...], Any], ...]  #: (name, prompt, params)
    scheduled: dict[str, int]  #: tokens to compute
    computed: dict[str, int]  #: tokens computed before, for requests that are not new
    preempted: tuple[str, ...]


@attrs.define
class OfflineEngine:
    """One ``vllm.LLM`` on a tiny model."""

    llm: Any
    orders: list[Order] = attrs.field(factory=list)

    @classmethod
    def start(
        cls, model: str, logits_processors: Sequence[str | type] = (), *, device: str = "cpu"
    ) -> OfflineEngine:
        """Start an engine in this process.

        Raises:
            Exception: whatever vLLM raises when it cannot start with these processors.

        """
        # One process: the plugin can be watched, and nothing is imported a second time.
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        # The interface of these plugins is the V1 model runner's; where Triton works,
        # vLLM would choose the other runner by itself.
        os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "0"
        from vllm import LLM

        memory: dict[str, Any] = ({"gpu_memory_utilization": 0.1} if device == "cuda" else {}) | {
            "kv_cache_memory_bytes": 32 << 20
        }
        llm = LLM(
            model,
            logits_processors=list(logits_processors) or None,
            enforce_eager=True,
            max_model_len=MAX_MODEL_LEN,
            max_num_seqs=MAX_SEQUENCES,
            max_num_batched_tokens=STEP_TOKENS,
            num_gpu_blocks_override=BLOCKS,
            block_size=BLOCK_SIZE,
            enable_prefix_caching=False,
            dtype="float32",
            seed=0,
            **memory,
        )
        engine = cls(llm)
        engine._watch_scheduler()
        return engine

    @property
    def runner(self) -> Any:  # noqa: ANN401 - a model runner of vLLM
        """The model runner."""
        core = self.llm.llm_engine.engine_core.engine_core
        return core.model_executor.driver_worker.worker.model_runner

    def generate(
        self, prompts: Sequence[Sequence[int]], params: Sequence[SamplingParams]
    ) -> list[tuple[int, ...]]:
        """Run all prompts at once and return the output tokens of each."""
        outputs = self.llm.generate(
            [{"prompt_token_ids": list(prompt)} for prompt in prompts],
            list(params),
            use_tqdm=False,
        )
        return [tuple(output.outputs[0].token_ids) for output in outputs]

    def _watch_scheduler(self) -> None:
        runner = self.runner
        update_states = runner._update_states  # noqa: SLF001 - the one place orders arrive at

        def watched(order: Any) -> Any:  # noqa: ANN401 - SchedulerOutput
            if order.num_scheduled_tokens or order.finished_req_ids:
                self.orders.append(_order(order))
            return update_states(order)

        runner._update_states = watched  # noqa: SLF001 - as above


def _order(order: Any) -> Order:  # noqa: ANN401 - SchedulerOutput
    cached = order.scheduled_cached_reqs
    return Order(
        finished=tuple(sorted(order.finished_req_ids)),
        new=tuple(
            (new.req_id, tuple(new.prompt_token_ids), new.sampling_params)
            for new in order.scheduled_new_reqs
        ),
        scheduled=dict(order.num_scheduled_tokens),
        computed=dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True)),
        preempted=tuple(sorted(order.preempted_req_ids or ())),
    )
