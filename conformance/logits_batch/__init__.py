# SPDX-License-Identifier: Apache-2.0
"""``logits/batch``: the V1 model runner's logits processors, driven by ``BatchUpdate``."""

from conformance.logits_batch import host_rules
from conformance.logits_batch.catalogue import RULES
from conformance.rules import Generation

generations = (
    Generation(
        interface="logits-processor",
        name="logits/batch",
        title="Batch logits processor (V1 model runner)",
        loading_rule="LB-01",
        survival_rule="LB-24",
        rules=RULES,
        suite="conformance.logits_batch.suite",
        host_rules=host_rules.RULES,
    ),
)
