# SPDX-License-Identifier: Apache-2.0
"""What a check found of a plugin."""

from __future__ import annotations

from typing import Any

import attrs

from conformance.verdict import Verdict


@attrs.frozen
class Finding:
    """What a check found: the verdict, what it rests on, and a sentence."""

    verdict: Verdict
    examples: int = 0
    acted: int = 0
    message: str | None = None
    #: For a failure without a history: what ``demonstrations`` needs to show it again.
    case: dict[str, Any] | None = None


def passed(examples: int, acted: int) -> Finding:
    """Return a pass, or ``not-verified`` where the plugin did nothing in any example."""
    if not acted:
        return Finding(
            Verdict.NOT_VERIFIED, examples, 0, f"the plugin did nothing in {examples} examples"
        )
    return Finding(Verdict.PASS, examples, acted)


def failed(
    message: str,
    examples: int = 1,
    acted: int | None = None,
    *,
    case: dict[str, Any] | None = None,
) -> Finding:
    """Return a failure."""
    acted = examples if acted is None else acted
    return Finding(Verdict.FAIL, examples, acted, message, case)
