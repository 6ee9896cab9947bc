# SPDX-License-Identifier: Apache-2.0
"""Hooks at work on one completion, in virtual time: who waits for whom, and for how long."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from reference_plugins.classifier_hook.contract import MARGIN, ScoringContext, Verdict
from reference_plugins.classifier_hook.dispatch import Dispatcher
from reference_plugins.classifier_hook.events import CallEnded, CancellationIgnored, Event
from reference_plugins.classifier_hook.registry import Registry
from reference_plugins.classifier_hook.virtual_time import run

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Does = Callable[[ScoringContext], Awaitable[object]]

CONTEXT = ScoringContext(
    request_id="r",
    prompt="p",
    generated_text="text",
    finish_reason="stop",
    prompt_token_ids=[1],
    output_token_ids=[2, 3],
    extra_fields={"tags": ["x"]},
)


@attrs.define(slots=False)
class Hook:
    """Does what a function does."""

    name: str
    does: Does
    blocking: bool = False
    timeout_ms: int = 1000
    on_error: str = "block"

    async def score(self, ctx: ScoringContext) -> dict[str, Any]:
        """Do it."""
        return await self.does(ctx)  # type: ignore[return-value] # some answer with no dict


@attrs.define
class Scored:
    """What came of scoring a completion."""

    verdict: Verdict | None
    seconds: float
    events: list[Event]

    def error(self, name: str) -> str:
        """Return the type of a hook's error."""
        assert self.verdict is not None
        return str(self.verdict.scores[name]["error"]["type"])


def takes(seconds: float, **scores: object) -> Does:
    """Return what a hook does that takes so long."""

    async def does(_: ScoringContext) -> dict[str, Any]:
        await asyncio.sleep(seconds)
        return scores

    return does


def raises(error: BaseException) -> Does:
    """Return what a hook does that raises."""

    async def does(_: ScoringContext) -> dict[str, Any]:
        raise error

    return does


def answers(answer: object) -> Does:
    """Return what a hook does that answers at once."""

    async def does(_: ScoringContext) -> object:
        return answer

    return does


async def ignores_cancellation(_: ScoringContext) -> dict[str, Any]:
    """Go on for ten seconds, whatever happens."""
    end = asyncio.get_running_loop().time() + 10
    while (left := end - asyncio.get_running_loop().time()) > 0:
        try:
            await asyncio.sleep(left)
        except asyncio.CancelledError:
            continue
    return {"late": True}


async def cleans_up(_: ScoringContext) -> dict[str, Any]:
    """Need a moment to end."""
    try:
        await asyncio.sleep(10)
    finally:
        await asyncio.sleep(MARGIN / 2)
    return {}


def score(*hooks: Hook, linger: float = 0.0) -> Scored:
    """Score a completion, and say what came of it; *linger* seconds pass before the loop ends."""
    events: list[Event] = []

    async def main() -> Scored:
        loop = asyncio.get_running_loop()
        dispatcher = Dispatcher([events.append], clock=loop.time)
        verdict = await dispatcher.start(Registry(hooks).entries, CONTEXT).verdict()
        seconds = loop.time()
        await asyncio.sleep(linger)
        assert not dispatcher.running
        assert not dispatcher.strays
        return Scored(verdict, seconds, events)

    return run(main)


def test_hooks_run_at_once() -> None:
    """Five hooks take as long as the slowest of them."""
    hooks = [Hook(str(n), takes(n / 10, n=n)) for n in range(1, 6)]
    scored = score(*hooks)

    assert scored.seconds == 0.5
    assert scored.verdict == Verdict({str(n): {"n": n} for n in range(1, 6)})


def test_each_has_its_own_timeout() -> None:
    """A timeout ends one hook and leaves the others their time."""
    scored = score(
        Hook("short", takes(5), timeout_ms=100),
        Hook("long", takes(0.8, fine=True), timeout_ms=1000),
    )

    assert scored.seconds == 0.8
    assert scored.error("short") == "timeout"
    assert scored.verdict is not None
    assert scored.verdict.scores["long"] == {"fine": True}


@pytest.mark.parametrize(
    ("does", "error", "message"),
    [
        (takes(5), "timeout", "no scores within 1000 ms"),
        (raises(ValueError("no model")), "exception", "ValueError: no model"),
        (raises(KeyError()), "exception", "KeyError"),
        (raises(SystemExit(3)), "exception", "HookExited: exit with status 3"),
        (raises(asyncio.CancelledError()), "exception", "the hook cancelled itself"),
        (raises(StopIteration()), "exception", "StopIteration"),
        (raises(StopAsyncIteration()), "exception", "StopAsyncIteration"),
        (raises(GeneratorExit()), "exception", "GeneratorExit"),
        (answers(None), "invalid", "must return a dict"),
        (answers({"x": object()}), "invalid", "JSON cannot hold"),
    ],
)
def test_a_failing_annotation_lets_the_answer_through(does: Does, error: str, message: str) -> None:
    """Its error stands under its name, and the next hook's scores under its own."""
    scored = score(Hook("fails", does), Hook("works", takes(0, fine=1)))

    assert scored.verdict is not None
    assert scored.verdict.blocker is None
    assert scored.verdict.scores["works"] == {"fine": 1}
    assert scored.error("fails") == error
    assert message in scored.verdict.scores["fails"]["error"]["message"]


@pytest.mark.parametrize("does", [takes(5), raises(ValueError("no model")), answers(None)])
@pytest.mark.parametrize(("on_error", "blocker"), [("block", "fails"), ("allow", None)])
def test_a_failing_blocker_closes_unless_it_says_otherwise(
    does: Does, on_error: str, blocker: str | None
) -> None:
    """Timeouts, exceptions and invalid answers alike."""
    scored = score(Hook("fails", does, blocking=True, on_error=on_error))

    assert scored.verdict is not None
    assert scored.verdict.blocker == blocker
    assert scored.verdict.replacement is None


def test_a_hook_that_ignores_cancellation_holds_the_answer_for_the_margin() -> None:
    """After its timeout and the margin the answer goes out, and the hook is reported."""
    scored = score(Hook("deaf", ignores_cancellation, timeout_ms=100), linger=10)

    assert scored.seconds == pytest.approx(0.1 + MARGIN)
    assert scored.error("deaf") == "timeout"
    assert CancellationIgnored("deaf", "r", 0) in scored.events


def test_a_late_answer_stays_a_timeout() -> None:
    """What a hook says after its timeout, within the margin, counts for nothing."""

    async def late(_: ScoringContext) -> dict[str, Any]:
        try:
            await asyncio.sleep(5)
        except asyncio.CancelledError:
            await asyncio.sleep(MARGIN / 2)
        return {"block": False}

    scored = score(Hook("late", late, blocking=True, timeout_ms=100))

    assert scored.verdict is not None
    assert scored.verdict.blocker == "late"
    assert scored.seconds == pytest.approx(0.1 + MARGIN / 2)


def test_a_hook_that_cleans_up_is_given_the_time() -> None:
    """Within the margin its end is waited for, and nothing is reported."""
    scored = score(Hook("tidy", cleans_up, timeout_ms=100))

    assert [type(event) for event in scored.events] == [CallEnded]


def test_an_abandoned_scoring_has_no_verdict() -> None:
    """Who aborts a request by its id cancels its hooks, and whoever waits is told."""
    events: list[Event] = []

    async def main() -> Verdict | None:
        dispatcher = Dispatcher([events.append])
        entries = Registry([Hook("slow", takes(5)), Hook("quick", takes(0.1))]).entries
        scoring = dispatcher.start(entries, CONTEXT)
        asyncio.get_running_loop().call_later(0.5, dispatcher.abandon, "r")
        asyncio.get_running_loop().call_later(0.3, dispatcher.abandon, "another")
        verdict = await scoring.verdict()
        assert asyncio.get_running_loop().time() == 0.5
        return verdict

    assert run(main) is None
    outcomes = {event.hook: event.outcome for event in events if isinstance(event, CallEnded)}
    assert outcomes == {"slow": "cancelled", "quick": "ok"}


def test_cancelling_who_waits_cancels_the_hooks() -> None:
    """No task is left behind, and the hooks were told."""
    told: list[str] = []

    async def notes(_: ScoringContext) -> dict[str, Any]:
        try:
            await asyncio.sleep(5)
        except asyncio.CancelledError:
            told.append("cancelled")
            raise
        return {}

    async def main() -> None:
        dispatcher = Dispatcher()
        scoring = dispatcher.start(Registry([Hook("notes", notes)]).entries, CONTEXT)
        waiting = asyncio.ensure_future(scoring.verdict())
        await asyncio.sleep(0.1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await asyncio.sleep(0)
        assert not dispatcher.running
        assert not dispatcher.strays

    run(main)
    assert told == ["cancelled"]


def test_work_without_an_await_is_measured() -> None:
    """The longest step of a call is in its event, by the clock that was given."""
    events: list[Event] = []
    now = [0.0]

    async def works(_: ScoringContext) -> dict[str, Any]:
        now[0] += 0.02
        await asyncio.sleep(0)
        now[0] += 0.3
        await asyncio.sleep(0)
        now[0] += 0.1
        return {}

    async def main() -> None:
        dispatcher = Dispatcher([events.append], clock=lambda: now[0])
        await dispatcher.start(Registry([Hook("works", works)]).entries, CONTEXT).verdict()

    run(main)
    (event,) = events
    assert isinstance(event, CallEnded)
    assert (event.longest_step, event.seconds) == pytest.approx((0.3, 0.42))


def test_the_time_of_a_hook_starts_with_its_first_step() -> None:
    """A hook that works before it awaits does not use up the timeout of the next."""

    async def main() -> Verdict | None:
        loop = asyncio.get_running_loop()

        async def works(_: ScoringContext) -> dict[str, Any]:
            loop.now += 5  # type: ignore[attr-defined] # a virtual loop, whose clock goes on
            return {}

        hooks = [Hook("works", works), Hook("quick", takes(0.05, fine=1), timeout_ms=100)]
        return await Dispatcher().start(Registry(hooks).entries, CONTEXT).verdict()

    verdict = run(main)
    assert verdict is not None
    assert verdict.scores["quick"] == {"fine": 1}


def test_work_without_an_await_uses_up_the_time() -> None:
    """An answer after the timeout is too late, although no timer could end the work."""
    now = [0.0]

    async def works(_: ScoringContext) -> dict[str, Any]:
        now[0] += 0.2
        return {"late": True}

    async def main() -> Verdict | None:
        dispatcher = Dispatcher(clock=lambda: now[0])
        entries = Registry([Hook("works", works, timeout_ms=100)]).entries
        return await dispatcher.start(entries, CONTEXT).verdict()

    verdict = run(main)
    assert verdict is not None
    assert verdict.scores["works"]["error"]["type"] == "timeout"


@pytest.mark.parametrize(("seconds", "outcome"), [(0.12, "ok"), (0.3, "timeout")])
def test_a_hook_is_not_to_blame_for_another(seconds: float, outcome: str) -> None:
    """Where somebody else held the loop beyond a hook's timeout, it has the margin to go on."""
    events: list[Event] = []

    async def holds(_: ScoringContext) -> dict[str, Any]:
        await asyncio.sleep(0.05)
        # A virtual loop, whose clock goes on.
        asyncio.get_running_loop().now += 5  # type: ignore[attr-defined] # see above
        await asyncio.sleep(0)
        return {}

    async def waits(_: ScoringContext) -> dict[str, Any]:
        ready = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(seconds, ready.set_result, None)
        await asyncio.sleep(0.04)
        await ready
        if seconds > 0.2:
            await asyncio.sleep(1)
        return {"fine": 1}

    async def main() -> None:
        hooks = [Hook("holds", holds, timeout_ms=9000), Hook("waits", waits, timeout_ms=100)]
        await Dispatcher([events.append]).start(Registry(hooks).entries, CONTEXT).verdict()

    run(main)
    assert {e.hook: e.outcome for e in events if isinstance(e, CallEnded)} == {
        "holds": "ok",
        "waits": outcome,
    }


def test_contexts_are_plain_and_not_shared() -> None:
    """What a hook changes in its context, in whatever is in it too, it changes for nobody else."""
    seen: list[ScoringContext] = []

    async def forges(ctx: ScoringContext) -> dict[str, Any]:
        ctx.generated_text = "forged"
        ctx.output_token_ids.clear()
        ctx.extra_fields["tags"].append("forged")
        ctx.request_metadata["forged"] = True
        return {"fields": ctx.extra_fields}

    async def reads(ctx: ScoringContext) -> dict[str, Any]:
        seen.append(ctx)
        return {}

    scored = score(Hook("forges", forges), Hook("reads", reads))

    assert seen == [CONTEXT]
    assert CONTEXT.extra_fields == {"tags": ["x"]}
    assert scored.verdict is not None
    assert scored.verdict.scores["forges"] == {"fields": {"tags": ["x", "forged"]}}


def test_what_cannot_be_awaited_is_an_exception() -> None:
    """Only a call can tell: a plain function may return an awaitable."""

    class AtOnce(Hook):
        def score(self, ctx: ScoringContext) -> dict[str, Any]:  # type: ignore[override] # that is the fault
            return {"text": ctx.generated_text}

    class Returns(Hook):
        def score(self, ctx: ScoringContext) -> Any:  # noqa: ANN401 - an awaitable
            return super().score(ctx)

    scored = score(AtOnce("at once", takes(0)), Returns("returns", takes(0)))

    assert scored.verdict is not None
    said = "NoAwaitable: `score` must return an awaitable, as `async def` does (got dict)"
    assert scored.verdict.scores["at once"] == {"error": {"type": "exception", "message": said}}
    assert scored.verdict.scores["returns"] == {}


def test_nothing_remembers_a_scored_completion() -> None:
    """Its context is freed with the last reference, without the collector's help."""
    seen: list[weakref.ref[Any]] = []

    class Text(str):
        """A text that can be referred to weakly."""

        __slots__ = ("__weakref__",)

    async def notes(ctx: ScoringContext) -> dict[str, Any]:
        seen.append(weakref.ref(ctx.generated_text))
        return {}

    async def main() -> None:
        dispatcher = Dispatcher()
        entries = Registry([Hook("notes", notes), Hook("slow", takes(0.01))]).entries
        for _ in range(3):
            context = ScoringContext(
                request_id="r",
                prompt="",
                generated_text=Text("text"),
                finish_reason="stop",
                prompt_token_ids=[],
                output_token_ids=[],
            )
            await dispatcher.start(entries, context).verdict()
            del context
        await asyncio.sleep(1)
        assert [reference() for reference in seen] == [None] * 3

    gc.disable()
    try:
        run(main)
    finally:
        gc.enable()
