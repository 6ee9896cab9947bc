# SPDX-License-Identifier: Apache-2.0
"""A real offline engine of a multi-modal model, watched where items are placed and encoded."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs
import torch

from conformance.engine import model_runner
from conformance.engine.environment import GPU_SHARE, eager
from conformance.engine.offline import MARGIN
from conformance.watching.comparison import same_rows
from conformance.watching.interruption import OutOfTime, limited, progressed

#: Tokens of an answer.
OUTPUT = 6

#: Few enough tokens in a step that long prompts are chunked, items and all.
STEP_TOKENS = 64

MAX_SEQUENCES = 4

#: Tokens of a block of the KV cache, where their number is chosen.
BLOCK = 32

#: A prompt may have so many tokens, or as many as the model has room for.
MAX_MODEL_LEN = 2048

#: An engine on a tiny model computes something again within so many seconds, or never:
#: one that failed may go on for ever.
LIMIT = 60.0


class EngineFailed(Exception):
    """The engine raised while it worked on requests that it had taken: nobody gets an answer."""

    def __init__(self, message: str, places: Sequence[tuple[Place, ...]], encoding: str) -> None:
        super().__init__(message)
        self.places = places  #: of each request, as far as the model runner was told of them
        self.encoding = encoding  #: what ``embed_multimodal`` raised, if it did


@attrs.frozen
class Request:
    """What a caller of ``LLM.generate`` hands over."""

    prompt: str | tuple[int, ...]
    data: Mapping[str, Any] = attrs.field(factory=dict)  #: items by modality
    options: Mapping[str, Any] = attrs.field(factory=dict)  #: ``mm_processor_kwargs``


@attrs.frozen
class Place:
    """Where the model runner was told to put an item."""

    modality: str
    identifier: str  #: the item's hash
    offset: int
    length: int
    count: int  #: embeddings that it takes


@attrs.frozen
class Response:
    """What came of a request."""

    prompt: tuple[int, ...]  #: as the engine got it, with all placeholders
    places: tuple[Place, ...]
    tokens: tuple[int, ...]
    decided: int  #: how many of the tokens rounding cannot have chosen
    pooled: torch.Tensor | None = None  #: of a model that pools: it has no tokens

    def differs(self, wanted: Response) -> str | None:
        """Say in what this is another response than the one to the same request by itself."""
        if self.prompt != wanted.prompt:
            return f"becomes {len(self.prompt)} tokens instead of {len(wanted.prompt)}"
        places = [(one.offset, one.length, one.count) for one in self.places]
        first = [(one.offset, one.length, one.count) for one in wanted.places]
        if places != first:
            return f"has items at {places} instead of {first}"
        sure = min(self.decided, wanted.decided)
        if self.tokens[:sure] != wanted.tokens[:sure]:
            return f"is answered {self.tokens} instead of {wanted.tokens}"
        if self.pooled is not None and wanted.pooled is not None:
            if self.pooled.shape != wanted.pooled.shape:
                shapes = tuple(self.pooled.shape), tuple(wanted.pooled.shape)
                return f"is answered values of shape {shapes[0]} instead of {shapes[1]}"
            if not same_rows(self.pooled, wanted.pooled):
                apart = float((self.pooled - wanted.pooled).abs().max())
                return f"is answered other values, up to {apart:.3g} apart"
        return None


@attrs.define
class MultiModalEngine:
    """One ``vllm.LLM`` of a model that takes items."""

    llm: Any
    #: What the model made of items, each time that one was encoded, by the item's hash.
    encoded: list[tuple[str, torch.Tensor]] = attrs.field(factory=list)
    idle: int = 0  #: steps in a row in which there was nothing to compute
    _places: dict[str, tuple[Place, ...]] = attrs.field(factory=dict)
    _margins: dict[str, list[float]] = attrs.field(factory=dict)
    _encoding: str = ""

    @classmethod
    def start(
        cls,
        model: Path | str,
        *,
        limits: Mapping[str, int],
        max_model_len: int = MAX_MODEL_LEN,
        weights: bool = True,
        device: str = "cpu",
        mode: str = "auto",
        blocks: int | None = None,
        chunked: bool = True,
        arguments: Mapping[str, Any] = MappingProxyType({}),
    ) -> MultiModalEngine:
        """Start an engine in this process.

        Args:
            model: folder of the checkpoint, whose architecture vLLM knows.
            limits: items of each modality in a prompt.
            max_model_len: tokens in a prompt and its answer.
            weights: whether the checkpoint has weights; without them they are made up.
            device: ``"cpu"`` or ``"cuda"``.
            mode: as ``--tokenizer-mode`` has it, by which a renderer is chosen.
            blocks: of the KV cache, with :data:`BLOCK` tokens each; prefixes are then used again.
            chunked: whether a prompt may be computed in chunks, which some models cannot.
            arguments: others, which come before those that follow from the ones above.

        Raises:
            Exception: whatever vLLM raises when it cannot start.

        """
        # One process: the model can be watched, and nothing is imported a second time.
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        os.environ.update(model_runner.environment("v1"))
        from vllm import LLM

        memory: dict[str, Any] = {}
        if device == "cuda":
            memory["gpu_memory_utilization"] = GPU_SHARE
        if blocks is not None:
            memory |= {"num_gpu_blocks_override": blocks, "block_size": BLOCK}
        given: dict[str, Any] = {
            "model": str(model),
            "enforce_eager": eager(device),
            "max_model_len": max_model_len,
            "max_num_seqs": MAX_SEQUENCES,
            "max_num_batched_tokens": STEP_TOKENS if chunked else MAX_MODEL_LEN,
            "enable_chunked_prefill": chunked,
            # What is found there would not be computed again.
            "enable_prefix_caching": blocks is not None,
            "dtype": "float32",
            "seed": 0,
            "kv_cache_memory_bytes": 64 << 20,
            "limit_mm_per_prompt": dict(limits),
            "load_format": "auto" if weights else "dummy",
            "tokenizer_mode": mode,
        }
        llm = LLM(**{**given, **memory, **arguments})
        engine = cls(llm)
        engine._watch()
        return engine

    @property
    def config(self) -> Any:  # noqa: ANN401 - a VllmConfig
        """The engine's configuration."""
        return self.llm.llm_engine.vllm_config

    @property
    def renderer(self) -> Any:  # noqa: ANN401 - a renderer of vLLM
        """What makes requests of prompts and chats, with the engine's own cache of items."""
        return self.llm.llm_engine.renderer

    @property
    def runner(self) -> Any:  # noqa: ANN401 - a model runner of vLLM
        """The model runner."""
        core = self.llm.llm_engine.engine_core.engine_core
        return core.model_executor.driver_worker.worker.model_runner

    def run(self, requests: Sequence[Request]) -> list[Response]:
        """Run requests at the same time.

        Raises:
            EngineFailed: the engine raised; it must not be used again.
            OutOfTime: it got no further.
            Exception: a request was refused, and none was run.

        """
        self._places.clear()
        self._margins.clear()
        names = self._enqueue(requests)
        try:
            with limited(LIMIT):
                outputs = self.llm.wait_for_completion(use_tqdm=False)
        except OutOfTime:
            raise
        except Exception as error:
            places = [self._places.get(_external(name), ()) for name in names]
            raise EngineFailed(_told(error), places, self._encoding) from error
        by_name = {output.request_id: output for output in outputs}
        return [self._response(by_name[_external(name)]) for name in names]

    def abort(self, request: Request, steps: int) -> None:
        """Let a request go on for some steps, and abort it."""
        names = self._enqueue([request])
        with limited(LIMIT):
            for _ in range(steps):
                self.llm.llm_engine.step()
            self.llm.llm_engine.abort_request(names, internal=True)
            while self.llm.llm_engine.has_unfinished_requests():
                self.llm.llm_engine.step()

    def forget(self) -> None:
        """Empty the caches of items, so that all are processed and encoded again."""
        engine = self.llm.llm_engine
        engine.reset_mm_cache()
        if hasattr(engine, "reset_encoder_cache"):  # older releases have none
            engine.reset_encoder_cache()

    def _enqueue(self, requests: Sequence[Request]) -> list[str]:
        """Hand over requests, and return their names; where one is refused, none is taken."""
        from vllm import PoolingParams, SamplingParams

        prompts = [_prompt(request) for request in requests]
        if self.llm.model_config.runner_type == "pooling":
            pooled = PoolingParams(task=self.llm.pooling_task)
            add = self.llm._add_completion_requests  # noqa: SLF001 - LLM.enqueue, which calls it, refuses models that pool
            names = add(prompts, params=pooled, use_tqdm=False)
        else:
            params = SamplingParams(temperature=0, max_tokens=OUTPUT, ignore_eos=True)
            names = self.llm.enqueue(prompts, params, use_tqdm=False)
        return list(names)

    def _response(self, output: Any) -> Response:  # noqa: ANN401 - a RequestOutput, or of pooling
        name = output.request_id
        prompt, places = tuple(output.prompt_token_ids), self._places.get(name, ())
        if self.llm.model_config.runner_type == "pooling":
            return Response(prompt, places, (), 0, output.outputs.data.detach().float().cpu())
        tokens = tuple(output.outputs[0].token_ids)
        doubts = [m <= MARGIN or math.isnan(m) for m in self._margins.get(name, ())]
        return Response(
            prompt,
            places,
            tokens,
            doubts.index(True) if any(doubts) else len(tokens),
        )

    def _note(self, order: Any) -> None:  # noqa: ANN401 - SchedulerOutput
        if order.total_num_scheduled_tokens:
            progressed()
            self.idle = 0
        else:
            self.idle += 1
        for new in order.scheduled_new_reqs:
            self._places[_external(new.req_id)] = tuple(map(_place, new.mm_features))

    def _watch(self) -> None:
        """Note what the runner is told of new requests, what is encoded, and what is close."""
        runner = self.runner
        obey, encode, choose = (
            runner._update_states,  # noqa: SLF001 - no public method is told the same
            runner._execute_mm_encoder,  # noqa: SLF001 - nor is what it encodes told elsewhere
            runner.sampler.greedy_sample,
        )

        def update_states(order: object) -> Any:  # noqa: ANN401 - SchedulerOutput
            self._note(order)
            return obey(order)

        def execute_mm_encoder(order: object) -> Any:  # noqa: ANN401 - SchedulerOutput
            before = dict(runner.encoder_cache)
            try:
                found = encode(order)
            except Exception as error:
                self._encoding = _told(error)
                raise
            for name, rows in runner.encoder_cache.items():
                if before.get(name) is not rows:
                    self.encoded.append((name, rows.detach().cpu().clone()))
            return found

        def greedy_sample(logits: torch.Tensor) -> torch.Tensor:
            best = logits.topk(2).values
            margins = (best[:, 0] - best[:, 1]).tolist()
            for row, (name, margin) in enumerate(
                zip(runner.input_batch.req_ids, margins, strict=False)
            ):
                if not runner.discard_request_mask.np[row]:
                    self._margins.setdefault(_external(name), []).append(margin)
            chosen: torch.Tensor = choose(logits)
            return chosen

        runner._update_states = update_states  # noqa: SLF001 - the one that is watched
        runner._execute_mm_encoder = execute_mm_encoder  # noqa: SLF001 - the one that is watched
        runner.sampler.greedy_sample = greedy_sample


def _prompt(request: Request) -> dict[str, Any]:
    kind = "prompt" if isinstance(request.prompt, str) else "prompt_token_ids"
    text = request.prompt if isinstance(request.prompt, str) else list(request.prompt)
    prompt: dict[str, Any] = {kind: text}
    if request.data:
        prompt["multi_modal_data"] = dict(request.data)
    if request.options:
        prompt["mm_processor_kwargs"] = dict(request.options)
    return prompt


def _external(name: str) -> str:
    """Return the number of a request, to which vLLM adds a random part for itself."""
    return name.partition("-")[0]


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _place(feature: Any) -> Place:  # noqa: ANN401 - a MultiModalFeatureSpec
    position = feature.mm_position
    return Place(
        feature.modality,
        feature.identifier,
        position.offset,
        position.length,
        position.get_num_embeds(),
    )
