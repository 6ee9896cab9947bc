# SPDX-License-Identifier: Apache-2.0
"""All checks of parsers, and the trial that makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from conformance.checking import collected
from conformance.parser import answers, calls, endings, faults
from conformance.parser.bench import TOOL
from conformance.parser.trial import Given, ReasoningTrial, ToolTrial, Trial

if TYPE_CHECKING:
    from collections.abc import Mapping

    from conformance.settings import Budget

CHECKS = collected(answers, calls, endings, faults)
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
) -> Trial:
    """Return the trial of a parser in the simulator.

    Raises:
        UsageError: the profile is wrong.

    """
    kind = ToolTrial if role == TOOL else ReasoningTrial
    return kind(
        cls=cls,
        role=role,
        given=Given.read(section, origin, role),
        budget=budget,
        seed=seed,
        checks=TOOL_CHECKS if role == TOOL else REASONING_CHECKS,
    )
