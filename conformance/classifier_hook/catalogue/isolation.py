# SPDX-License-Identifier: Apache-2.0
"""Rules about many calls: isolation, and what is left of them."""

from __future__ import annotations

from conformance.classifier_hook.catalogue.sources import ASYNC, BOUNDED, LOOP, SHARED, rfc, runtime
from conformance.rules import EVERYWHERE, SERVED, Rule, changes, leaks, section
from conformance.watching import sharing

_ONE = runtime("registry.py:Registry", "one instance scores every completion of an engine")

RULES = section(
    "Many calls",
    Rule(
        id="CH-30",
        title="A call does not depend on those before it",
        statement="Completions that are scored one after the other each get what they get alone.",
        sources=(_ONE, changes(SHARED)),
        hint="Look for attributes that score changes and nobody resets.",
        evidence=SERVED,
    ),
    Rule(
        id="CH-31",
        title="Calls at the same time do not mix",
        statement="Completions that are scored at the same time each get what they get alone.",
        sources=(_ONE, ASYNC, changes(SHARED)),
        hint="Use local variables: between two awaits of one call all others may run.",
        evidence=EVERYWHERE,
    ),
    Rule(
        id="CH-32",
        title="Equal request ids do not mix",
        statement=(
            "Completions with the same request id and index do not mix, at the same time or one "
            "after the other."
        ),
        sources=(
            runtime("contract.py:ScoringContext.request_id", "need not be unique"),
            leaks(SHARED),
        ),
        hint="A request id is the client's and names nothing: keep no state under it.",
        evidence=SERVED,
    ),
    Rule(
        id="CH-33",
        title="Calls that are cancelled harm no other",
        statement="Beside and after calls that are cancelled, others get what they get alone.",
        sources=(BOUNDED, _ONE, changes(SHARED)),
        hint="A lock or a place in a queue that is held at an await must be given back in finally.",
        evidence=SERVED,
    ),
    Rule(
        id="CH-34",
        title="Scores belong to their call",
        statement="What was returned for one completion is not changed by later calls.",
        sources=(rfc('merged into RequestOutput.metadata["external_scores"]'), changes(SHARED)),
        hint="Return a new dictionary in every call.",
    ),
    Rule(
        id="CH-35",
        title="Scored completions are forgotten",
        statement=(
            "The hook holds no context and runs no thread of a call that is long over, and after "
            "ten thousand calls it does not grow any more, whatever clients send with them."
        ),
        sources=(_ONE, LOOP),
        hint="Look for lists and dictionaries that calls add to, under texts or what clients send; "
        "a cache may have 8,000 entries.",
    ),
    Rule(
        id="CH-36",
        title="A hook may be used on another event loop",
        statement=(
            "A hook that was used on one event loop scores on the next one, as after a restart of "
            "an engine in the same program, also when several calls are made at once."
        ),
        sources=(rfc("engine.register_external_classifier_hook(hook)"),),
        hint="Keep clients and locks by event loop, or make them anew when it is another one.",
    ),
    sharing.leaves_others_alone(
        "CH-40",
        *sharing.FRONT_END,
        rfc("engine.register_external_classifier_hook(hook)"),
        title=sharing.BOTH,
        where=sharing.IN_FRONT_END + sharing.SERVING,
    ),
    sharing.leaves_the_process("CH-42"),
    sharing.same_in_servers("CH-41"),
)
