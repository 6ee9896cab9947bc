# SPDX-License-Identifier: Apache-2.0
"""Where rules of ``logits/batch`` come from, and the evidence that can show them."""

from __future__ import annotations

from conformance.rules import Evidence, Source, changes, ends

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


RAISES = ends(
    vllm(
        "v1/engine/core.py:EngineCoreProc.run_engine_core",
        "an exception in the model runner ends the engine and every request in it",
    )
)
STOPS = ends(
    vllm(
        "v1/engine/core.py:EngineCoreProc.run_busy_loop",
        "one loop computes all requests: a call that does not return stops them, an exit ends them",
    )
)
RANKS = changes(
    vllm(
        "v1/core/block_pool.py:BlockPool.cache_full_blocks",
        "keys and values are shared by the tokens that one rank reports: what another rank "
        "computed from other tokens goes to every request that begins alike",
    )
)

#: Where one of vLLM's authors counts both among the faults of the interface, and of its host.
EDGE_CASES = Source(
    "vllm-project/vllm#29045, Custom logits processor edge-cases",
    "partial prefills ... preemptions: a Logits Processor API bug",
)
