# SPDX-License-Identifier: Apache-2.0
"""All checks of parsers, and the trial that makes them."""

import inspect
from contextlib import suppress
from typing import Any

import attrs

from conformance.checking import collected
from conformance.parser import (
    adjusting,
    answers,
    calls,
    cost,
    endings,
    faults,
    handover,
    memory,
    prompts,
    schemas,
)
from conformance.parser.partners import partner
from conformance.parser.roles import ROLES, TOOL, other
from conformance.parser.trial import ReasoningTrial, ToolTrial, Trial
from conformance.parser.wanted import Wanted
from conformance.plugin import expectation, profile
from conformance.settings import Budget

CHECKS = collected(
    adjusting, answers, calls, cost, endings, faults, handover, memory, prompts, schemas
)

#: What of a profile is the partner's as well.
_SHARED = ("special_tokens", "skipped_tokens", "tokenizer", "tools", "chat_template_kwargs")

#: What of the partner's own says how its model writes.
_WRITES = ("format", "serialise", "chat_template", "special_tokens")


def trial(cls: type[Any], wanted: Wanted) -> Trial:
    """Return the trial of a parser in the simulator.

    Raises:
        UsageError: the profile is wrong.

    """
    made = _trial(cls, wanted)
    if (found := partner(cls, wanted)) is not None:
        section = {key: wanted.section[key] for key in _SHARED if key in wanted.section}
        section |= _own(found, cls, wanted)
        role = other(wanted.role)
        quick = attrs.evolve(wanted, role=role, section=section, budget=Budget.QUICK)
        made.partner = _trial(found, quick)
    return made


def _own(found: type[Any], cls: type[Any], wanted: Wanted) -> dict[str, Any]:
    """Return what the profile beside a partner says of it; none where both have one profile."""
    with suppress(TypeError, OSError):  # it has no source
        source = inspect.getsourcefile(found)
        mine = profile.find(source) if source != inspect.getsourcefile(cls) else None
        if mine is not None and mine.origin != wanted.origin:
            section = mine.of_class(found.__qualname__).section("parser")
            section = {key: section[key] for key in _WRITES if key in section}
            return {**expectation.located(section, mine.folder, mine.origin)}
    return {}


def _trial(cls: type[Any], wanted: Wanted) -> Trial:
    kind = ToolTrial if wanted.role == TOOL else ReasoningTrial
    prefix = ROLES[wanted.role].prefix
    checks = {rule: check for rule, check in CHECKS.items() if rule.startswith(prefix)}
    return kind(cls=cls, wanted=wanted, checks=checks)
