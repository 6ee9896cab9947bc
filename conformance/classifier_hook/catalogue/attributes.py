# SPDX-License-Identifier: Apache-2.0
"""Rules about loading a hook and what it says of itself."""

from __future__ import annotations

from conformance.classifier_hook.catalogue.sources import rfc, runtime
from conformance.rules import EVERYWHERE, Rule, section, sentence

_CHECKED = "registry.py:checked"

RULES = section(
    "Registration",
    Rule(
        id="CH-01",
        title="The hook can be made and registered",
        statement=(
            "The target imports, is a class, can be made with the arguments of the profile or with "
            "none, before any event loop runs, and an engine and a server take it."
        ),
        sources=(
            rfc("engine.register_external_classifier_hook(hook)"),
            runtime("configuration.py", "hooks are made when the engine is, outside its loop"),
            sentence(
                rfc(
                    "Registration is programmatic ... and is meant to be invoked by a "
                    "vllm.general_plugins entry-point"
                )
            ),
        ),
        hint="Make locks, clients and sessions in the first call of score, not in the constructor.",
        evidence=EVERYWHERE,
    ),
    Rule(
        id="CH-02",
        title="name is a text that is not empty",
        statement="name is a non-empty str, the same for every instance that is made alike.",
        sources=(
            rfc('external_scores"][hook.name]'),
            runtime(_CHECKED, "`name` must be a non-empty str"),
            sentence(rfc("name: str")),
        ),
        hint="Set name on the class, or from an argument of the constructor.",
    ),
    Rule(
        id="CH-03",
        title="blocking is True or False",
        statement="blocking is a bool: 1, 'yes' and None are refused at registration.",
        sources=(
            sentence(rfc("True = decision; False = annotation only")),
            runtime(_CHECKED, "`blocking` must be True or False"),
        ),
        hint="Write blocking = True or blocking = False.",
    ),
    Rule(
        id="CH-04",
        title="timeout_ms is a whole number of milliseconds, one or more",
        statement="timeout_ms is an int from 1 to the milliseconds of a day.",
        sources=(
            sentence(rfc("timeout_ms: int ... per-call timeout")),
            runtime(_CHECKED, "`timeout_ms` must be an int >= 1"),
        ),
        hint="Give milliseconds, not seconds: timeout_ms = 200.",
    ),
    Rule(
        id="CH-05",
        title="score takes the context and is awaited",
        statement=(
            "score takes the context alone and returns something to await: it is defined with "
            "async def, or returns an awaitable as a decorator of such a function does."
        ),
        sources=(
            sentence(rfc("async def score(self, ctx: ScoringContext) -> dict[str, Any]")),
            runtime("dispatch.py:asked", "`score` must return an awaitable"),
        ),
        hint="Write async def score(self, ctx), and return the scores once: do not yield them.",
    ),
    Rule(
        id="CH-06",
        title="on_error, where it is given, is 'block' or 'allow'",
        statement="on_error is 'block', 'allow' or left out.",
        sources=(runtime(_CHECKED, "`on_error` must be 'block' or 'allow'"),),
        hint="Only blocking hooks need it: 'allow' lets answers through when the hook fails.",
    ),
    Rule(
        id="CH-07",
        title="What a hook says of itself does not change",
        statement=(
            "name, blocking, timeout_ms and on_error are the same before and after calls: they are "
            "read once, at registration."
        ),
        sources=(runtime("contract.py:ExternalClassifierHook", "the attributes are read once"),),
        hint="Do not change them in score: nobody reads them again.",
    ),
)
