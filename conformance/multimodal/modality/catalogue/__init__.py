# SPDX-License-Identifier: Apache-2.0
"""The rules of modality plugins, as data.

Identifiers are stable: a rule that goes away leaves its number unused. Those of processors end
at MM-40, but for MM-81.
"""

from __future__ import annotations

from conformance.multimodal.modality.catalogue import inputs, outputs, registration, traffic

SECTIONS = (registration, inputs, outputs, traffic)

RULES = tuple(rule for section in SECTIONS for rule in section.RULES)
