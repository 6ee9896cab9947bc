# SPDX-License-Identifier: Apache-2.0
"""Where rules of ``logits/batch`` come from, and the evidence that can show them."""

from __future__ import annotations

from conformance.logits import rules
from conformance.rules import Evidence, Source

#: vLLM's own documentation, ``docs/features/custom_logitsprocs.md``.
DOCUMENT = "Custom Logits Processors"

#: First release that documents the interface.
SINCE = "0.10.2"

SIMULATOR, OFFLINE, SERVER = Evidence
ENGINE = (SIMULATOR, OFFLINE)
ALL = (SIMULATOR, OFFLINE, SERVER)


def document(says: str) -> Source:
    """Return a sentence of the document as a source."""
    return Source(DOCUMENT, says, SINCE)


def vllm(symbol: str, says: str, since: str = SINCE) -> Source:
    """Return a symbol of vLLM, with its path inside the package, as a source."""
    return Source(symbol, says, since)


RAISES = rules.raises(SINCE)
STOPS = rules.stops(SINCE)
RANKS = rules.ranks(SINCE)

#: Where one of vLLM's authors counts both among the faults of the interface, and of its host.
EDGE_CASES = Source(
    "vllm-project/vllm#29045, Custom logits processor edge-cases",
    "partial prefills ... preemptions: a Logits Processor API bug",
)
