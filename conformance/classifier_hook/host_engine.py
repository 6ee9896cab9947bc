# SPDX-License-Identifier: Apache-2.0
"""vLLM's own ``AsyncLLM`` with an engine that follows scripts, in virtual time.

Only what needs an engine core is replaced; collecting, merging and yielding outputs is vLLM's, and
the runtime is mounted on it as on any engine.  Worker processes only: vLLM is imported.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import attrs
from vllm.logprobs import Logprob
from vllm.outputs import CompletionOutput, RequestOutput
from vllm.sampling_params import RequestOutputKind, SamplingParams
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.output_processor import RequestOutputCollector

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from reference_plugins.classifier_hook import ScoringContext

    Does = Callable[[ScoringContext], Awaitable[object]]

#: The tokens of every prompt.
PROMPT = [5, 6]

#: One output: seconds after the one before, and the fields of its completions.
Step = tuple[float, list[dict[str, Any]]]


class ScriptedLLM(AsyncLLM):
    """An ``AsyncLLM`` without an engine: each request gets the outputs of its prompt's script."""

    def __init__(self, scripts: Mapping[str, Sequence[Step]]) -> None:
        """Make an engine of these scripts, by prompt."""
        self.log_requests = False
        self.aborted: list[str] = []
        self._scripts = scripts
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._queues: dict[str, RequestOutputCollector] = {}

    @property
    def errored(self) -> bool:
        """Never."""
        return False

    @property
    def tokenizer(self) -> ScriptedLLM:
        """Itself: it decodes to the ids themselves."""
        return self

    def decode(self, token_ids: list[int], **_: object) -> str:
        """Return the ids as a text."""
        return " ".join(str(one) for one in token_ids)

    async def add_request(
        self, request_id: str, prompt: object, params: SamplingParams, **_: object
    ) -> RequestOutputCollector:
        """Start the script."""
        queue = RequestOutputCollector(params.output_kind, request_id)
        self._queues[request_id] = queue
        self._tasks[request_id] = asyncio.ensure_future(
            self._follow(request_id, str(prompt), params, queue)
        )
        return queue

    async def _follow(
        self, request_id: str, prompt: str, params: SamplingParams, queue: RequestOutputCollector
    ) -> None:
        left = set(range(params.n))
        for seconds, completions in self._scripts[prompt]:
            await asyncio.sleep(seconds)
            made = [completion_of(one) for one in completions]
            left -= {one.index for one in made if one.finish_reason}
            for one in made:
                queue.put(self.output(request_id, prompt, [one], finished=not left))

    def output(
        self,
        request_id: str,
        prompt: str | None,
        completions: list[CompletionOutput],
        *,
        finished: bool,
    ) -> RequestOutput:
        """Return an output of a request."""
        return RequestOutput(
            request_id=request_id,
            prompt=prompt,
            prompt_token_ids=PROMPT,
            prompt_logprobs=None,
            outputs=completions,
            finished=finished,
            kv_transfer_params={"remote": "blocks"},
        )

    async def abort(self, request_id: str | Iterable[str], **_: bool) -> None:
        """Stop the script and say so in a last output, as vLLM does."""
        for one in [request_id] if isinstance(request_id, str) else request_id:
            self.aborted.append(one)
            task = self._tasks.get(one)
            if task is not None and not task.done():
                task.cancel()
                last = completion_of({"text": "rest", "finish_reason": "abort"})
                self._queues[one].put(self.output(one, None, [last], finished=True))

    def stop(self) -> None:
        """End all scripts."""
        for task in self._tasks.values():
            task.cancel()

    def scripts_at_work(self) -> set[asyncio.Task[None]]:
        """Return the engine's own tasks."""
        return set(self._tasks.values())


def completion_of(given: Mapping[str, Any]) -> CompletionOutput:
    """Return a completion; its tokens are its characters, and "asked for" makes logprobs."""
    text = given.get("text", "")
    values = {
        "index": 0,
        "token_ids": [ord(one) for one in text],
        "cumulative_logprob": None,
        "logprobs": None,
        **given,
    }
    if values["logprobs"] == "asked for":
        values["logprobs"] = [
            {token: Logprob(-0.5, 1, chr(token))} for token in values["token_ids"]
        ]
        values["cumulative_logprob"] = -0.5 * len(text)
    return CompletionOutput(**values)


def deltas(*texts: str, finish: str = "stop", index: int = 0, every: float = 1.0) -> list[Step]:
    """Return the script of one completion, a delta each second."""
    last = len(texts) - 1
    return [
        (
            every,
            [{"index": index, "text": text} | ({"finish_reason": finish} if n == last else {})],
        )
        for n, text in enumerate(texts)
    ]


@attrs.define(slots=False)
class Hook:
    """Does what a function does, and notes what it was told and how its calls ended."""

    name: str
    does: Does
    blocking: bool = False
    timeout_ms: int = 1000
    on_error: str = "block"
    seen: list[Any] = attrs.field(factory=list)
    ends: list[tuple[str, float]] = attrs.field(factory=list)

    async def score(self, ctx: ScoringContext) -> Any:  # noqa: ANN401 - some answer with no dict
        """Do it."""
        self.seen.append(ctx)
        loop = asyncio.get_running_loop()
        try:
            answer = await self.does(ctx)
        except asyncio.CancelledError:
            self.ends.append(("cancelled", loop.time()))
            raise
        self.ends.append(("returned", loop.time()))
        return answer


@attrs.frozen
class Out:
    """An output, and when it went out."""

    at: float  #: seconds after the request began
    output: RequestOutput

    @property
    def scores(self) -> Any:  # noqa: ANN401 - by the names of the hooks
        """What the hooks said, or None."""
        return (getattr(self.output, "metadata", None) or {}).get("external_scores")


async def read(
    engine: ScriptedLLM,
    prompt: str,
    *,
    kind: str = "DELTA",
    n: int = 1,
    request_id: str = "request",
    pause: float = 0.0,
    **params: object,
) -> list[Out]:
    """Read a request to its end, as slowly as *pause* says, and return what went out."""
    found: list[Out] = []
    began = asyncio.get_running_loop().time()
    sampling = SamplingParams(n=n, output_kind=RequestOutputKind[kind], seed=1, **params)
    async for output in engine.generate(prompt, sampling, request_id, priority=3):
        found.append(Out(round(asyncio.get_running_loop().time() - began, 6), output))
        await asyncio.sleep(pause)
    return found


def texts(outs: Sequence[Out], index: int = 0) -> list[str]:
    """Return the texts of one completion, as they went out."""
    return [one.text for out in outs for one in out.output.outputs if one.index == index]


def takes(seconds: float, **scores: object) -> Does:
    """Return what a hook does that takes so long, and then answers this."""

    async def does(_: ScoringContext) -> object:
        await asyncio.sleep(seconds)
        return dict(scores)

    return does


def raises(error: BaseException) -> Does:
    """Return what a hook does that raises."""

    async def does(_: ScoringContext) -> object:
        raise error

    return does


def answers(answer: object) -> Does:
    """Return what a hook does that answers at once."""

    async def does(_: ScoringContext) -> object:
        return answer

    return does


def blocks(word: str, seconds: float = 0.0, **scores: object) -> Does:
    """Return what a hook does that blocks texts with a word."""

    async def does(ctx: ScoringContext) -> object:
        await asyncio.sleep(seconds)
        return {"block": word in ctx.generated_text, **scores}

    return does


async def ignores_cancellation(_: ScoringContext) -> object:
    """Go on for ten seconds, whatever happens."""
    loop = asyncio.get_running_loop()
    end = loop.time() + 10
    while (left := end - loop.time()) > 0:
        try:
            await asyncio.sleep(left)
        except asyncio.CancelledError:
            continue
    return {"late": True}
