# SPDX-License-Identifier: Apache-2.0
"""An engine of a pooling model that answers when it is told to.

It stands where ``AsyncLLM`` stands: prompts come in rendered, pooling outputs go out.
What it answers depends on the prompt and its parameters alone and has the shape that the model's
pooler gives; when, and in which order, is the history's to say.
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
from typing import TYPE_CHECKING, Any

import attrs
import torch
from vllm.outputs import PoolingOutput, PoolingRequestOutput

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from vllm.config import VllmConfig
    from vllm.pooling_params import PoolingParams

#: The request that is being served, by its place in the history; its id may be another's, too.
serving: contextvars.ContextVar[int] = contextvars.ContextVar("serving")

LABELS = 3  #: of a model whose configuration names none

#: Tasks of which vLLM does not fix what they return: that is for the model's own pooler to say,
#: and an output for one of them is made up.
OWN_TASKS = frozenset(("plugin", "embed&token_classify"))


class EngineFailed(RuntimeError):
    """The engine could not serve a prompt."""


@attrs.define(eq=False)
class Pending:
    """A prompt that waits for the engine."""

    request: int
    index: int  #: among the prompts of the request
    ready: asyncio.Future[None]


@attrs.define(eq=False)
class ScriptedEngine:
    """Serves prompts in the order in which it is told to."""

    vllm_config: VllmConfig
    renderer: Any
    admit: Callable[[Any], None]
    pending: list[Pending] = attrs.field(factory=list)
    #: How many prompts of each request were taken, and how many of their generators are closed.
    taken: dict[int, int] = attrs.field(factory=dict)
    closed: dict[int, int] = attrs.field(factory=dict)

    @property
    def model_config(self) -> Any:  # noqa: ANN401 - vLLM's ModelConfig
        """The configuration of the model."""
        return self.vllm_config.model_config

    async def is_tracing_enabled(self) -> bool:
        """Return False; releases up to 0.31 ask."""
        return False

    async def encode(
        self,
        prompt: Any,  # noqa: ANN401 - a rendered prompt
        pooling_params: PoolingParams,
        request_id: str,
        **_: Any,  # noqa: ANN401 - what else a release hands over
    ) -> AsyncGenerator[PoolingRequestOutput, None]:
        """Take a prompt, and yield its output when the history says so.

        Raises:
            EngineFailed: the history says so.
            ValueError: it takes no such prompt.

        """
        self.admit(prompt)
        request = serving.get(0)
        index = self.taken.get(request, 0)
        self.taken[request] = index + 1
        entry = Pending(request, index, asyncio.get_running_loop().create_future())
        self.pending.append(entry)
        try:
            await entry.ready
            yield output_of(request_id, prompt, pooling_params, self.vllm_config)
        finally:
            if entry in self.pending:
                self.pending.remove(entry)
            self.closed[request] = self.closed.get(request, 0) + 1

    def waiting(self, request: int) -> list[Pending]:
        """Return the prompts of a request that wait, in their order."""
        return sorted(
            (entry for entry in self.pending if entry.request == request),
            key=lambda entry: entry.index,
        )

    def deliver(self, entry: Pending) -> None:
        """Answer a prompt, unless its request was given up and has yet to notice."""
        self.pending.remove(entry)
        if not entry.ready.done():
            entry.ready.set_result(None)

    def fail(self, entry: Pending) -> None:
        """Fail a prompt; one that was given up stays as it is."""
        self.pending.remove(entry)
        if not entry.ready.done():
            entry.ready.set_exception(EngineFailed("the engine could not serve a prompt"))


def output_of(
    request_id: str,
    prompt: Any,  # noqa: ANN401 - a rendered prompt
    params: PoolingParams,
    config: VllmConfig,
) -> PoolingRequestOutput:
    """Return the output for a prompt: the same for the same prompt and parameters."""
    tokens = list(prompt.get("prompt_token_ids") or ())
    shape = _shape(params, max(1, len(tokens)), config)
    digest = hashlib.blake2b(digest_size=7)
    for part in _parts(prompt):
        digest.update(part)
    activated = params.use_activation is not False  # None is the pooler's own choice
    digest.update(repr((params.task, activated, params.dimensions)).encode())
    generator = torch.Generator().manual_seed(int.from_bytes(digest.digest(), "big"))
    data = torch.randn(shape, generator=generator)
    if activated and params.task != "plugin":
        data = (
            torch.softmax(data, -1)
            if "classify" in (params.task or "")
            else torch.nn.functional.normalize(data, dim=-1)
        )
    return PoolingRequestOutput(
        request_id=request_id,
        outputs=PoolingOutput(data),
        prompt_token_ids=tokens,
        num_cached_tokens=0,
        finished=True,
    )


def _shape(params: PoolingParams, tokens: int, config: VllmConfig) -> tuple[int, ...]:
    """Return the shape of a pooler's output: ``[size]``, or ``[tokens, size]``."""
    hf_config = config.model_config.hf_config
    if "classify" in (params.task or ""):
        size = getattr(hf_config, "num_labels", LABELS)
    else:
        size = params.dimensions or config.model_config.get_hidden_size()
    return (size,) if params.task in ("embed", "classify") else (tokens, size)


def _parts(prompt: Any) -> list[bytes]:  # noqa: ANN401 - a rendered prompt
    """Return what an output depends on: tokens, embeddings, and the hashes of media."""
    parts = [repr(list(prompt.get("prompt_token_ids") or ())).encode()]
    for name in ("prompt_embeds", "mm_hashes"):
        value = prompt.get(name)
        if isinstance(value, torch.Tensor):
            parts.append(value.detach().cpu().float().numpy().tobytes())
        elif value is not None:
            parts.append(repr(value).encode())
    return parts
