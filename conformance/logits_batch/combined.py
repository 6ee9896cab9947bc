# SPDX-License-Identifier: Apache-2.0
"""LB-39 and LB-41: requests that ask for more than the plugin, in the V1 model runner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conformance.logits import combinations

if TYPE_CHECKING:
    from conformance.findings import Finding
    from conformance.logits.trial import Trial


def harms_nothing(trial: Trial) -> Finding:
    """LB-39: whatever else a client asks for, others get what they get without it."""
    return combinations.judge(trial, "LB-39", harms=True)


def leaves_a_token(trial: Trial) -> Finding:
    """LB-41: whatever else a client asks for, a token is left for its own request."""
    return combinations.judge(trial, "LB-39", harms=False)
