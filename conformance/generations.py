# SPDX-License-Identifier: Apache-2.0
"""The generations that are installed: those of this project, and those that others register."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from conformance.interface import Field, Generation
from conformance.rules import Rule, nearest
from conformance.settings import UsageError

#: The entry points of this group name modules that have ``generations``.
GROUP = "vllm_conformance.suites"


@cache
def all_generations() -> tuple[Generation, ...]:
    """Return every generation, in the order of lists; imports neither vLLM nor torch.

    Raises:
        UsageError: a registered suite cannot be loaded, or two have the same name.

    """
    found: dict[str, Generation] = {}
    # sys.path may have the metadata of a distribution twice; all of it is read each time.
    entries = {entry.value: entry for entry in entry_points(group=GROUP)}
    for value, entry in sorted(entries.items()):
        for generation in _registered(entry):
            if generation.name in found:
                raise UsageError(f"two suites are registered for {generation.name} ({value}).")
            found[generation.name] = generation
    if not found:
        raise UsageError(
            f"no suite is registered under {GROUP}: install vllm-plugin-conformance again."
        )
    return tuple(sorted(found.values(), key=lambda each: (each.order, each.name)))


def early_modules() -> tuple[str, ...]:
    """Return what most trials import; what is wrong with a suite is said where it is asked for."""
    try:
        return tuple(module for each in all_generations() for module in each.early)
    except UsageError:
        return ()


def _registered(entry: EntryPoint) -> tuple[Generation, ...]:
    """Return the generations that an entry point names."""
    try:
        generations = tuple(entry.load().generations)
    except Exception as error:
        raise UsageError(
            f"the suite {entry.name!r} of {GROUP} cannot be loaded ({entry.value}): "
            f"{type(error).__name__}: {error}."
        ) from error
    if strange := [each for each in generations if not isinstance(each, Generation)]:
        raise UsageError(
            f"the suite {entry.name!r} of {GROUP} has {strange[0]!r} among its generations, "
            "which is no conformance.interface.Generation."
        )
    return generations


def named(name: str) -> Generation:
    """Return the generation with this name, for example ``logits/batch``.

    Raises:
        LookupError: no installed suite has it.

    """
    return {generation.name: generation for generation in all_generations()}[name]


def find_rule(rule_id: str) -> tuple[Generation, Rule]:
    """Return a rule and its generation, the first of those that share it.

    Raises:
        UsageError: no generation has a rule with this id.

    """
    latter_first = reversed(all_generations())
    known = {rule.id: (g, rule) for g in latter_first for rule in (*g.rules, *g.host_rules)}
    asked = rule_id.upper()
    if asked not in known:
        likely = re.sub(r"^([A-Z]+)-?(\d)$", r"\1-0\2", asked)  # LB-5, which is like LB-45 as well
        # Two ids share a hyphen and a digit easily.
        advice = nearest(likely, known, likeness=0.7) or " `vllm-conformance rules` lists all."
        raise UsageError(f"there is no rule {rule_id!r}.{advice}")
    return known[asked]


@cache
def sections() -> Mapping[str, Mapping[str, Field]]:
    """Return the sections that a profile may have, one for each interface, and their keys."""
    found: dict[str, dict[str, Field]] = {}
    for generation in all_generations():
        found.setdefault(generation.interface, {}).update(generation.fields)
    return found
