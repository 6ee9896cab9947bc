# SPDX-License-Identifier: Apache-2.0
"""Where the rules of multi-modal processors come from."""

from __future__ import annotations

from conformance.rules import Evidence, Source, ends

ALL = (Evidence.SIMULATOR, Evidence.OFFLINE, Evidence.SERVER)
OFFLINE = (Evidence.SIMULATOR, Evidence.OFFLINE)
SERVER = (Evidence.SIMULATOR, Evidence.SERVER)


def processing(symbol: str, says: str, since: str | None = None) -> Source:
    """Name a symbol of what processors derive from."""
    return Source(f"vllm/multimodal/processing/{symbol}", says, since)


def vllm(symbol: str, says: str, since: str | None = None) -> Source:
    """Name another symbol of vLLM."""
    return Source(f"vllm/{symbol}", says, since)


def article(says: str) -> Source:
    """Name a sentence of the article on multi-modal internals."""
    return Source("vLLM multi-modal internals", says)


COUNTS = article("placeholder tokens must exactly match embeddings")
MERGE = vllm(
    "model_executor/models/utils.py:_merge_multimodal_embeddings",
    "inputs_embeds[is_multimodal] = mm_embeds_flat; another number raises ValueError, but for one "
    "row, which is copied to every placeholder",
    "0.20",
)
GATHER = vllm(
    "v1/worker/gpu_model_runner.py:GPUModelRunner._gather_mm_embeddings",
    "encoder_output[start:end] by the placeholder range: rows beyond it are dropped",
)
CACHED = processing(
    "processor.py:BaseMultiModalProcessor._cached_apply_hf_processor",
    "only items that are missing from the cache are processed",
)
EMBED = vllm(
    "model_executor/models/interfaces.py:SupportsMultiModal.embed_multimodal",
    "The returned multimodal embeddings must be in the same order as the appearances of their "
    "corresponding multimodal data item in the input prompt",
    "0.11",
)
SUPPORTED = processing(
    "context.py:BaseProcessingInfo.get_supported_mm_limits",
    "Return the maximum supported number of items for each modality",
)
RAISES = ends(
    vllm(
        "v1/engine/core.py:EngineCoreProc.run_engine_core",
        "what raises in the model runner, such as rows that do not fit, ends the engine",
    )
)
