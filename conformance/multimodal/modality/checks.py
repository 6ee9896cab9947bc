# SPDX-License-Identifier: Apache-2.0
"""All checks of plugins of a modality, and the trial that makes them."""

from __future__ import annotations

from conformance.checking import collected
from conformance.multimodal.modality import (
    access,
    hashes,
    inputs,
    limits,
    registration,
    remains,
    tokens,
    traffic,
)
from conformance.multimodal.modality.bench import Bench
from conformance.multimodal.modality.trial import Trial
from conformance.settings import Budget

CHECKS = collected(access, hashes, inputs, limits, registration, remains, tokens, traffic)


def trial(bench: Bench, budget: Budget) -> Trial:
    """Return the trial of a plugin in the simulator."""
    return Trial(bench, budget, checks=CHECKS)
