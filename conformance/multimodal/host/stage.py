# SPDX-License-Identifier: Apache-2.0
"""vLLM's scheduler with a runner that computes nothing, and notices what it could not compute.

The scheduler, its cache of encoder outputs and its blocks are vLLM's own.  In place of a model
stands a ledger: of each position it keeps what the model would have seen up to there, tokens and
rows of items, as one digest, in the block where the scheduler puts it.  So a prefix that is used
again is right if it holds the digest of the request's own prompt, and a token is a function of the
digest before it, whatever the schedule was.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from typing import Any

import attrs
import torch
from vllm import SamplingParams
from vllm.config import VllmConfig
from vllm.engine.arg_utils import EngineArgs
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from vllm.utils.hashing import sha256
from vllm.v1.core.encoder_cache_manager import EncoderCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

from conformance.engine.model_classes import inspect_models_here
from conformance.engine.multimodal_models import TINY_QWEN2_AUDIO

#: Tokens of a block.
BLOCK = 4

#: The token that stands for items, and the tokens of texts, which are others.
ITEM, WORDS = 7, 100

#: Steps after which a request that is not answered never will be.
PATIENCE = 200


class Ended(Exception):
    """The scheduler raised: nobody gets an answer any more."""


@attrs.frozen
class Media:
    """An item in a prompt."""

    name: str  #: what is in it, and with which options it was processed: the identifier
    rows: int  #: embeddings
    between: int = 0  #: tokens of text behind each row, as models have them that break lines

    @property
    def length(self) -> int:
        """Tokens in the prompt."""
        return self.rows * (1 + self.between)

    def mask(self) -> torch.Tensor | None:
        """Return which of its tokens get embeddings; None for all."""
        if not self.between:
            return None
        return torch.tensor(([True] + [False] * self.between) * self.rows)


@attrs.frozen
class Asked:
    """A request: numbers stand for tokens of text, negative ones for placeholders in a text."""

    name: str
    parts: tuple[int | Media, ...]
    outputs: int = 2

    @property
    def items(self) -> tuple[Media, ...]:
        """The items, in order."""
        return tuple(part for part in self.parts if not isinstance(part, int))

    def tokens(self) -> list[int]:
        """Return the prompt."""
        found: list[int] = []
        for part in self.parts:
            if not isinstance(part, int):
                found += [ITEM] * part.length
            elif part < 0:
                found += [ITEM] * -part
            else:
                found += [WORDS + len(found) + n for n in range(part)]
        return found

    def contents(self) -> list[str]:
        """Return what a model sees at each position of the prompt."""
        seen = [str(token) for token in self.tokens()]
        for media, offset in self.places():
            for index in range(media.rows):
                seen[offset + index * (1 + media.between)] = f"{media.name}[{index}]"
        return seen

    def places(self) -> list[tuple[Media, int]]:
        """Return each item with the position at which it begins."""
        found, at = [], 0
        for part in self.parts:
            if not isinstance(part, int):
                found.append((part, at))
            at += abs(part) if isinstance(part, int) else part.length
        return found


@attrs.frozen
class Step:
    """What the scheduler ordered in a step."""

    scheduled: Mapping[str, tuple[int, int]]  #: by request, positions from and to
    encoded: tuple[tuple[str, Media], ...]  #: request and item
    freed: tuple[str, ...]  #: items that leave the runner's cache
    again: tuple[str, ...]  #: items that the runner's cache held when they were encoded
    missing: tuple[str, ...]  #: what the runner could not compute, in sentences
    wrong: tuple[str, ...]  #: whose prefix holds something else, in sentences
    cached: Mapping[str, int]  #: rows in the runner's cache after the step, by item


@attrs.define(eq=False)
class Stage:
    """A scheduler, and what its runner would hold."""

    scheduler: Any
    asked: dict[str, Asked] = attrs.field(factory=dict)
    outputs: dict[str, list[int]] = attrs.field(factory=dict)
    done: set[str] = attrs.field(factory=set)
    steps: list[Step] = attrs.field(factory=list)
    reused: dict[str, int] = attrs.field(factory=dict)  #: positions found, when first scheduled
    preempted: set[str] = attrs.field(factory=set)
    _requests: dict[str, Request] = attrs.field(factory=dict)
    _cache: dict[str, int] = attrs.field(factory=dict)
    _blocks: dict[str, list[int]] = attrs.field(factory=dict)
    _held: dict[tuple[int, int], str] = attrs.field(factory=dict)

    @classmethod
    def make(
        cls,
        *,
        step: int = 64,
        budget: int | None = 64,
        room: int | None = 64,
        blocks: int = 200,
        prefixes: bool = False,
    ) -> Stage:
        """Make a scheduler.

        Args:
            step: tokens that are computed in a step.
            budget: rows that are encoded in a step; None for what vLLM makes of the model.
            room: rows that the cache of encoder outputs holds; None likewise.
            blocks: of the KV cache.
            prefixes: whether prefixes are used again.

        """
        config = configuration()
        config.cache_config.enable_prefix_caching = prefixes
        config.cache_config.num_gpu_blocks = blocks
        spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=1, dtype=torch.float32)
        scheduler = Scheduler(
            vllm_config=config,
            kv_cache_config=KVCacheConfig(
                num_blocks=blocks,
                kv_cache_tensors=[],
                kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
            ),
            structured_output_manager=StructuredOutputManager(config),
            block_size=BLOCK,
            log_stats=False,
        )
        scheduler.max_num_scheduled_tokens = step
        if budget is not None:
            scheduler.max_num_encoder_input_tokens = budget
        if room is not None:
            scheduler.encoder_cache_manager = EncoderCacheManager.create_manager(
                cache_size=room, vllm_config=config
            )
        return cls(scheduler)

    def ask(self, *requests: Asked) -> None:
        """Hand requests over."""
        init_none_hash(sha256)
        for one in requests:
            params = SamplingParams(temperature=0, max_tokens=one.outputs, ignore_eos=True)
            features = [
                MultiModalFeatureSpec(
                    data=None,
                    modality="audio",
                    identifier=media.name,
                    mm_position=PlaceholderRange(offset, media.length, media.mask()),
                    mm_hash=media.name,
                )
                for media, offset in one.places()
            ]
            request = Request(
                request_id=one.name,
                prompt_token_ids=one.tokens(),
                sampling_params=params,
                pooling_params=None,
                mm_features=features,
                block_hasher=get_request_block_hasher(BLOCK, sha256),
            )
            self.asked[one.name], self._requests[one.name] = one, request
            self.outputs[one.name] = []
            self.scheduler.add_request(request)

    def abort(self, name: str) -> None:
        """A client goes away."""
        self.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)
        self.done.add(name)

    def run(self, *, until: int = PATIENCE) -> None:
        """Take steps until all are answered, or for so many steps.

        Raises:
            Ended: the scheduler raised.

        """
        for _ in range(until):
            if self.done >= self.asked.keys():
                return
            self.step()

    def step(self) -> Step:
        """Take one step.

        Raises:
            Ended: the scheduler raised.

        """
        try:
            order = self.scheduler.schedule()
        except Exception as error:
            raise Ended(f"schedule() raised {type(error).__name__}: {error}") from error
        noted = self._obey(order)
        self.steps.append(noted)
        sampled = [self._sample(name) for name in order.num_scheduled_tokens]
        answer = ModelRunnerOutput(
            req_ids=list(order.num_scheduled_tokens),
            req_id_to_index={name: n for n, name in enumerate(order.num_scheduled_tokens)},
            sampled_token_ids=sampled,
        )
        for name, tokens in zip(order.num_scheduled_tokens, sampled, strict=True):
            self.outputs[name] += tokens
        try:
            self.scheduler.update_from_output(order, answer)
        except Exception as error:
            raise Ended(f"update_from_output() raised {type(error).__name__}: {error}") from error
        for name, request in self._requests.items():
            if request.is_finished():
                self.done.add(name)
        return noted

    def _obey(self, order: Any) -> Step:  # noqa: ANN401 - a SchedulerOutput
        """Do what a runner does with an order, as far as it can be done without a model."""
        for name in order.free_encoder_mm_hashes:
            self._cache.pop(name, None)
        self.preempted |= set(order.preempted_req_ids or ())
        starts: dict[str, int] = {}
        for new in order.scheduled_new_reqs:
            starts[new.req_id] = new.num_computed_tokens
            self._blocks[new.req_id] = list(new.block_ids[0])
            self.reused.setdefault(new.req_id, new.num_computed_tokens)
        known = order.scheduled_cached_reqs
        rows = zip(known.req_ids, known.new_block_ids, known.num_computed_tokens, strict=True)
        for name, blocks, computed in rows:
            starts[name] = computed
            if name in known.resumed_req_ids:
                self._blocks[name] = []
            self._blocks[name] += list(blocks[0]) if blocks else []
        encoded = tuple(
            (name, self.asked[name].items[index])
            for name, indices in order.scheduled_encoder_inputs.items()
            for index in indices
        )
        again = []
        for _, media in encoded:
            again += [media.name] if media.name in self._cache else []
            self._cache[media.name] = media.rows
        missing: list[str] = []
        wrong: list[str] = []
        scheduled = {}
        for name, count in order.num_scheduled_tokens.items():
            start = starts[name]
            scheduled[name] = (start, start + count)
            digests = self._digests(name)
            at = next((p for p in range(start) if self._read(name, p) != digests[p]), None)
            if at is not None:
                wrong.append(f"request {name} is given position {at} of another prompt")
            missing += self._missing(name, start, start + count)
            for position in range(start, start + count):
                self._held[self._slot(name, position)] = digests[position]
        return Step(
            scheduled,
            encoded,
            tuple(order.free_encoder_mm_hashes),
            tuple(again),
            tuple(missing),
            tuple(wrong),
            dict(self._cache),
        )

    def _missing(self, name: str, start: int, end: int) -> list[str]:
        found = []
        for media, offset in self.asked[name].places():
            places = range(offset, offset + media.length, 1 + media.between)
            if any(start <= at < end for at in places) and media.name not in self._cache:
                where = f"{start} to {end - 1}"
                found.append(f"positions {where} of request {name} need item {media.name}")
        return found

    def _slot(self, name: str, position: int) -> tuple[int, int]:
        return self._blocks[name][position // BLOCK], position % BLOCK

    def _read(self, name: str, position: int) -> str | None:
        return self._held.get(self._slot(name, position))

    def _digests(self, name: str) -> list[str]:
        """Return what a model has seen up to each position of a request."""
        contents = [*self.asked[name].contents(), *map(str, self.outputs[name])]
        found, seen = [], ""
        for content in contents:
            seen = hashlib.sha256(f"{seen}/{content}".encode()).hexdigest()
            found.append(seen)
        return found

    def _sample(self, name: str) -> list[int]:
        """Return the token that follows, where all is computed that was said."""
        _, end = self.steps[-1].scheduled[name]
        digests = self._digests(name)
        if end < len(digests):
            return []
        held = self._read(name, end - 1)
        return [WORDS + int(str(held)[:6], 16) % 300]


@cache
def configuration() -> VllmConfig:
    """Return the configuration of an engine of the tiny Qwen2-Audio, made once."""
    inspect_models_here()
    return EngineArgs(
        model=str(TINY_QWEN2_AUDIO.folder()),
        enforce_eager=True,
        dtype="float32",
        max_num_seqs=8,
        max_model_len=1024,
        max_num_batched_tokens=1024,
        limit_mm_per_prompt={"audio": 4},
        async_scheduling=False,
    ).create_engine_config()


def alone(request: Asked) -> list[int]:
    """Return what a request is answered by itself, with room for everything.

    Raises:
        Ended: the scheduler raised.

    """
    stage = Stage.make(step=512, budget=512, room=512)
    stage.ask(request)
    stage.run()
    return stage.outputs[request.name]
