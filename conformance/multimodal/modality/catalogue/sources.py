# SPDX-License-Identifier: Apache-2.0
"""Where the rules of modality plugins come from."""

from __future__ import annotations

from conformance.rules import Evidence, Source, ends

ALL = (Evidence.SIMULATOR, Evidence.OFFLINE, Evidence.SERVER)


def article(says: str) -> Source:
    """Name a sentence of the article."""
    return Source("Multi-Modal Internals: How vLLM Routes Modalities", says)


def library(where: str, says: str) -> Source:
    """Name a symbol of the library, which settles what the article leaves open."""
    return Source(f"reference_plugins/modality/{where}", says)


BEFORE = article("This check happens BEFORE any expensive computation")
PARALLEL = article("runs on CPU, in parallel with other requests' GPU work")
EXACT = article(
    "The number of placeholder tokens must exactly match the number of multi-modal embeddings. "
    "If the counts don't match, crash"
)
ALONE = library(
    "interface.py:MultiModalPlugin.preprocess",
    "the same item gives the same arrays, whatever came before it and whatever comes with it",
)
CLIENT = library(
    "errors.py:InputError", "a request that no model could serve; a client can cause nothing else"
)
HASHED = library(
    "interface.py:Item.content_hash",
    "the hash of all that the client sent and that decides the result",
)
HEADERS = library(
    "interface.py:MultiModalPlugin.parse_input",
    "reads headers; what a header promises is not yet made",
)

#: Where plugins harm others: items are made ready where vLLM makes them ready, and cached as there.
FRONT = Source(
    "vllm/renderers/base.py:BaseRenderer._process_multimodal",
    "one front end makes the items of all requests ready, one after the other",
)
FRONT_END = ends(FRONT)
SHARED = Source(
    "vllm/v1/core/encoder_cache_manager.py:EncoderCacheManager",
    "rows are shared by all requests whose items have the same hash",
)
MEDIA = Source(
    "vllm/multimodal/media/connector.py:MediaConnector._load_file_url",
    "a client reads no file but those that the operator allows",
)
