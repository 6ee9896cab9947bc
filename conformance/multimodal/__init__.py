# SPDX-License-Identifier: Apache-2.0
"""``mm/processor`` and ``mm/modality``: processors of vLLM's registry, plugins of one modality."""

from __future__ import annotations

from conformance.multimodal.modality.catalogue import RULES as MODALITY_RULES
from conformance.multimodal.processor.catalogue import RULES
from conformance.rules import Generation

generations = (
    Generation(
        interface="multimodal",
        name="mm/processor",
        title="Multi-modal processor (MULTIMODAL_REGISTRY)",
        loading_rule="MM-01",
        survival_rule="MM-09",
        rules=RULES,
        suite="conformance.multimodal.processor.suite",
    ),
    Generation(
        interface="multimodal",
        name="mm/modality",
        title="Plugin of one modality (multi-modal internals article)",
        loading_rule="MM-41",
        survival_rule="MM-43",
        rules=MODALITY_RULES,
        suite="conformance.multimodal.modality.suite",
    ),
)
