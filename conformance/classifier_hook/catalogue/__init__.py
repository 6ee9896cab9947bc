# SPDX-License-Identifier: Apache-2.0
"""The rules of classifier hooks, as data.

Identifiers are stable: a rule that goes away leaves its number unused.
"""

from __future__ import annotations

from conformance.classifier_hook.catalogue import attributes, isolation, scores, time

SECTIONS = (attributes, scores, time, isolation)

RULES = tuple(rule for section in SECTIONS for rule in section.RULES)
