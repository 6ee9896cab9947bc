# SPDX-License-Identifier: Apache-2.0
"""Where the rules of classifier hooks come from."""

from __future__ import annotations

from conformance.rules import Source, ends


def rfc(says: str) -> Source:
    """Name a sentence of the RFC."""
    return Source("RFC: External post-generation classifier hook API (vLLM issue 43999)", says)


def runtime(where: str, says: str) -> Source:
    """Name a symbol of the runtime, which settles what the RFC leaves open."""
    return Source(f"reference_plugins/classifier_hook/{where}", says)


BLOCKS = rfc(
    "If `blocking` is True and the dict contains the key 'block' with a truthy value, the response "
    "is replaced with `dict['replacement']` or with a default refusal"
)
BOUNDED = rfc(
    "All registered hooks are invoked concurrently ... each bounded by its declared timeout"
)
ASYNC = rfc("Everything is async to allow concurrent classifiers without head-of-line blocking")

_ENGINE = "vllm/v1/engine/async_llm.py:AsyncLLM"

#: Where hooks harm others: they are registered with an engine, and run where it does.
LOOP = ends(Source(_ENGINE, "one event loop, and one process, carries the answers of all clients"))
SHARED = Source(_ENGINE, "one engine serves all clients: its hooks are asked about all of them")
