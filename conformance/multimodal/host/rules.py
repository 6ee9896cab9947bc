# SPDX-License-Identifier: Apache-2.0
"""What an engine owes multi-modal requests, as data: rules about vLLM's scheduler and its caches.

They are judged in :mod:`conformance.multimodal.host.scenes`.
Identifiers are stable: a rule that goes away leaves its number unused.
"""

from __future__ import annotations

from conformance.hosts import Host, rule
from conformance.rules import Evidence, Source, changes, ends, leaks, sentence

ENCODING = "When the engine encodes"
ROOM = "Room for what is encoded"
PREFIXES = "Prefixes with items"
INTERRUPTIONS = "Requests that are interrupted"

#: What the orders of a live engine show as well.
_LIVE = (Evidence.SIMULATOR, Evidence.OFFLINE)


def _vllm(symbol: str, says: str) -> Source:
    return Source(f"vllm/{symbol}", says, "0.32")


def _article(says: str) -> Source:
    return sentence(Source("vLLM multi-modal internals", says))


RULES = (
    rule(
        "ME-01",
        ENCODING,
        "What a step computes has its rows",
        "Whatever the length of a step, each placeholder that it computes belongs to an item that "
        "is encoded in that step or still cached, and the request is answered as in one step.",
        "Look at the window of positions by which items are chosen.",
        ends(
            _vllm(
                "v1/worker/gpu_model_runner.py:GPUModelRunner._gather_mm_embeddings",
                "without an item's rows the runner raises, and the engine ends",
            )
        ),
        evidence=_LIVE,
    ),
    rule(
        "ME-02",
        ENCODING,
        "An item is encoded once while it is cached",
        "An item that is cached is not encoded again, for whichever request, nor twice in a step.",
        "Ask the cache by the identifier, before anything is allocated.",
        _article("Vision encoder runs once"),
        _vllm(
            "v1/core/encoder_cache_manager.py:EncoderCacheManager",
            "share embeddings of same multimodal data item between different requests",
        ),
        evidence=_LIVE,
    ),
    rule(
        "ME-03",
        ENCODING,
        "Items are encoded in prefill and never in decode",
        "A step encodes an item only where it computes some of its placeholders.",
        "Look at the window of positions by which items are chosen.",
        _article("Vision/audio encoding only happens during prefill"),
        evidence=_LIVE,
    ),
    rule(
        "ME-04",
        ROOM,
        "An item that does not fit waits, whole",
        "A step encodes no more rows than its budget, and no more are held than there is room for; "
        "of a request whose item does not fit, only what stands before the item is computed.",
        "Count what the step has chosen already, in rows and not in tokens.",
        sentence(
            _vllm(
                "v1/core/sched/scheduler.py:Scheduler._try_schedule_encoder_inputs",
                "If an encoder input cannot be scheduled due to cache or budget limitations, the "
                "method adjusts num_new_tokens to schedule only the decoder tokens up to just "
                "before the unschedulable encoder input",
            )
        ),
        evidence=_LIVE,
    ),
    rule(
        "ME-05",
        ROOM,
        "What waits is served",
        "A request whose items fit by themselves is answered, whatever others are there and "
        "however little room they leave.",
        "An item as large as the budget fits; what nobody needs makes room.",
        ends(
            _vllm(
                "v1/core/sched/scheduler.py:Scheduler.schedule",
                "a request that can never be scheduled keeps those behind it waiting",
            )
        ),
    ),
    rule(
        "ME-06",
        ROOM,
        "Rows stay for as long as they are needed",
        "Nothing leaves the cache while a request has placeholders of it to compute.",
        "Count references by request, and give one back with its last placeholder.",
        ends(
            _vllm(
                "v1/core/encoder_cache_manager.py:EncoderCacheManager",
                "Oldest cached embeddings with no request referenced will be first evicted",
            )
        ),
    ),
    rule(
        "ME-11",
        ROOM,
        "The profile run reserves what a step may need",
        "No step encodes more of the largest items than the profile run has encoded at once, and "
        "every item that the front end lets in has a step that is large enough.",
        "Both sides ask MultiModalBudget; neither rounds by itself.",
        ends(
            _vllm(
                "multimodal/encoder_budget.py:MultiModalBudget.get_dummy_encoder_profile_inputs",
                "what a step takes beyond the profile run is memory that the KV cache has",
            )
        ),
    ),
    rule(
        "ME-07",
        PREFIXES,
        "A prefix with the same item is used again",
        "Where a prompt begins like an earlier one, items included, those positions are neither "
        "computed nor encoded again.",
        "Hash blocks with the identifiers of their items, and with nothing of the request.",
        _vllm(
            "v1/core/kv_cache_utils.py:generate_block_hash_extra_keys",
            "extra keys of a block: identifiers of its items",
        ),
        evidence=_LIVE,
    ),
    rule(
        "ME-08",
        PREFIXES,
        "A prefix with another item is not used",
        "A prompt of the same tokens whose item is another one, or begins elsewhere, computes its "
        "own positions from the first that differs on.",
        "The tokens of all items are equal: a block's hash needs identifier and offset.",
        leaks(
            _vllm(
                "v1/core/kv_cache_utils.py:generate_block_hash_extra_keys",
                "without them a client is answered about another client's picture",
            )
        ),
        evidence=_LIVE,
    ),
    rule(
        "ME-09",
        INTERRUPTIONS,
        "A preempted request is answered as if it had not been",
        "Requests that lose their blocks and get others encode again what is no longer cached, and "
        "get the tokens that they get by themselves.",
        "Begin again at the first position that is not in the blocks any more.",
        changes(
            _vllm(
                "v1/core/sched/scheduler.py:Scheduler._preempt_request",
                "blocks are given to others, and the request begins again",
            )
        ),
        evidence=_LIVE,
    ),
    rule(
        "ME-10",
        INTERRUPTIONS,
        "An aborted request leaves its room",
        "When a request is aborted, waiting or in any step of its prefill, its items can be "
        "evicted, and requests that need all the room are served.",
        "Give references back in every way in which a request can end.",
        ends(
            _vllm(
                "v1/core/encoder_cache_manager.py:EncoderCacheManager.free",
                "Typically called when a request is finished, cancelled, or aborted",
            )
        ),
        evidence=_LIVE,
    ),
)

HOST = Host("mm/processor", RULES, "conformance.multimodal.host.check:judge")
