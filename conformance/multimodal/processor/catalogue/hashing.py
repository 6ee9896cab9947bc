# SPDX-License-Identifier: Apache-2.0
"""Rules about hashes."""

from __future__ import annotations

from conformance.multimodal.processor.catalogue.sources import processing, vllm
from conformance.rules import Rule, leaks, section

_HASH = processing(
    "inputs.py:ProcessorInputs.get_mm_hashes",
    "the hash covers the model, the item and mm_processor_kwargs",
)
_USED = vllm(
    "v1/core/encoder_cache_manager.py:EncoderCacheManager",
    "rows are shared by all requests whose items have the same hash",
)

RULES = section(
    "Hashes",
    Rule(
        id="MM-40",
        title="Different items have different hashes",
        statement="Two items of which different things are made do not share a hash.",
        sources=(_HASH, leaks(_USED)),
        hint=(
            "Hash everything that is read: shape, dtype, mode and palette, sampling rate, "
            "metadata; or leave it to the base class."
        ),
    ),
    Rule(
        id="MM-37",
        title="Equal items have equal hashes",
        statement="An item has the same hash each time, alone and among others.",
        sources=(_HASH, _USED),
        hint="Look for salts, object ids, clocks and indices in what is hashed.",
    ),
    Rule(
        id="MM-38",
        title="Options are part of the hash",
        statement="mm_processor_kwargs that change what is made of an item change its hash.",
        sources=(_HASH, leaks(_USED)),
        hint="A request with other options gets the cached item of the first one otherwise.",
        resembles=("vllm-project/vllm#49975",),
    ),
)
