# SPDX-License-Identifier: Apache-2.0
"""All checks of parsers, and the trial that makes them."""

from collections.abc import Mapping
from typing import Any

from conformance.checking import collected
from conformance.parser import answers, calls, cost, endings, faults, handover
from conformance.parser.bench import TOOL, other
from conformance.parser.partners import partner
from conformance.parser.trial import Given, ReasoningTrial, ToolTrial, Trial
from conformance.settings import Budget

CHECKS = collected(answers, calls, cost, endings, faults, handover)
TOOL_CHECKS = {rule: check for rule, check in CHECKS.items() if rule.startswith("TP")}
REASONING_CHECKS = {rule: check for rule, check in CHECKS.items() if rule.startswith("RP")}


def trial(
    cls: type[Any],
    role: str,
    section: Mapping[str, Any],
    *,
    origin: str | None,
    budget: Budget,
    seed: int,
    folder: str = ".",
) -> Trial:
    """Return the trial of a parser in the simulator; a file of a partner is looked for in *folder*.

    Raises:
        UsageError: the profile is wrong.

    """
    made = _trial(cls, role, Given.read(section, origin, role), budget, seed)
    if (found := partner(cls, section, role, folder)) is not None:
        kept = ("special_tokens", "skipped_tokens", "tools", "chat_template_kwargs")
        shared = {key: section[key] for key in kept if key in section}
        given = Given(section=shared, origin=origin)
        made.partner = _trial(found, other(role), given, Budget.QUICK, seed)
    return made


def _trial(cls: type[Any], role: str, given: Given, budget: Budget, seed: int) -> Trial:
    kind, checks = (ToolTrial, TOOL_CHECKS) if role == TOOL else (ReasoningTrial, REASONING_CHECKS)
    return kind(cls=cls, role=role, given=given, budget=budget, seed=seed, checks=checks)
