# SPDX-License-Identifier: Apache-2.0
"""Shorter parts of what was written down, with names as a person would give them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from conformance.logits_batch.transcript import Call

#: The part of a counterexample that a program is made of.
Shown = dict[str, Any]


def parts(whole: Shown) -> list[Shown]:
    """Return parts of what was written down, the shortest and plainest first."""
    calls = whole["calls"]
    last = max(index for index, entry in enumerate(calls) if _needed(entry))
    calls = calls[: last + 1]
    made = [entry["name"] for entry in calls if entry["do"] == "new"]
    used = {_instance(entry) for entry in calls if _needed(entry)}
    mine = [entry for entry in calls if _instance(entry) in used | {""}]
    # One instance after the other; a stable sort keeps the order within each.
    sorted_ = sorted(mine, key=lambda entry: ["", *made].index(_instance(entry)))
    shorter = [entry for entry in sorted_ if not entry.get("optional")]
    found: list[Shown] = []
    for part in (shorter, sorted_, mine, calls):
        renamed = _renamed(_without_ends(part), whole["expect"])
        if renamed not in found:
            found.append(renamed)
    return found


def _without_ends(part: Sequence[Call]) -> list[Call]:
    """Leave out how lists change after the last call of their instance."""
    kept: list[Call] = []
    called: set[str] = set()
    for entry in reversed(part):
        if entry["do"] not in ("append", "set", "replace"):
            called.add(_instance(entry))
        elif entry["of"] not in called:
            continue
        kept.append(entry)
    return kept[::-1]


def _needed(entry: Call) -> bool:
    return entry["do"] in ("load", "validate") or not entry.keys().isdisjoint(
        ("to", "raised", "hung", "last")
    )


def _instance(entry: Call) -> str:
    """Return the instance that an entry is about; empty where it is about none."""
    return str(entry["name"] if entry["do"] == "new" else entry.get("of", ""))


def _renamed(part: Sequence[Call], expect: Shown) -> Shown:
    """Return calls with names as a person would give them."""
    names = _instance_names(part)
    owned: dict[str, list[str]] = {}
    for entry in part:
        if entry["do"] in ("params", "list"):
            owned.setdefault(entry["of"], []).append(entry["name"])
    for instance, variables in owned.items():
        alone = len({name.partition("@")[0].rpartition("_")[2] for name in variables}) == 1
        mine = names.get(instance, "")
        for name in variables:
            kind, _, letter = name.partition("@")[0].partition("_")
            words = [kind]
            if not alone or mine.startswith("batch"):
                words.append(letter)
            if mine not in ("batch", "plugin"):
                words.append(mine)
            names[name] = "_".join(word for word in words if word)
    return {
        "calls": [_with_names(entry, names) for entry in part],
        "expect": _with_names(expect, names),
    }


def _instance_names(part: Sequence[Call]) -> dict[str, str]:
    made = {entry["name"]: entry["serves"] for entry in part if entry["do"] == "new"}
    if not any("step" in entry for entry in part):
        plain = ("plugin",) if len(made) == 1 else ("first", "second", "third", "fourth")
        numbered = (f"plugin_{number}" for number in itertools.count(len(plain) + 1))
        return dict(zip(made, itertools.chain(plain, numbered), strict=False))
    batches = [name for name, serves in made.items() if serves is None]
    twins = [name for name, serves in made.items() if serves is not None]
    names: dict[str, str] = {}
    for word, group in (("batch", batches), ("alone", twins)):
        single = len(group) == 1
        names |= {old: word if single else f"{word}_{n}" for n, old in enumerate(group, 1)}
    return names


def _with_names(value: object, names: Mapping[str, str]) -> object:
    if isinstance(value, dict):
        return {key: _with_names(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_names(item, names) for item in value]
    return names.get(value, value) if isinstance(value, str) else value
