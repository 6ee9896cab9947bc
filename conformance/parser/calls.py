# SPDX-License-Identifier: Apache-2.0
"""Checks of streamed calls and of requests: what a client and a server rely on."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

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


@checks("TP-12")
def adjusted(trial: Trial) -> Finding:
    """Look what is asked of requests: with tools, without any, and with ``tool_choice`` none."""
    bench = trial.made()
    asked = ("auto", True), ("none", True), ("auto", False)
    for choice, tools in asked:
        request = bench.request(stream=True, choice=choice, tools=tools)
        what = f"a request with tool_choice {choice!r}" if tools else "a request without tools"
        plugin = bench.make(request).tool_parser
        found = guarded("adjust_request", partial(plugin.adjust_request, request))
        if isinstance(found, Exception):
            return failed(f"adjust_request of {what} raised {said(found)}")
        if not isinstance(found, type(request)):
            return failed(f"adjust_request of {what} returned {type(found).__name__}")
        free = choice == "none" or not tools
        if free and found.structured_outputs is not None:
            return failed(f"adjust_request made {what} obey a grammar")
        if tools and found.tool_choice != choice:
            return failed(f"adjust_request made of {what} one with {found.tool_choice!r}")
    return passed(len(asked), len(asked))
