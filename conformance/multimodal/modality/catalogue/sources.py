# SPDX-License-Identifier: Apache-2.0
"""Where the rules of modality plugins come from."""

from __future__ import annotations

from conformance.rules import Source


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
