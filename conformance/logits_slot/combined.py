# SPDX-License-Identifier: Apache-2.0
"""LS-36 and LS-38: requests that ask for more than the plugin, in Model Runner V2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conformance.logits import combinations

if TYPE_CHECKING:
    from conformance.findings import Finding
    from conformance.logits.trial import Trial


def harms_nothing(trial: Trial) -> Finding:
    """LS-36: whatever else a client asks for, others get what they get without it."""
    return combinations.judge(trial, "LS-36", harms=True)


def leaves_a_token(trial: Trial) -> Finding:
    """LS-38: whatever else a client asks for, a token is left for its own request."""
    return combinations.judge(trial, "LS-36", harms=False)
