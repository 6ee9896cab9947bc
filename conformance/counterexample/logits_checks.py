# SPDX-License-Identifier: Apache-2.0
"""The programs of logits processors whose failures no history shows: a player, and literals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conformance.counterexample import helpers
from conformance.counterexample.assembly import loading, played
from conformance.counterexample.source import Named, Node, call, decoded, flat, literal

#: What a program says, and its exit status, where there is no GPU.
NEEDS_GPU, NOTHING_SHOWN = "run this program on a machine with a GPU: a CPU does not show it", 2

#: Rules whose programs take a GPU, and those whose programs start others of their own.
ON_GPU = frozenset(("LB-44", "LS-42"))
FILES_ONLY = ON_GPU | {"LB-33", "LS-25"}

#: The function that plays each rule's failure.
PLAYED = {
    "LB-27": "growth",
    "LB-28": "idle",
    "LB-30": "full",
    "LB-31": "admission",
    "LB-33": "ranks",
    "LB-35": "idle_cost",
    "LB-36": "cost",
    "LB-37": "memory",
    "LB-44": "device",
    "LB-49": "long",
    "LB-50": "wide",
    "LB-51": "later",
    "LS-02": "instances",
    "LS-05": "acts",
    "LS-13": "warm_up",
    "LS-15": "steady",
    "LS-19": "masks",
    "LS-21": "tokens",
    "LS-25": "ranks",
    "LS-26": "growth",
    "LS-27": "many",
    "LS-28": "waits",
    "LS-31": "both",
    "LS-32": "cost",
    "LS-33": "memory",
    "LS-34": "padded",
    "LS-41": "admission",
    "LS-42": "device",
    "LS-46": "long",
    "LS-47": "wide",
    "LS-48": "later",
}

#: Rules whose failures have a program that is the check itself, made small.
SCRIPTED = frozenset((*PLAYED, "LB-40", "LS-37"))

#: Rules about one request, those about requests that opt in, and those about none.
_OF_ONE = frozenset(("LB-40", "LB-50")) | frozenset(
    ("LS-05", "LS-13", "LS-15", "LS-19", "LS-21", "LS-28", "LS-31", "LS-37", "LS-47")
)
_OPTED_IN = frozenset(("LB-36", "LB-37"))
_OF_NONE = frozenset(("LB-28", "LB-35"))

#: What a check says of its failure that the function takes as it is.
_OWN = {
    "admission": ("invalid",),
    "draws": ("draws",),
    "later": ("pauses",),
    "leaves": ("names",),
    "long": ("lengths",),
    "masks": ("masked",),
    "tokens": ("masked",),
    "waits": ("waits",),
    "warm_up": ("warm",),
}

#: Steps for which requests are served, where no finding says how many.
_STEPS = {"LB-44": 6, "LS-02": 8, "LS-05": 10, "LS-13": 8, "LS-34": 8, "LS-42": 6}
_USUAL = 6

#: A full batch, as in ``logits_slot.checks``.
_MANY = 1_100


def program(case: Mapping[str, Any]) -> str:
    """Return the source of a program that plays the failure of a check.

    Args:
        case: a case document whose counterexample has in ``expect`` what the check said of its
            failure, and what requests and logits are made of.

    """
    shown = case["counterexample"]
    slots = case["generation"] == "logits/slot"
    host = "SlotHost" if slots else "BatchHost"
    vocabulary, tokens, seed = helpers.table(shown)
    source = helpers.configured(_player(slots=slots), shown)
    rule, expect = case["rule"], shown["expect"]
    name = "draws" if rule == "LS-15" and expect.get("draws") else PLAYED.get(rule, "leaves")
    name = "past" if "past" in expect else name
    if name == "leaves" and "served" not in expect:
        size = literal(vocabulary)
        if slots:
            new = Named("lambda plugin: ", call("Runner", "plugin", size))
            return loading(case, source, new, uses=("Runner",))
        return loading(case, source, call("as_engine", size), uses=("as_engine",))
    made: list[Node] = [
        "Plugin",
        call("Logits", literal(vocabulary), literal(tokens), Named("seed=", literal(seed))),
        literal(shown["logits"].get("prompt", [tokens[0], tokens[-1]])),
    ]
    uses = [host, "Logits"]
    if not shown["bare"]:
        made.append("request")
        uses.append("request")
    if said := shown["logits"].get("said"):
        made.append(Named("first=", literal(said)))
    given = [Named(f"{key}=", node) for key, node in _arguments(rule, name, shown).items()]
    arguments: list[Node] = [call(host, *made), *given]
    return played(case, source, f"check_{name}", arguments, uses=uses)


def _player(*, slots: bool) -> str:
    names = ("clock", "logits_host", "work", "logits", "logits_batch")
    return helpers.player(*names, *(("logits_runner", "logits_slot") if slots else ()))


def _arguments(rule: str, name: str, shown: Mapping[str, Any]) -> dict[str, Node]:
    """Return what is handed to the function that plays a failure, but for the host."""
    expect = shown["expect"]
    values = {tuple(entry["choice"]): decoded(entry["keywords"]) for entry in shown["parameters"]}
    found = _requests(rule, values, expect)
    if rule in _OF_ONE or rule in _STEPS:
        behind = len(shown["logits"].get("said", ()))
        found["steps"] = literal(expect.get("steps") or behind + _STEPS.get(rule, _USUAL))
    if rule == "LS-27":
        found["many"] = literal(_MANY)
    if "varied" in expect:
        found["places"] = literal(expect["varied"])
    for key in _OWN.get(name, ()):
        value = decoded(expect[key])
        found[key] = _masked(*value) if key == "masked" else literal(value)
    return found


def _masked(tokens: list[int], *span: int) -> Node:
    """Return tokens, and those of a range, which a grammar has masked."""
    every = f"*range({', '.join(map(str, span))})"
    return f"[*{flat(literal(tokens))}, {every}]" if span else literal(tokens)


def _requests(
    rule: str, values: Mapping[tuple[Any, ...], Any], expect: Mapping[str, Any]
) -> dict[str, Node]:
    """Return the requests that a failure is played with."""
    on, off = ([v for choice, v in values.items() if choice[0] == kind] for kind in ("on", "off"))
    if past := expect.get("past"):
        return {"requests": literal([decoded(keywords) for keywords in past])}
    if rule in _OF_ONE or PLAYED.get(rule) == "long":
        return {"request": literal(values[tuple(expect["choice"])])}
    if rule in _OF_NONE:
        return {"on": literal(on[0]), "off": literal(off)} if rule == "LB-28" else {}
    if rule in _OPTED_IN:
        return {"requests": literal(on)}
    wanted = (tuple(choice) for choice in expect.get("choices", values))
    return {"requests": literal([values[choice] for choice in wanted])}
