# SPDX-License-Identifier: Apache-2.0
"""Where rules of ``logits/batch`` come from, and the evidence that can show them."""

from __future__ import annotations

from conformance.rules import Evidence, Source

#: vLLM's own documentation, ``docs/features/custom_logitsprocs.md``.
DOCUMENT = "Custom Logits Processors"

SIMULATOR, OFFLINE, SERVER = Evidence
ENGINE = (SIMULATOR, OFFLINE)
ALL = (SIMULATOR, OFFLINE, SERVER)


def document(says: str) -> Source:
    """Return a sentence of the document as a source."""
    return Source(DOCUMENT, says, since="0.10.2")


def vllm(symbol: str, says: str, since: str = "0.10.2") -> Source:
    """Return a symbol of vLLM, with its path inside the package, as a source."""
    return Source(symbol, says, since)
