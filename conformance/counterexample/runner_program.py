# SPDX-License-Identifier: Apache-2.0
"""The program of a counterexample of ``logits/slot``: what a model runner did, step by step.

The program has a small runner of its own, with the states that slot plugins read, so that it
needs neither this harness nor kernels.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from conformance.counterexample import helpers, verdicts
from conformance.counterexample.source import (
    WIDTH,
    Named,
    Node,
    block,
    call,
    decoded,
    keywords,
    laid_out,
    literal,
)

Event = dict[str, Any]

#: Where the program's runner has what plugins read of the request states.
_STATES = {
    "all_token_ids": "tokens",
    "total_len": "total",
    "prompt_len": "prompt",
    "prefill_len": "prefill",
}


def body(shown: Mapping[str, Any]) -> str:
    """Return the statements of a program: what the runner did, and the verdict."""
    lines: list[str] = []
    *earlier, last = shown["events"]
    expect = shown["expect"]
    for event in earlier:
        lines += _opening(event)
        lines += _statement(event, bare=shown["bare"])
    lines += _opening(last)
    if expect["is"] == "only-read":
        return "\n".join([*lines, *_only_read(expect["what"], last, shown["bare"])]).strip() + "\n"
    if expect["is"] == "parameters":
        return "\n".join([*lines, *_joining(last, bare=shown["bare"])]).strip() + "\n"
    ending = verdicts.filled(expect["is"], _words(shown, last))
    if expect["is"] == "returns":
        lines += verdicts.hanging(last)
        ending = ["faulthandler.cancel_dump_traceback_later()", *ending]
    statement = _statement(last, bare=shown["bare"])
    if expect["is"] == "raises-nothing":
        lines += ["try:", *block(statement), *verdicts.handlers(expect, last)]
    else:
        lines += statement
    return "\n".join([*lines, "", *ending]).strip("\n") + "\n"


def _only_read(what: str, last: Event, bare: bool) -> list[str]:  # noqa: FBT001 - as in a case
    """Return the last call, and a look at what the plugin may only read."""
    owner, _, field = what.partition(".")
    of_states = owner == "req_states"
    name = f"{last['name']}.{_STATES[field]}.gpu" if of_states else what
    if of_states:
        before, statement = [], _statement(last, bare=bare)
    else:
        values = [literal(last[key]) for key in ("slots", "tokens", "positions")]
        before = laid_out(call(f"{last['name']}.context", *values), 0, "ctx = ")
        given = helpers.rows({"rows": last["rows"]})
        applied = laid_out(call(f"{last['name']}.plugin.apply", given, "ctx"), 4)
        statement = ["with torch.inference_mode():", *applied]
    ending = verdicts.filled("only-read", {"name": name, "what": what})
    return [*before, f"kept = copy.deepcopy({name})", *statement, "", *ending]


def _joining(join: Event, *, bare: bool) -> list[str]:
    """Return the call that hands parameters over, and a look at what became of them."""
    made = laid_out(_parameters(join, bare=bare), 0, "params = ")
    handed = laid_out(call(f"{join['name']}.join", *_arguments(join, "params")), 0)
    ending = verdicts.filled("parameters", {})
    return [*made, "kept = copy.deepcopy(params)", *handed, "", *ending]


def _parameters(join: Event, *, bare: bool) -> Node:
    values = helpers.keywords(decoded(join["keywords"]))
    return call("SamplingParams" if bare else "request", *keywords(values))


def _arguments(join: Event, params: Node) -> list[Node]:
    outputs = [literal(join["outputs"])] if join["outputs"] else []
    return [str(join["slot"]), params, literal(join["prompt"]), *outputs]


def _words(shown: Mapping[str, Any], last: Event) -> dict[str, str]:
    expect = shown["expect"]
    words = dict.fromkeys(("got", "expected", "given", "whose", "fails", "holds"), "")
    words["called"] = verdicts.called(last)
    if "row" in expect:
        result = next(event for event in shown["events"] if event.get("to") == "result")
        row = result["rows"][expect["row"]]
        words |= {
            "got": f"result[{expect['row']}]",
            "expected": "expected[0]",
            "given": helpers.rows({"rows": [row]}) + "[0]",
            "whose": f"row {expect['row']} (request {expect['request']})",
            "fails": "is not what it gets alone",
            "holds": "is what it gets alone",
        }
        if expect["is"] == "means":
            words |= verdicts.meant(expect)
        if expect["is"] == "unchanged":
            words |= {"fails": f"was changed, though {expect['why']}", "holds": "is unchanged"}
    if expect["is"] == "shape":
        words["given"] = helpers.rows({"rows": last["rows"]})
    return words


def _opening(event: Event) -> list[str]:
    """Return what stands before a statement: an empty line, and what happens in the step."""
    if event["do"] == "new":
        said = "# The same request alone, in a runner of its own."
        return ["", said] if event["name"].startswith("alone") else [""]
    if "note" not in event:
        return []
    text = f"Step {event['step']}: {event['note']}."
    return ["", *(f"# {line}" for line in textwrap.wrap(text, WIDTH - 2))]


def _statement(event: Event, *, bare: bool) -> list[str]:
    node: Node
    before = f"{event['to']} = " if "to" in event else ""
    if event["do"] == "load":
        return laid_out(call(event["loader"], literal([event["fqcn"]])), 0, "(Plugin,) = ")
    name = event["name"]
    if event["do"] == "new":
        return [f"{name} = Runner(Plugin, VOCABULARY)"]
    if event["do"] == "begin":
        return [f"{name}.begin_step()"]
    if event["do"] == "join":
        node = call(f"{name}.join", *_arguments(event, _parameters(event, bare=bare)))
    elif event["do"] == "process":
        node = call(
            f"{name}.apply",
            helpers.rows({"rows": event["rows"]}),
            Named("slots=", literal(event["slots"])),
            Named("tokens=", literal(event["tokens"])),
            Named("positions=", literal(event["positions"])),
            *([Named("bounds=", literal(event["bounds"]))] if "bounds" in event else []),
        )
        if "sampled" in event and "to" not in event:
            node = call(f"{name}.sample", node)
    else:
        tokens = ", ".join(map(str, event["tokens"]))
        return [f"{name}.append({event['slot']}, {tokens})"]
    return laid_out(node, 0, before)
