# SPDX-License-Identifier: Apache-2.0
"""Where rules of ``logits/slot`` come from, and the evidence that can show them."""

from __future__ import annotations

from conformance.logits import rules
from conformance.rules import Evidence, Source, ends

SIMULATOR, OFFLINE, SERVER = Evidence
ENGINE = (SIMULATOR, OFFLINE)
ALL = (SIMULATOR, OFFLINE, SERVER)
LIVE = (OFFLINE, SERVER)

#: First release whose V2 model runner takes custom logits processors.
SINCE = "0.31.0"

_INTERFACE = "v1/worker/gpu/sample/logits_processor/interface.py"


def interface(symbol: str, says: str) -> Source:
    """Return a docstring or comment of the interface as a source."""
    return Source(f"{_INTERFACE}:{symbol}", says, SINCE)


def vllm(symbol: str, says: str, since: str = SINCE) -> Source:
    """Return a symbol of vLLM, with its path inside the package, as a source."""
    return Source(symbol, says, since)


RAISES = rules.raises(SINCE)
STOPS = rules.stops(SINCE)
RANKS = rules.ranks(SINCE)
GROWS = ends(
    vllm(
        "v1/engine/core.py:EngineCoreProc.run_busy_loop",
        "one process serves all requests: what grows with each of them ends it",
    )
)
