# SPDX-License-Identifier: Apache-2.0
"""Scenes of the host suite: what hooks are told, and what goes out."""

from __future__ import annotations

import dataclasses
from typing import Any

from conformance.classifier_hook.host_engine import (
    PROMPT,
    Hook,
    Out,
    Step,
    answers,
    blocks,
    deltas,
    read,
    takes,
    texts,
)
from conformance.classifier_hook.host_stage import scores, stage
from conformance.hosts import Sight
from reference_plugins.classifier_hook import Policy, request_scope
from reference_plugins.classifier_hook.contract import REPLACED

#: Everything that vLLM may say of a completion beside its text.
EVERYTHING: dict[str, Any] = {
    "logprobs": "asked for",
    "stop_reason": "bad",
    "routed_experts": [1],
    "sampling_mask": [2],
}


async def tells_everything(see: Sight) -> None:
    """CR-15: of a stream whose outputs merge, of a request by tokens, and of what was aborted."""
    script: list[Step] = [
        (1.0, [{"text": "ab", "logprobs": "asked for"}]),
        (1.0, [{"text": "c", "logprobs": "asked for"}]),
        (1.0, [{"text": "d", "logprobs": "asked for", "finish_reason": "stop", "stop_reason": 7}]),
    ]
    for pause in (0.0, 2.5):  # a slow reader gets outputs that were merged
        hook = Hook("one", takes(0))
        with request_scope(extra_fields={"user": ["x"]}, request_metadata={"tenant": "t"}):
            await read(
                stage({"x": script}, hook), "x", pause=pause, logprobs=1, extra_args={"from": 1}
            )
        see(len(hook.seen) == 1, f"the hook was asked {len(hook.seen)} times about a completion")
        told = hook.seen[0]
        wanted = {
            "request_id": "request",
            "prompt": "x",
            "generated_text": "abcd",
            "finish_reason": "stop",
            "prompt_token_ids": list(PROMPT),
            "output_token_ids": list(b"abcd"),
            "index": 0,
            "stop_reason": 7,
        }
        for name, value in wanted.items():
            got = getattr(told, name, None)
            see(got == value, f"{name} of a context is {got!r} instead of {value!r}")
        logprobs = [dict(position) for position in told.logprobs or ()]
        see(logprobs == [{t: (-0.5, 1, chr(t))} for t in b"abcd"], f"logprobs are {logprobs}")
        see(told.cumulative_logprob is not None, "cumulative_logprob was asked for, and is None")
        fields = dict(told.extra_fields)
        see(fields == {"from": 1, "user": ["x"]}, f"extra_fields are {fields}")
        metadata = dict(told.request_metadata)
        see(metadata.get("tenant") == "t", f"request_metadata are {metadata}")
        see(metadata.get("priority") == 3, f"request_metadata are {metadata}")  # noqa: PLR2004 - as asked
    hook = Hook("one", takes(0))
    script = [(1.0, [{"text": "", "token_ids": [8, 9], "finish_reason": "length"}])]
    await read(stage({"x": script}, hook), "x", detokenize=False)
    told = hook.seen[0]
    see(told.generated_text == "8 9", f"a completion without text is {told.generated_text!r}")
    see(told.logprobs is None, "there are logprobs that nobody asked for")
    see(told.finish_reason == "length", f"the finish reason is {told.finish_reason!r}")


async def copies_contexts(see: Sight) -> None:
    """CR-16: one hook changes all that it is told, and another reads."""

    async def forges(ctx: Any) -> dict[str, Any]:  # noqa: ANN401 - a ScoringContext
        ctx.generated_text = "forged"
        for value in (ctx.output_token_ids, ctx.prompt_token_ids, ctx.extra_fields["tags"]):
            see(type(value) is list, f"a list of a context is a {type(value).__name__}")
            value.clear()
        for value in (ctx.request_metadata, ctx.extra_fields["deep"], ctx.extra_fields):
            see(type(value) is dict, f"a dict of a context is a {type(value).__name__}")
            value["forged"] = True
        return {}

    reads = Hook("reads", takes(0.1))
    engine = stage({"x": deltas("text")}, Hook("forges", forges), reads)
    given = {"tags": ["a"], "deep": {}}
    outs = await read(engine, "x", extra_args=given)
    see("error" not in scores(outs)["forges"], f"a hook got {scores(outs)['forges']}")
    told = reads.seen[0]
    see(told.generated_text == "text", "a hook was told what another one forged")
    wanted = {"tags": ["a"], "deep": {}}
    see(told.extra_fields == wanted, f"a hook was told {told.extra_fields} of {wanted}")
    see("forged" not in told.request_metadata, "a hook was told what another one forged")
    see(told.output_token_ids == list(b"text"), "a hook lacks tokens that another one took")
    see(texts(outs) == ["text"], "a hook changed the answer through its context")
    see(given == wanted, "a hook changed what its client sent")


def _told(outs: list[Out]) -> list[dict[str, Any]]:
    """Return all that outputs say, but for the scores."""
    return [
        {
            "at": out.at,
            **{key: value for key, value in vars(out.output).items() if key not in _OWN},
            "outputs": [
                {field.name: getattr(one, field.name) for field in dataclasses.fields(one)}
                for one in out.output.outputs
            ],
        }
        for out in outs
    ]


_OWN = ("metadata", "outputs")


async def passes_on(see: Sight) -> None:
    """CR-17: with hooks that let everything through, and without any, the same goes out."""
    several = [*deltas("a", "b"), *deltas("c", "d", "e", index=1)]
    whole = {"text": "abc", "finish_reason": "stop", **EVERYTHING}
    for kind, n, script, pause in (
        ("DELTA", 1, deltas("a", "b", "c"), 0.0),
        ("DELTA", 1, deltas("a", "b", "c"), 2.5),
        ("CUMULATIVE", 1, deltas("a", "ab", "abc"), 0.0),
        ("FINAL_ONLY", 1, [(1.0, [whole])], 0.0),
        ("DELTA", 2, several, 0.0),
    ):
        hooks = (Hook("one", takes(0, n=1)), Hook("blocker", blocks("bad"), blocking=True))
        wanted = _told(await read(stage({"x": script}), "x", kind=kind, n=n, pause=pause))
        got = _told(await read(stage({"x": script}, *hooks), "x", kind=kind, n=n, pause=pause))
        for mine, own in zip(got, wanted, strict=False):
            different = [key for key, value in own.items() if mine.get(key) != value]
            what = f"{kind}, n = {n}: {', '.join(different)} changed on the way"
            see(not different, what)
        see(len(got) == len(wanted), f"{kind}: {len(wanted)} outputs became {len(got)}")


async def leaks_nothing(see: Sight) -> None:
    """CR-18: nothing is left of a blocked completion, whatever vLLM said of it."""
    completion = {"text": "so bad", "finish_reason": "stop", **EVERYTHING}
    blocker = Hook("blocker", blocks("bad", replacement="No."), blocking=True)
    for kind in ("FINAL_ONLY", "DELTA", "CUMULATIVE"):
        engine = stage({"x": [(1.0, [completion])]}, blocker)
        outs = await read(engine, "x", kind=kind, logprobs=1)
        one = outs[-1].output.outputs[0]
        see(one.text == "No.", f"{kind}: the text is {one.text!r}")
        for field in dataclasses.fields(one):
            if field.name in ("index", "text", "finish_reason", "lora_request"):
                continue
            value = getattr(one, field.name)
            see(not value, f"{kind}: {field.name} of a blocked completion is {value!r}")
        see(one.logprobs is not None, f"{kind}: logprobs are None where they were asked for")
        see(
            outs[-1].output.kv_transfer_params is None,
            f"{kind}: kv_transfer_params lead to what was blocked",
        )


async def says_content_filter(see: Sight) -> None:
    """CR-19: for every way in which an answer is replaced."""
    for hook in (
        Hook("decides", blocks("bad", replacement="No."), blocking=True),
        Hook("refuses", blocks("bad"), blocking=True),
        Hook("late", takes(5), blocking=True),
        Hook("invalid", answers(None), blocking=True),
    ):
        for kind in ("DELTA", "FINAL_ONLY"):
            outs = await read(stage({"x": deltas("so bad")}, hook), "x", kind=kind)
            (one,) = outs[-1].output.outputs
            see(
                one.finish_reason == REPLACED,
                f"an answer replaced by a hook that {hook.name} has finish_reason "
                f"{one.finish_reason!r}",
            )
            see(outs[-1].output.finished, "a request whose answer was replaced does not finish")


async def replaces_last_chunk(see: Sight) -> None:
    """CR-20: deltas, merged deltas and cumulative texts."""
    for kind, given, wanted in (
        ("DELTA", ("so ", "ba", "d!"), ["so ", "ba", "No."]),
        ("CUMULATIVE", ("so ", "so ba", "so bad!"), ["so ", "so ba", "No."]),
    ):
        blocker = Hook("blocker", blocks("bad", 0.5, replacement="No."), blocking=True)
        outs = await read(stage({"x": deltas(*given)}, blocker), "x", kind=kind)
        see(texts(outs) == wanted, f"{kind}: of {given} there went out {texts(outs)}")
        see([out.at for out in outs] == [1, 2, 3.5], f"{kind}: at {[out.at for out in outs]} s")
        told = [ctx.generated_text for ctx in blocker.seen]
        see(told == ["so bad!"], f"{kind}: the hook was asked about {told}")
    blocker = Hook("blocker", blocks("bad", replacement="No."), blocking=True)
    script = {"x": deltas("a", "b", "c", "d", " bad")}
    outs = await read(stage(script, blocker), "x", pause=3.5)
    see(texts(outs) == ["a", "bcd", "No."], f"to a slow reader there went out {texts(outs)}")


async def holds_streams(see: Sight) -> None:
    """CR-21: a stream that passes, one that is blocked, and one that nobody can block."""
    hold = Policy(streaming="hold")
    for given, wanted in ((("so ", "good"), ["so ", "good"]), (("so ", "bad"), ["No."])):
        blocker = Hook("blocker", blocks("bad", 0.5, replacement="No."), blocking=True)
        outs = await read(stage({"x": deltas(*given)}, blocker, policy=hold), "x")
        see(texts(outs) == wanted, f"of {given}, held, there went out {texts(outs)}")
        early = min(out.at for out in outs)
        see(early >= 2.5, f"of a held stream something went out {2.5 - early:.1f} s early")  # noqa: PLR2004 - two seconds of text, and half a second of the hook
        see(outs[-1].output.finished, "a held stream does not finish")
    outs = await read(stage({"x": deltas("a", "b")}, Hook("one", takes(0)), policy=hold), "x")
    see([out.at for out in outs] == [1, 2], f"annotations held a stream to {outs[0].at} s")
    steps = [*deltas("a", "b"), *deltas("c", "bad", index=1)]
    blocker = Hook("blocker", blocks("bad", 0.5, replacement="No."), blocking=True)
    outs = await read(stage({"x": steps}, blocker, policy=hold), "x", n=2)
    said = [texts(outs, n) for n in range(2)]
    see(said == [["a", "b"], ["No."]], f"of two completions, held, there went out {said}")


SCENES = {
    "CR-15": tells_everything,
    "CR-16": copies_contexts,
    "CR-17": passes_on,
    "CR-18": leaks_nothing,
    "CR-19": says_content_filter,
    "CR-20": replaces_last_chunk,
    "CR-21": holds_streams,
}
