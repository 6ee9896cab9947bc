# SPDX-License-Identifier: Apache-2.0
"""Scenes of the host suite: registration, time, and what hooks decide."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from conformance.classifier_hook.host_engine import (
    Hook,
    answers,
    blocks,
    deltas,
    ignores_cancellation,
    raises,
    read,
    takes,
    texts,
)
from conformance.classifier_hook.host_stage import ended, register, scores, stage
from conformance.hosts import Sight
from reference_plugins.classifier_hook.contract import DEFAULT_REFUSAL, MARGIN
from reference_plugins.classifier_hook.mount import METHOD

FINE = {"x": deltas("fi", "ne")}
BAD = {"x": deltas("so bad")}

#: Seconds by which a time in virtual seconds may be off, and by which a timeout may be late.
CLOSE = 0.001


class Plain:
    """A hook that has nothing but what it must have."""

    name = "plain"
    blocking = False
    timeout_ms = 1000

    async def score(self, ctx: Any) -> dict[str, Any]:  # noqa: ANN401 - a ScoringContext
        """Answer."""
        return {"length": len(ctx.generated_text)}


class Decorated(Plain):
    """One whose score is a plain function that returns an awaitable, as a decorator makes it."""

    name = "decorated"

    def score(self, ctx: object) -> Any:  # noqa: ANN401 - a ScoringContext; an awaitable
        """Answer."""
        return super().score(ctx)


async def takes_hooks(see: Sight) -> None:
    """CR-01: hooks of every legal form are registered, and called."""
    engine = stage(FINE)
    see(hasattr(engine, METHOD), f"an engine has no {METHOD}")
    register(engine, Plain())
    legal = [
        Decorated(),
        Hook("opens", takes(0, n=1), blocking=True, timeout_ms=1_000, on_error="allow"),
        Hook("a name, with \u00e9", takes(0, n=2), timeout_ms=24 * 60 * 60 * 1000),
    ]
    for hook in legal:
        register(engine, hook)
    found = scores(await read(engine, "x"))
    wanted: dict[str, Any] = {"opens": {"n": 1}, "a name, with \u00e9": {"n": 2}}
    wanted |= {name: {"length": 4} for name in ("plain", "decorated")}
    see(found == wanted, f"four hooks were registered, and the scores are {found}")


def _without(name: str) -> object:
    members = {key: value for key, value in vars(Plain).items() if key != name}
    return type("Lacking", (), members)()


def _with(**members: object) -> object:
    return type("Wrong", (Plain,), members)()


def _refused() -> list[tuple[str, Any]]:
    """Return what registration must refuse, each with the attribute that is wrong."""

    async def no_argument(_: object) -> dict[str, Any]:
        return {}

    async def two(_: object, ctx: object, more: object) -> dict[str, Any]:
        return {"ctx": ctx, "more": more}

    async def generator(_: object, ctx: object) -> Any:  # noqa: ANN401 - an async generator
        yield ctx

    return [
        *((name, _without(name)) for name in ("name", "blocking", "timeout_ms", "score")),
        *(("name", _with(name=value)) for value in ("", " ", None, 7)),
        *(("blocking", _with(blocking=value)) for value in (1, 0, None, "no")),
        *(("timeout_ms", _with(timeout_ms=v)) for v in (0, -1, True, 0.5, "100", None, 1 << 62)),
        *(("score", _with(score=each)) for each in (no_argument, two, generator, 7)),
        *(("on_error", _with(on_error=value)) for value in ("open", "", True)),
    ]


async def refuses_hooks(see: Sight) -> None:
    """CR-02: whatever is wrong is refused by name, and nothing of it stays."""
    for attribute, hook in _refused():
        engine = stage(FINE)
        said = _said(engine, hook)
        value = getattr(hook, attribute, "nothing")
        see(said is not None, f"a hook was taken whose {attribute} is {value!r}")
        see(attribute in str(said), f"a {attribute} of {value!r} was refused by: {said}")
        register(engine, Hook("after", takes(0)))
        found = scores(await read(engine, "x"))
        see(list(found) == ["after"], f"after a refusal the scores are those of {list(found)}")
    see(_said(stage(FINE), Plain) is not None, "a class was taken in place of an instance")
    engine = stage(FINE, Hook("same", takes(0, first=True)))
    see(_said(engine, Hook("same", takes(0))) is not None, "a name was taken twice")
    found = scores(await read(engine, "x"))
    see(found == {"same": {"first": True}}, f"after a second hook of a name there is {found}")


def _said(engine: object, hook: object) -> str | None:
    try:
        register(engine, hook)
    except (TypeError, ValueError) as error:
        return str(error)
    return None


async def reads_attributes_once(see: Sight) -> None:
    """CR-03: a hook that makes itself a blocker, and gives itself time, has done nothing."""
    hook = Hook("turns", takes(0.5, block=True), timeout_ms=1000)
    engine = stage({"x": deltas("fine")}, hook)
    hook.name, hook.blocking, hook.timeout_ms = "another", True, 100
    outs = await read(engine, "x")
    see(texts(outs) == ["fine"], "a hook blocked that was registered as an annotation")
    see(scores(outs) == {"turns": {"block": True}}, f"its scores are {scores(outs)}")


async def keeps_hooks_of_requests(see: Sight) -> None:
    """CR-04: a hook that comes late scores what comes after it."""
    engine = stage({"x": deltas("a", "b", "c")}, Hook("early", takes(0)))
    reading = asyncio.ensure_future(read(engine, "x"))
    await asyncio.sleep(1.5)
    register(engine, Hook("late", takes(0)))
    found = scores(await reading)
    see(list(found) == ["early"], f"a request that was under way has scores of {list(found)}")
    found = scores(await read(engine, "x", request_id="next"))
    see(list(found) == ["early", "late"], f"the next request has scores of {list(found)}")


async def runs_hooks_at_once(see: Sight) -> None:
    """CR-05: one, two, four and sixteen hooks take as long as the slowest of them."""
    for count in (1, 2, 4, 16):
        hooks = [Hook(str(n), takes((n + 1) / 20)) for n in range(count)]
        outs = await read(stage({"x": deltas("fine")}, *hooks), "x")
        took = ended(outs) - 1
        slowest = count / 20
        see(
            abs(took - slowest) < CLOSE,
            f"{count} hooks, of which the slowest takes {slowest} s, took {took:.2f} s",
        )


async def ends_hooks_in_time(see: Sight) -> None:
    """CR-06: each by its own timeout, from its own first step on."""
    short, long = Hook("short", takes(5), timeout_ms=100), Hook("long", takes(0.8, n=1))
    outs = await read(stage({"x": deltas("fine")}, short, long), "x")
    see(short.ends == [("cancelled", 1.1)], f"a hook of 100 ms {_told(short, 1)}")
    see(scores(outs)["long"] == {"n": 1}, "a hook of 1,000 ms had no time because of another")
    see(abs(ended(outs) - 1.8) < CLOSE, f"both together took {ended(outs) - 1:.2f} s, not 0.8 s")

    async def works(_: object) -> dict[str, Any]:
        loop: Any = asyncio.get_running_loop()
        loop.now += 5  # work without an await
        return {}

    quick = Hook("quick", takes(0.05, n=1), timeout_ms=100)
    first = Hook("works", works, timeout_ms=9000)
    found = scores(await read(stage({"x": deltas("fine")}, first, quick), "x"))
    see(
        found["quick"] == {"n": 1},
        "a hook was ended for the time that another one worked before its first step",
    )


def _told(hook: Hook, began: float) -> str:
    if not hook.ends:
        return "was not ended"
    what, at = hook.ends[0]
    return f"{what} after {at - began:.2f} s"


async def bounds_hooks_that_go_on(see: Sight) -> None:
    """CR-07: one that ignores its cancellation, and one that answers late."""
    for blocking in (False, True):
        deaf = Hook("deaf", ignores_cancellation, blocking=blocking, timeout_ms=100)
        outs = await read(stage({"x": deltas("fine")}, deaf), "x")
        held = ended(outs) - 1
        see(
            held <= 0.1 + MARGIN + CLOSE,
            f"a hook of 100 ms that ignores its cancellation held the answer for {held:.2f} s "
            f"(at most {0.1 + MARGIN:.2f} s)",
        )

    async def late(_: object) -> dict[str, Any]:
        try:
            await asyncio.sleep(5)
        except asyncio.CancelledError:
            await asyncio.sleep(MARGIN / 2)
        return {"late": True}

    found = scores(await read(stage(FINE, Hook("late", late, timeout_ms=100)), "x"))
    see(_kind(found["late"]) == "timeout", f"what a hook said after its timeout is {found['late']}")


FAILURES: Mapping[str, tuple[Callable[[Any], Awaitable[Any]], str]] = {
    "takes too long": (takes(5), "timeout"),
    "raises ValueError": (raises(ValueError("no model")), "exception"),
    "raises KeyError": (raises(KeyError()), "exception"),
    "raises SystemExit": (raises(SystemExit(3)), "exception"),
    "cancels itself": (raises(asyncio.CancelledError()), "exception"),
    "returns None": (answers(None), "invalid"),
    "returns a list": (answers([1]), "invalid"),
    "returns an object": (answers({"x": object()}), "invalid"),
    "returns NaN": (answers({"x": float("nan")}), "invalid"),
    "returns a key that is no text": (answers({1: 2}), "invalid"),
}


async def lets_through(see: Sight) -> None:
    """CR-08: whatever becomes of an annotation, the answer and the other scores arrive."""
    for what, (does, kind) in FAILURES.items():
        engine = stage(FINE, Hook("fails", does), Hook("works", takes(0, n=1)))
        outs = await read(engine, "x")
        see(texts(outs) == ["fi", "ne"], f"an annotation that {what} changed the answer")
        found = scores(outs)
        see(_kind(found.get("fails")) == kind, f"one that {what} left {found.get('fails')}")
        see(found.get("works") == {"n": 1}, f"beside one that {what} another hook has no scores")


async def closes(see: Sight) -> None:
    """CR-09: whatever becomes of a blocker, nothing goes out undecided, unless it is open."""
    for what, (does, kind) in FAILURES.items():
        for on_error, wanted in (("block", DEFAULT_REFUSAL), ("allow", "fine")):
            hook = Hook("fails", does, blocking=True, on_error=on_error)
            outs = await read(stage({"x": deltas("fine")}, hook), "x", kind="FINAL_ONLY")
            see(
                texts(outs) == [wanted],
                f"a blocker with on_error {on_error!r} that {what}: {texts(outs)} went out",
            )
            found = scores(outs)["fails"]
            see(_kind(found) == kind, f"a blocker that {what} left {found}")


def _kind(found: object) -> str | None:
    error = found.get("error") if isinstance(found, dict) else None
    if not isinstance(error, dict) or set(error) != {"type", "message"} or not error["message"]:
        return None
    return str(error["type"])


async def replaces(see: Sight) -> None:
    """CR-10: truthy decisions of blockers replace, by a text or by the default."""
    for said, wanted in (
        ({"block": True, "replacement": "No."}, "No."),
        ({"block": True}, DEFAULT_REFUSAL),
        ({"block": 1, "replacement": None}, DEFAULT_REFUSAL),
        ({"block": "yes", "replacement": 7}, DEFAULT_REFUSAL),
        ({"block": True, "replacement": ""}, DEFAULT_REFUSAL),
        ({"block": False, "replacement": "No."}, "so bad"),
        ({"block": 0}, "so bad"),
        ({"blocked": True}, "so bad"),
    ):
        outs = await read(stage(BAD, Hook("blocker", answers(said), blocking=True)), "x")
        see(texts(outs) == [wanted], f"a blocker said {said}, and {texts(outs)} went out")
        outs = await read(stage(BAD, Hook("annotation", answers(said))), "x")
        see(texts(outs) == ["so bad"], f"an annotation said {said}, and {texts(outs)} went out")


async def first_decides(see: Sight) -> None:
    """CR-11: in whatever order they end, and whether they decide or fail."""
    for first, second in ((0.5, 0.1), (0.1, 0.5)):
        one = Hook("one", blocks("bad", first, replacement="one"), blocking=True)
        two = Hook("two", blocks("bad", second, replacement="two"), blocking=True)
        outs = await read(stage(BAD, Hook("none", takes(0)), one, two), "x")
        see(texts(outs) == ["one"], f"blockers that took {first} s and {second} s: {texts(outs)}")
    fails = Hook("fails", takes(5), blocking=True)
    two = Hook("two", blocks("bad", replacement="two"), blocking=True)
    outs = await read(stage(BAD, fails, two), "x")
    see(texts(outs) == [DEFAULT_REFUSAL], f"the first of two blockers failed: {texts(outs)}")


async def scores_arrive(see: Sight) -> None:
    """CR-12: with the last output, for every kind of outputs, and for a blocked answer too."""
    scripts = {
        "DELTA": {"x": deltas("ab", "c", "bad")},
        "CUMULATIVE": {"x": deltas("ab", "abc", "abcbad")},
        "FINAL_ONLY": {"x": deltas("abcbad")},
    }
    said = {"score": 0.5, "tags": ["a", None], "deep": {"er": {"\u00e9": True}}}
    for kind, script in scripts.items():
        blocker = Hook("blocker", blocks("bad"), blocking=True)
        outs = await read(stage(script, Hook("one", answers(said)), blocker), "x", kind=kind)
        see(
            [out.scores for out in outs[:-1]] == [None] * (len(outs) - 1),
            f"{kind}: outputs have scores before the completion ended",
        )
        wanted = {"one": said, "blocker": {"block": True}}
        see(scores(outs) == wanted, f"{kind}: the last output has {scores(outs)}")


async def scores_each(see: Sight) -> None:
    """CR-13: three completions, one of them blocked, together and as a stream."""
    for kind in ("DELTA", "CUMULATIVE", "FINAL_ONLY"):
        steps = [
            step for n, text in enumerate(("fine", "bad", "good")) for step in deltas(text, index=n)
        ]
        script = {"x": steps}
        if kind == "FINAL_ONLY":  # what vLLM sends for it is one output
            merged = [completion for _, completions in steps for completion in completions]
            script = {"x": [(1.0, merged)]}
        one = Hook("one", _length)
        blocker = Hook("blocker", blocks("bad", replacement="No."), blocking=True)
        outs = await read(stage(script, one, blocker), "x", kind=kind, n=3)
        said = [texts(outs, n) for n in range(3)]
        see(said == [["fine"], ["No."], ["good"]], f"{kind}: of three completions came {said}")
        found = {
            index: each for out in outs for index, each in (out.scores or {}).get("one", {}).items()
        }
        wanted = {0: {"length": 4}, 1: {"length": 3}, 2: {"length": 4}}
        see(found == wanted, f"{kind}: their scores are {found}")
        finished = [out.output.finished for out in outs]
        see(finished.index(True) == len(outs) - 1, f"{kind}: outputs say finished {finished}")


async def _length(ctx: Any) -> dict[str, Any]:  # noqa: ANN401 - a ScoringContext
    await asyncio.sleep(0)
    return {"length": len(ctx.generated_text)}


async def scores_stay(see: Sight) -> None:
    """CR-14: a hook returns one dictionary again and again, and writes to it later."""
    kept: dict[str, Any] = {"tags": []}

    async def same(ctx: Any) -> dict[str, Any]:  # noqa: ANN401 - a ScoringContext
        kept["tags"].append(ctx.request_id)
        return kept

    engine = stage(FINE, Hook("same", same))
    first = await read(engine, "x", request_id="a")
    await read(engine, "x", request_id="b")
    kept["tags"].append("later")
    see(scores(first) == {"same": {"tags": ["a"]}}, f"scores became {scores(first)} later")


SCENES = {
    "CR-01": takes_hooks,
    "CR-02": refuses_hooks,
    "CR-03": reads_attributes_once,
    "CR-04": keeps_hooks_of_requests,
    "CR-05": runs_hooks_at_once,
    "CR-06": ends_hooks_in_time,
    "CR-07": bounds_hooks_that_go_on,
    "CR-08": lets_through,
    "CR-09": closes,
    "CR-10": replaces,
    "CR-11": first_decides,
    "CR-12": scores_arrive,
    "CR-13": scores_each,
    "CR-14": scores_stay,
}
