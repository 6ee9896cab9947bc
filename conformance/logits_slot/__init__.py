# SPDX-License-Identifier: Apache-2.0
"""``logits/slot``: the logits processors of Model Runner V2, whose state is kept by slot."""

from __future__ import annotations

from conformance.logits_slot.catalogue import RULES
from conformance.rules import Generation

generations = (
    Generation(
        interface="logits-processor",
        name="logits/slot",
        title="Slot logits processor (Model Runner V2)",
        loading_rule="LS-01",
        survival_rule="LS-24",
        rules=RULES,
        suite="conformance.logits_slot.suite",
    ),
)
