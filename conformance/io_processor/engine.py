# SPDX-License-Identifier: Apache-2.0
"""An engine of a pooling model that answers when it is told to.

It stands where ``AsyncLLM`` stands: prompts come in rendered, pooling outputs go out.
What it answers depends on the prompt and its parameters alone and has the shape that the model's
pooler gives; when, and in which order, is the history's to say.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncGenerator, Callable
from typing import Any

import attrs
from vllm.config import VllmConfig
from vllm.outputs import PoolingRequestOutput
from vllm.pooling_params import PoolingParams

from conformance.counterexample.io_engine_player import output_of
from conformance.findings import Finding, unjudged
from conformance.io_processor.wire import undecodable
from conformance.watching.interruption import PluginExited

#: The request that is being served, by its place in the history; its id may be another's, too.
serving: contextvars.ContextVar[int] = contextvars.ContextVar("serving")


#: Tasks of which vLLM does not fix what they return: that is for the model's own pooler to say,
#: and an output for one of them is made up.
OWN_TASKS = frozenset(("plugin", "embed&token_classify"))


class EngineEnded(PluginExited):
    """The engine has no thread any more that receives requests."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"what it is sent for a prompt cannot be decoded there ({why}), and from then on no "
            "request is answered"
        )


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
    #: Why it has ended, if it has.
    ended: str | None = None
    #: With which cache salts prompts of each request came.
    salts: dict[int, list[str]] = attrs.field(factory=dict)

    @property
    def model_config(self) -> Any:  # noqa: ANN401 - vLLM's ModelConfig
        """The configuration of the model."""
        return self.vllm_config.model_config

    async def is_tracing_enabled(self) -> bool:
        """Return False; releases up to 0.31 ask."""
        return False

    async def encode(
        self,
        prompt: object,
        pooling_params: PoolingParams,
        request_id: str,
        **_: object,
    ) -> AsyncGenerator[PoolingRequestOutput, None]:
        """Take a prompt, and yield its output when the history says so.

        Raises:
            EngineFailed: the history says so, or it has ended.
            ValueError: it takes no such prompt.

        """
        self.admit(prompt)
        if why := undecodable(prompt, pooling_params):
            self.ended = why
            raise EngineFailed("the engine has ended")
        request = serving.get(0)
        index = self.taken.get(request, 0)
        self.taken[request] = index + 1
        if isinstance(prompt, dict) and (salt := prompt.get("cache_salt")) is not None:
            self.salts.setdefault(request, []).append(str(salt))
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


#: What only a model can tell: the outputs of its own pooler.
UNKNOWN = "what the model's own pooler returns is not known here"


def made_up(trouble: str) -> Finding:
    """Return why trouble proves nothing: an output was made up for the plugin."""
    return unjudged(
        f"{trouble}, on an output that the simulator made up, since only a model can tell "
        "what its own pooler returns: offline evidence shows it, with the plugin's model in "
        "[io-processor] model; here a pooled.py in that model's folder can say it",
    )
