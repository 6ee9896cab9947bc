# SPDX-License-Identifier: Apache-2.0
"""The rules of ``logits/batch``, as data.

Identifiers are stable: a rule that goes away leaves its number unused.
"""

from __future__ import annotations

from conformance.logits_batch.catalogue import clients, cost, loading, logits, outputs, rows

SECTIONS = (loading, clients, rows, outputs, logits, cost)

RULES = tuple(
    sorted((rule for section in SECTIONS for rule in section.RULES), key=lambda rule: rule.id)
)
