# SPDX-License-Identifier: Apache-2.0
"""``hook/rfc``: external classifier hooks, scored by the runtime of ``reference_plugins``."""

from __future__ import annotations

from conformance.classifier_hook import host_rules
from conformance.classifier_hook.catalogue import RULES
from conformance.rules import Generation

generations = (
    Generation(
        interface="classifier-hook",
        name="hook/rfc",
        title="External classifier hook (RFC 43999)",
        loading_rule="CH-01",
        survival_rule="CH-29",
        rules=RULES,
        suite="conformance.classifier_hook.suite",
        host_rules=host_rules.RULES,
    ),
)
