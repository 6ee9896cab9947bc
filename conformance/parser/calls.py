# SPDX-License-Identifier: Apache-2.0
"""Checks of streamed calls and of requests: what a client and a server rely on."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import attrs

from conformance.checking import checks
from conformance.findings import failed, passed
from conformance.parser.answers import acted, differing
from conformance.parser.bench import guarded
from conformance.parser.messages import quoted
from conformance.parser.search import Judged
from conformance.raised import said

if TYPE_CHECKING:
    from conformance.findings import Finding
    from conformance.parser.samples import Sample
    from conformance.parser.trial import Trial


@checks("TP-07", after=("TP-09", "TP-03"))
def arguments(trial: Trial) -> Finding:
    """Look whether the arguments that were streamed are JSON in the end."""

    def judge(sample: Sample) -> Judged:
        bench, answer = trial.for_sample(sample)
        expected = bench.whole(answer)
        found = bench.by_token(answer).said
        for index, call in enumerate(found.calls):
            # A call of which nothing came is one that TP-04 knows to be lost.
            if call.arguments and isinstance(call.value, str):
                told = f"the arguments of call {index} came as {quoted(call.arguments)}"
                told = f"{told}, which is no JSON; whole: {expected}"
                return Judged(acted=True, wrong=told, scene=partial(differing, bench, answer))
        return Judged(acted(trial, found))

    return trial.search(judge)


@checks("TP-08", after=("TP-09", "TP-03"))
def order(trial: Trial) -> Finding:
    """Look whether each streamed call begins with its name, id and index."""

    def judge(sample: Sample) -> Judged:
        bench, answer = trial.for_sample(sample)
        for how, cuts in (("token by token", range(1, len(answer))), ("in 1 delta", ())):
            if stumbles := bench.stream(answer, cuts).stumbles:
                told = f"{quoted(sample.text)} {how}: {stumbles[0]}"
                scene = partial(bench.scene, "begins", answer, cuts)
                return Judged(acted=True, wrong=told, scene=scene)
        return Judged(acted(trial, bench.by_token(answer).said))

    return trial.search(judge)


#: What is the client's to say of a request.
KEPT = ("tools", "tool_choice", "parallel_tool_calls")

#: A tool whose schema is strict, and the choice that names it.
STRICT = {
    "type": "function",
    "function": {
        "name": "get_time",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
NAMED = {"type": "function", "function": {"name": "get_time"}}


@checks("TP-12")
def adjusted(trial: Trial) -> Finding:
    """Look what becomes of requests: with each ``tool_choice``, and without any tools."""
    bench = attrs.evolve(trial.made(), tools=(*trial.made().tools[:1], STRICT))
    asked = [(choice, True) for choice in ("auto", "none", "required", NAMED)]
    for choice, tools in (*asked, ("auto", False)):
        request = bench.request(stream=True, choice=choice, tools=tools, parallel=False)
        sent = {each: _plain(getattr(request, each)) for each in KEPT}
        what = f"a request with tool_choice {sent['tool_choice']!r}"
        what = what if tools else "a request without tools"
        plugin = bench.make(request).tool_parser
        found = guarded("adjust_request", partial(plugin.adjust_request, request))
        if isinstance(found, ValueError) and choice not in ("auto", "none"):
            continue  # the client gets status 400, and knows
        if isinstance(found, Exception):
            return failed(f"adjust_request of {what} raised {said(found)}")
        if not isinstance(found, type(request)):
            return failed(f"adjust_request of {what} returned {type(found).__name__}")
        if (choice == "none" or not tools) and found.structured_outputs is not None:
            return failed(f"adjust_request made {what} obey a grammar")
        for each in KEPT if tools else ():
            if (now := _plain(getattr(found, each))) != sent[each]:
                return failed(f"adjust_request made of {what} one with {each} {now!r}")
    return passed(len(asked) + 1, len(asked) + 1)


def _plain(value: Any) -> Any:  # noqa: ANN401 - a field of a request
    """Return a value as JSON has it, which shares nothing with the request."""
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value)
