# SPDX-License-Identifier: Apache-2.0
"""The rules of multi-modal processors, as data.

Identifiers are stable: a rule that goes away leaves its number unused.
"""

from __future__ import annotations

from conformance.multimodal.processor.catalogue import (
    embeddings,
    hashing,
    limits,
    loading,
    placeholders,
    processing,
)

SECTIONS = (loading, placeholders, embeddings, processing, hashing, limits)

RULES = (
    *(rule for section in SECTIONS for rule in section.RULES),
    loading.FITS,
    loading.SURVIVES,
    loading.SHARES,
    loading.CONFIGURED,
)
