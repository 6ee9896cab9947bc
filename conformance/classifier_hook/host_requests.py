# SPDX-License-Identifier: Apache-2.0
"""Scenes of the host suite: requests that go on and end, and what hooks cost."""

from __future__ import annotations

import asyncio
import gc
import inspect
import sys
import weakref
from typing import Any

from vllm.v1.engine.async_llm import AsyncLLM

from conformance.classifier_hook.host_engine import (
    Hook,
    Out,
    ScriptedLLM,
    answers,
    blocks,
    deltas,
    read,
    takes,
    texts,
)
from conformance.classifier_hook.host_stage import Unsupported, ended, register, scores, stage
from conformance.classifier_hook.host_verdicts import CLOSE
from conformance.hosts import Sight
from reference_plugins.classifier_hook import hooks_of, request_scope
from reference_plugins.classifier_hook.contract import DEFAULT_REFUSAL


async def leaves_aborted_alone(see: Sight) -> None:
    """CR-22: aborts before the end, and while hooks are at work."""
    for blocking in (False, True):
        hook = Hook("hook", takes(0.5, n=1), blocking=blocking)
        engine = stage({"x": deltas("a", "b", "c")}, hook)
        outs = await _aborted(engine, 1.5)
        see(not hook.seen, "a completion was scored that had been aborted")
        rest = texts(outs)[1:]
        wanted = ["" if blocking else "rest"]
        see(rest == wanted, f"of an aborted request (blocking: {blocking}) came {rest}")
        hook = Hook("hook", takes(0.5, n=1), blocking=blocking)
        engine = stage({"x": deltas("a", "b")}, hook)
        outs = await _aborted(engine, 2.2)
        see(
            bool(hook.ends) and hook.ends[0][0] == "cancelled",
            "hooks went on for a request that was aborted while they were at work",
        )
        see(abs(ended(outs) - 2.2) < CLOSE, f"its end came after {ended(outs)} s, not at once")
        see(scores(outs) is None, f"an aborted request has the scores {scores(outs)}")
        see(not blocking or texts(outs) == ["a", ""], f"nobody decided, and {texts(outs)} went out")


async def _aborted(engine: ScriptedLLM, seconds: float) -> list[Out]:
    reading = asyncio.ensure_future(read(engine, "x"))
    await asyncio.sleep(seconds)
    await engine.abort("request")
    outs = await reading
    await asyncio.sleep(0)  # a hook that was cancelled ends in the next turn
    return outs


async def ends_with_readers(see: Sight) -> None:
    """CR-23: readers that are cancelled while text is made, and while hooks are at work."""
    for n in (1, 2):
        for seconds in (1.5, 2.2):
            before = asyncio.all_tasks()
            steps = [s for index in range(n) for s in deltas("a", "b", index=index)]
            hook = Hook("hook", takes(5, n=1), blocking=True, timeout_ms=9000)
            engine = stage({"x": steps}, hook)
            reading = asyncio.ensure_future(read(engine, "x", n=n))
            await asyncio.sleep(seconds)
            reading.cancel()
            await asyncio.wait([reading])
            await asyncio.sleep(0)
            see(reading.cancelled(), "a reader was cancelled and did not end")
            at_work = [end for end in hook.ends if end[0] != "cancelled"]
            see(not at_work and len(hook.ends) == len(hook.seen), "its hooks went on")
            left = asyncio.all_tasks() - before - engine.scripts_at_work()
            see(not left, f"its end left {len(left)} task(s) behind")
            see("request" in engine.aborted, "its request was not aborted in the engine")
            engine.stop()
            await asyncio.sleep(0)
    hook = Hook("hook", takes(0))
    engine = stage({"x": deltas("a", "b")}, hook)
    outputs = engine.generate("x", _streamed(), "request")
    await anext(outputs)
    await outputs.aclose()
    see(not hook.seen, "a completion was scored that nobody reads any more")
    engine.stop()


def _streamed() -> object:
    from vllm.sampling_params import RequestOutputKind, SamplingParams

    return SamplingParams(output_kind=RequestOutputKind.DELTA)


async def goes_on(see: Sight) -> None:
    """CR-24: beside a request whose hook takes long, and within one."""

    async def by_text(ctx: Any) -> dict[str, Any]:  # noqa: ANN401 - a ScoringContext
        await asyncio.sleep(5 if "slow" in ctx.generated_text else 0)
        return {}

    hook = Hook("hook", by_text, blocking=True, timeout_ms=9000)
    engine = stage({"slow": deltas("slow"), "quick": deltas("a", "b", "c")}, hook)
    slow = asyncio.ensure_future(read(engine, "slow", request_id="slow"))
    outs = await read(engine, "quick", request_id="quick")
    times = [out.at for out in outs]
    see(times == [1, 2, 3], f"another request's outputs came at {times} s")
    see(ended(await slow) == 6, "a slow hook was not waited for")  # noqa: PLR2004 - one and five
    steps = [*deltas("slow"), *deltas("a", "b", "c", index=1)]
    hook = Hook("hook", by_text, blocking=True, timeout_ms=9000)
    outs = await read(stage({"x": steps}, hook), "x", n=2)
    mine = [out.at for out in outs if out.output.outputs[0].index == 1]
    see(mine == [2, 3, 4], f"another completion's outputs came at {mine} s")


async def keeps_apart(see: Sight) -> None:
    """CR-25: sixty-four requests whose hooks end in another order than they began."""
    many = 64

    async def told(ctx: Any) -> dict[str, Any]:  # noqa: ANN401 - a ScoringContext
        number = int(ctx.generated_text)
        await asyncio.sleep((number * 7 % 10) / 20)
        return {"of": ctx.generated_text, "id": ctx.request_id, "block": number % 3 == 0}

    hooks = (Hook("one", told), Hook("two", told, blocking=True))
    engine = stage({str(n): deltas(str(n), every=1 + n % 5 / 10) for n in range(many)}, *hooks)
    reading = [read(engine, str(n), request_id=f"id-{n}") for n in range(many)]
    for number, outs in enumerate(await asyncio.gather(*reading)):
        wanted = {"of": str(number), "id": f"id-{number}", "block": number % 3 == 0}
        see(
            scores(outs) == {"one": wanted, "two": wanted},
            f"request {number} of {many} has the scores {scores(outs)}",
        )
        text = DEFAULT_REFUSAL if number % 3 == 0 else str(number)
        see(texts(outs) == [text], f"request {number} of {many} was answered {texts(outs)}")


async def costs_nothing(see: Sight) -> None:
    """CR-26: engines with and without hooks beside each other."""
    source = inspect.getsourcefile(sys.modules[AsyncLLM.__module__])
    for name in ("generate", "abort", "__init__"):
        code = getattr(AsyncLLM, name).__code__
        see(code.co_filename == source, f"AsyncLLM.{name} is not vLLM's own function")
    names = ("generate", "abort", "__init__")
    own = {name: vars(ScriptedLLM).get(name) or getattr(AsyncLLM, name) for name in names}
    engine = stage({"x": deltas("fine")})
    for name in ("generate", "abort"):
        mine = getattr(getattr(engine, name), "__func__", None)
        see(mine is own[name], f"{name} of an engine without hooks is not vLLM's own")
    register(stage({"x": deltas("fine")}), Hook("one", takes(0)))
    other = stage({"x": deltas("fine")})
    for each in (engine, other):
        mine = getattr(each.generate, "__func__", None)
        see(mine is own["generate"], "an engine without hooks pays for one that has some")
    for name in names:
        now = vars(ScriptedLLM).get(name) or getattr(AsyncLLM, name)
        see(now is own[name], f"{name} of the class is not vLLM's own any more")
    outs = await read(other, "x")
    see(scores(outs) is None, "an engine without hooks gives scores")


async def remembers_nothing(see: Sight) -> None:
    """CR-27: contexts of completions, and engines, are freed without the collector's help."""
    freed: list[weakref.ref[Any]] = []

    async def notes(ctx: Any) -> dict[str, Any]:  # noqa: ANN401 - a ScoringContext
        freed.append(weakref.ref(ctx.extra_fields["mark"]))
        return {}

    class Mark:
        """What can be referred to weakly."""

    class Noting:
        name, blocking, timeout_ms = "notes", False, 1000

        async def score(self, ctx: object) -> dict[str, Any]:
            return await notes(ctx)

    gc.disable()
    try:
        engine = stage({"x": deltas("fine")}, Noting())
        for number in range(3):
            with request_scope(extra_fields={"mark": Mark()}):
                await read(engine, "x", request_id=f"id-{number}")
        await asyncio.sleep(2)
        engine._tasks.clear()  # noqa: SLF001 - a stand-in of ours
        left = sum(reference() is not None for reference in freed)
        see(len(freed) == 3, "the hook was not asked")  # noqa: PLR2004 - three requests
        see(not left, f"the contexts of {left} of 3 completions are still held")
        reference = weakref.ref(engine)
        del engine
        see(reference() is None, "an engine with hooks is not freed with its last reference")
    finally:
        gc.enable()


async def counts(see: Sight) -> None:
    """CR-28: one call of every kind."""
    hooks = (
        Hook("counted", blocks("bad"), blocking=True),
        Hook("late", takes(5)),
        Hook("raises", answers(None)),
    )
    engine = stage({"x": deltas("fine"), "bad": deltas("bad")}, *hooks)
    if hooks_of(engine) is None:
        raise Unsupported("this runtime has no metrics of its own")
    before = {key: _metric(*key) for key in _COUNTED}
    await read(engine, "x", request_id="a")
    await read(engine, "bad", request_id="b")
    for key, by in _COUNTED.items():
        rise = _metric(*key) - before[key]
        see(rise == by, f"classifier_hook_{key[0]} of {key[1]!r} rose by {rise:.0f}, not by {by}")


_COUNTED = {
    ("calls_total", "counted"): 2,
    ("blocks_total", "counted"): 1,
    ("latency_seconds_count", "counted"): 2,
    ("timeouts_total", "late"): 2,
    ("calls_total", "late"): 2,
    ("errors_total", "raises"): 2,
}


def _metric(name: str, hook: str) -> float:
    # It comes with vLLM, and types are checked without that.
    from prometheus_client import (  # type: ignore[import-not-found, unused-ignore] # see above
        REGISTRY,
    )

    total: float = sum(
        sample.value
        for family in REGISTRY.collect()
        for sample in family.samples
        if sample.name == f"classifier_hook_{name}" and sample.labels.get("hook") == hook
    )
    return total


SCENES = {
    "CR-22": leaves_aborted_alone,
    "CR-23": ends_with_readers,
    "CR-24": goes_on,
    "CR-25": keeps_apart,
    "CR-26": costs_nothing,
    "CR-27": remembers_nothing,
    "CR-28": counts,
}
