# SPDX-License-Identifier: Apache-2.0
"""Runs in a worker: hooks on vLLM's own ``AsyncLLM.generate``, whose engine follows a script.

Only what needs an engine core is replaced; collecting, merging and yielding outputs is vLLM's.
Time is virtual.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import os
import weakref
from typing import TYPE_CHECKING, Any

from vllm.logprobs import Logprob
from vllm.sampling_params import RequestOutputKind, SamplingParams
from vllm.v1.engine.async_llm import AsyncLLM

from conformance.classifier_hook import host_engine
from reference_plugins.classifier_hook import Policy, hooks_of, request_scope
from reference_plugins.classifier_hook.mount import METHOD, MountRefused, missing, mount
from reference_plugins.classifier_hook.virtual_time import run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.connection import Connection

    from vllm.outputs import CompletionOutput, RequestOutput

    from conformance.classifier_hook.host_engine import Step
    from reference_plugins.classifier_hook import ScoringContext

#: The prompt that every request of an engine has.
PROMPT = "x"


class ScriptedLLM(host_engine.ScriptedLLM):
    """The engine of one script, with a prompt's text, or none, and its log probabilities."""

    def __init__(
        self, script: Sequence[Step], prompt: str | None, *, prompt_logprobs: bool = False
    ) -> None:
        super().__init__({PROMPT: script})
        self._prompt = prompt
        self._prompt_logprobs = [None, {6: Logprob(-1.0, 2, "6")}] if prompt_logprobs else None

    def output(
        self,
        request_id: str,
        prompt: str | None,
        completions: list[CompletionOutput],
        *,
        finished: bool,
    ) -> RequestOutput:
        """Return an output of a request; as in a stream of vLLM's, the first alone has logprobs."""
        made = super().output(request_id, prompt, completions, finished=finished)
        made.prompt = self._prompt
        made.prompt_logprobs, self._prompt_logprobs = self._prompt_logprobs, None
        return made


@dataclasses.dataclass
class Hook:
    """Takes its time and answers."""

    name: str
    takes: float = 0.0
    answer: Any = dataclasses.field(default_factory=dict)
    blocking: bool = False
    timeout_ms: int = 1000
    on_error: str = "block"
    bad: str = ""  #: with a blocking hook: what it blocks
    seen: list[Any] = dataclasses.field(default_factory=list)

    async def score(self, ctx: ScoringContext) -> object:
        """Look whether the text is bad, or how long it is."""
        self.seen.append(ctx)
        await asyncio.sleep(self.takes)
        if self.bad:
            return {"block": self.bad in ctx.generated_text, **self.answer}
        return {"length": len(ctx.generated_text), **self.answer}


def play(connection: Connection, *, case: dict[str, Any]) -> None:
    """Answer with what a reader of one request got, and what the hooks saw."""
    connection.recv()
    connection.send(run(lambda: _play(**case)))


async def _play(
    *,
    script: Sequence[Step],
    hooks: Sequence[dict[str, Any]],
    kind: str = "DELTA",
    n: int = 1,
    params: dict[str, Any] | None = None,
    policy: dict[str, Any] | None = None,
    prompt: str | None = "prompt",
    prompt_logprobs: bool = False,
    pause: float = 0.0,
    abort_at: float | None = None,
    cancel_at: float | None = None,
    close_after: int | None = None,
    scope: dict[str, Any] | None = None,
) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    mount(ScriptedLLM)
    engine = ScriptedLLM(script, prompt, prompt_logprobs=prompt_logprobs)
    made = [Hook(**one) for one in hooks]
    for hook in made:
        getattr(engine, METHOD)(hook)
    host = hooks_of(engine)
    events: list[Any] = []
    if host is not None:
        host.dispatcher.observers = [events.append]
        host.policy = Policy(**policy or {})
    got: list[dict[str, Any]] = []

    async def read() -> None:
        sampling = SamplingParams(
            n=n, output_kind=RequestOutputKind[kind], seed=1, **(params or {})
        )
        with request_scope(**scope) if scope else contextlib.nullcontext():
            outputs = engine.generate(PROMPT, sampling, "req", priority=3)
        async for output in outputs:
            got.append({"at": round(loop.time(), 3), **_told(output)})
            if len(got) == close_after:
                await outputs.aclose()
                return
            await asyncio.sleep(pause)

    reading = asyncio.ensure_future(read())
    if cancel_at is not None:
        loop.call_later(cancel_at, reading.cancel)
    if abort_at is not None:
        await asyncio.sleep(abort_at)
        await engine.abort("req")
    await asyncio.wait([reading])
    error = None if reading.cancelled() else reading.exception()
    if error is not None:
        raise error
    engine.stop()
    await asyncio.sleep(0)
    return {
        "outputs": got,
        "seen": {hook.name: [_plain(ctx) for ctx in hook.seen] for hook in made},
        "events": [(type(one).__name__, one.hook, getattr(one, "outcome", "")) for one in events],
        "aborted": engine.aborted,
        "cancelled": reading.cancelled(),
        "at": round(loop.time(), 3),
    }


def _told(output: RequestOutput) -> dict[str, Any]:
    return {
        "finished": output.finished,
        "metadata": getattr(output, "metadata", None),
        "transfer": output.kv_transfer_params,
        "prompt_logprobs": None
        if output.prompt_logprobs is None
        else [None if one is None else list(one) for one in output.prompt_logprobs],
        "completions": [
            {field.name: getattr(one, field.name) for field in dataclasses.fields(one)}
            for one in output.outputs
        ],
    }


def _plain(ctx: ScoringContext) -> dict[str, Any]:
    told = {field.name: getattr(ctx, field.name) for field in dataclasses.fields(ctx)}
    for name in ("extra_fields", "request_metadata"):
        told[name] = (type(told[name]).__name__, dict(told[name]))
    for name in ("logprobs", "prompt_logprobs"):
        if told[name] is not None:
            told[name] = [None if one is None else dict(one) for one in told[name]]
    return told


def look(connection: Connection) -> None:
    """Answer with what mounting and registering change, and what is missing where."""
    connection.recv()
    before = {name: vars(AsyncLLM)[name] for name in ("generate", "abort", "__init__")}
    mount(AsyncLLM)
    mount(AsyncLLM)
    engine = ScriptedLLM([], None)
    told = {
        "class": all(vars(AsyncLLM)[name] is one for name, one in before.items()),
        "has method": hasattr(AsyncLLM, METHOD),
        "engine before": sorted({"generate", "abort"} & vars(engine).keys()),
        "function before": engine.generate.__func__ is before["generate"],
    }
    engine.register_external_classifier_hook(Hook("one"))
    other = ScriptedLLM([], None)
    told["engine after"] = sorted({"generate", "abort"} & vars(engine).keys())
    told["other engine"] = other.generate.__func__ is before["generate"]
    told["class after"] = all(vars(AsyncLLM)[name] is one for name, one in before.items())
    reference = weakref.ref(engine)
    gc.disable()
    del engine
    told["freed"] = reference() is None
    told["missing"] = missing(AsyncLLM)

    class Older:
        def generate(self, inputs: object) -> None: ...

    class Later(ScriptedLLM):
        def __init__(self) -> None:
            self.registered: list[str] = []

        def register_external_classifier_hook(self, hook: object) -> None:
            self.registered.append(type(hook).__name__)

    os.environ["CLASSIFIER_HOOKS"] = "reference_plugins.classifier_hook.hooks.blocker:PiiBlocker"
    mount(Later)
    told["vLLM's own"] = (Later().registered, "generate" in vars(Later()))
    del os.environ["CLASSIFIER_HOOKS"]
    told["missing of another"] = missing(Older)
    mount(Older)  # nobody asked for hooks yet
    os.environ["CLASSIFIER_HOOKS"] = "some.module:Hook"
    for name, act in (
        ("mounting", lambda: mount(Older)),
        ("registering", lambda: getattr(Older(), METHOD)(Hook("one"))),
    ):
        try:
            act()
        except MountRefused as error:
            told[name] = str(error)
    connection.send(told)
