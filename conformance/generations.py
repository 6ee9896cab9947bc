# SPDX-License-Identifier: Apache-2.0
"""The generations that the harness knows: a new interface is a folder and one line here."""

from __future__ import annotations

import importlib
from functools import cache
from typing import TYPE_CHECKING

from conformance.rules import nearest
from conformance.settings import UsageError

if TYPE_CHECKING:
    from conformance.rules import Generation, Rule

_FOLDERS = (
    "conformance.logits_batch",
    "conformance.logits_slot",
    "conformance.io_processor",
    "conformance.classifier_hook",
    "conformance.multimodal",
)


@cache
def all_generations() -> tuple[Generation, ...]:
    """Return every generation; imports neither vLLM nor torch."""
    return tuple(
        generation
        for folder in _FOLDERS
        for generation in importlib.import_module(folder).generations
    )


def named(name: str) -> Generation:
    """Return the generation with this name, for example ``logits/batch``."""
    return next(generation for generation in all_generations() if generation.name == name)


def find_rule(rule_id: str) -> tuple[Generation, Rule]:
    """Return a rule and its generation, the first of those that share it.

    Raises:
        UsageError: no generation has a rule with this id.

    """
    latter_first = reversed(all_generations())
    known = {rule.id: (g, rule) for g in latter_first for rule in (*g.rules, *g.host_rules)}
    if rule_id.upper() not in known:
        raise UsageError(f"there is no rule {rule_id!r}." + nearest(rule_id.upper(), known))
    return known[rule_id.upper()]
