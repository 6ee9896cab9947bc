# SPDX-License-Identifier: Apache-2.0
"""Rules about many requests: isolation, the event loop, and what is left of them."""

from __future__ import annotations

from conformance.io_processor.catalogue.sources import document, interface, vllm
from conformance.rules import SERVED, Rule, changes, ends, leaks, section

_INSTANCE = vllm(
    "entrypoints/pooling/pooling/io_processor.py:PluginWithIOProcessorPlugins",
    "one instance serves every request",
)
_GROWS = ends(
    vllm(
        "plugins/io_processors/__init__.py:get_io_processor",
        "one instance lives as long as the server: what grows with each request ends it",
    )
)
_IDS = vllm(
    "entrypoints/serve/engine/serving.py:BaseServing._base_request_id",
    "the client's X-Request-Id becomes the request id, and two clients may send the same",
)
_UNFINISHED = vllm(
    "entrypoints/pooling/base/serving.py:PoolingBaseServing.__call__",
    "post_process is not called for a request that failed or was cancelled",
)
_ON_LOOP = (
    vllm(
        "entrypoints/pooling/base/serving.py:PoolingBaseServing._preprocessing",
        "parse_data and pre_process run on the event loop",
        "0.27",
    ),
    interface("pre_process_async and post_process_async are awaited on it"),
)

RULES = section(
    "Many requests",
    Rule(
        id="IO-26",
        title="A request does not depend on those before it",
        statement="Requests that are served one after the other each get what they get alone.",
        sources=(
            changes(_INSTANCE),
            vllm(
                "renderers/params.py:TokenizeParams.apply_post_tokenization",
                "cuts and pads the tokens in the plugin's own prompt, as a request asks for it; "
                "the request's cache_salt is written there, too",
            ),
        ),
        hint="Look for attributes that pre_process changes and nobody resets, for caches whose "
        "key leaves something out, such as the cache salt, and for prompts that are kept: vLLM "
        "writes to those that it is given.",
    ),
    Rule(
        id="IO-27",
        title="Requests that are served at the same time do not mix",
        statement=(
            "Requests whose prompts and outputs come in any order between each other's each get "
            "what they get alone."
        ),
        sources=(
            changes(_INSTANCE),
            document("We cannot guarantee outputs are returned in the same order"),
        ),
        hint="Keep nothing of a request on self between pre_process and post_process.",
        evidence=SERVED,
    ),
    Rule(
        id="IO-28",
        title="Requests with equal ids do not mix",
        statement=(
            "Requests that carry the same request id, at the same time or one after the other, "
            "each get their own answer; one that comes while another has its id may be refused."
        ),
        sources=(leaks(_IDS),),
        hint="A request id is the client's and names nothing: take what post_process needs from "
        "the outputs (prompt_token_ids, their number), not from a dictionary by request id.",
        evidence=SERVED,
    ),
    Rule(
        id="IO-29",
        title="Requests without ids do not mix",
        statement=(
            "Offline requests, which have no id, each get what they get alone, also after one that "
            "the engine failed."
        ),
        sources=(
            changes(
                vllm(
                    "entrypoints/pooling/pooling/io_processor.py:PluginWithIOProcessorPlugins",
                    "pre_process(prompt=...) and post_process(outputs)",
                )
            ),
        ),
        hint="None is an id like any other to a dictionary: do not keep state under it.",
    ),
    Rule(
        id="IO-30",
        title="Requests that go wrong harm no other",
        statement=(
            "Beside requests that are refused, that the engine fails, or whose clients disconnect, "
            "and after them, every other request gets what it gets alone."
        ),
        sources=(
            changes(_INSTANCE),
            _UNFINISHED,
        ),
        hint="Nobody tells the plugin that a request is over: state that waits for post_process "
        "stays.",
        evidence=SERVED,
    ),
    Rule(
        id="IO-31",
        title="Hooks may run on several threads at once",
        statement=(
            "post_process on other threads than pre_process, and for two requests at the same "
            "time, gives what it gives alone."
        ),
        sources=(
            changes(
                vllm(
                    "entrypoints/pooling/base/serving.py:PoolingBaseServing",
                    "_postprocessing runs in the renderer's thread pool, beside pre_process of "
                    "others, and of several requests at once with --renderer-num-workers 2",
                    "0.20",
                )
            ),
        ),
        hint="Use local variables, not attributes, threading.local or contextvars.",
        resembles=("torchgeo/terratorch#1190",),
    ),
    Rule(
        id="IO-32",
        title="The event loop is never kept waiting",
        statement=(
            "Nothing that runs on the event loop waits there for more than 100 ms: no sleep, no "
            "synchronous network or file access."
        ),
        sources=_ON_LOOP,
        hint="While the loop waits, no other client is served and /health does not answer: await "
        "instead, or let the client send the data itself.",
    ),
    Rule(
        id="IO-33",
        title="Little work is done on the event loop",
        statement="Nothing that runs on the event loop works there for more than 200 ms at a time.",
        sources=_ON_LOOP,
        hint="Move work from pre_process to post_process, which runs in a thread, or make it "
        "faster.",
    ),
    Rule(
        id="IO-34",
        title="A client that disconnects ends its request",
        statement=(
            "Cancellation goes through the awaited hooks at once: it is not caught, and nothing "
            "goes on behind it."
        ),
        sources=(
            vllm("entrypoints/serve/utils/api_utils.py:with_cancellation", "cancels the handler"),
            interface("pre_process_async and post_process_async are awaited"),
        ),
        hint="Catch Exception, not BaseException or CancelledError; do not shield.",
    ),
    Rule(
        id="IO-35",
        title="Answered requests are forgotten",
        statement=(
            "After ten thousand answered requests the plugin holds nothing of them, and no file; "
            "or nothing that is not gone a day later."
        ),
        sources=(_GROWS,),
        hint="Remove what pre_process kept when post_process has used it.",
    ),
    Rule(
        id="IO-36",
        title="Refused, failed and cancelled requests are forgotten",
        statement=(
            "After ten thousand requests that were refused, or never came to post_process, the "
            "plugin holds no more than a bounded number of them, or those of a bounded time, and "
            "takes new ones."
        ),
        sources=(_UNFINISHED, _GROWS),
        hint="Keep nothing between pre_process and post_process, or bound it: nobody tells the "
        "plugin that a request failed.",
    ),
    Rule(
        id="IO-44",
        title="What is held of requests is bounded by their number",
        statement=(
            "What the plugin holds of earlier requests is bounded however many come in a time: it "
            "does not wait until they are old before it forgets them."
        ),
        sources=(
            vllm(
                "plugins/io_processors/__init__.py:get_io_processor",
                "one instance serves all that come: what it keeps for an hour is as large as the "
                "clients of an hour make it",
            ),
        ),
        hint="Beside the age, bound the number: drop the oldest entry where there are many.",
    ),
)
