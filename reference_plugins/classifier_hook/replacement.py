# SPDX-License-Identifier: Apache-2.0
"""Completions with other content, and requests' outputs with scores.

vLLM's objects are never changed, except that an output is given its metadata: lists of them are
shared with the engine's output processor.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from reference_plugins.classifier_hook.contract import REPLACED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vllm.outputs import CompletionOutput, RequestOutput


def replaced(completion: CompletionOutput, text: str) -> CompletionOutput:
    """Return a finished completion that says *text*, and nothing of what was generated.

    In a stream of deltas it is the last delta: *text* follows what was sent before.
    """
    return _other(completion, text, REPLACED)


def ended(completion: CompletionOutput, finish_reason: str, *, content: bool) -> CompletionOutput:
    """Return a completion that ended without being scored, with or without its content."""
    if not content:
        return _other(completion, "", finish_reason)
    same = copy.copy(completion)
    same.finish_reason = finish_reason
    return same


def part(
    output: RequestOutput, completions: Sequence[CompletionOutput], *, finished: bool
) -> RequestOutput:
    """Return an output that has *completions* in place of its own."""
    some = copy.copy(output)
    some.outputs = list(completions)
    some.finished = finished
    return some


def keep_prompt(final: RequestOutput, first: RequestOutput) -> None:
    """Let an output that goes out alone say of the prompt what the first one would have said."""
    for name in ("prompt_logprobs", "prompt_token_id_logprobs"):
        if getattr(final, name, None) is None:
            setattr(final, name, getattr(first, name, None))


def annotate(output: RequestOutput, scores: Mapping[str, Any]) -> None:
    """Put *scores*, by the names of the hooks, where the RFC has them."""
    # vLLM's own class has no such attribute, and its constructor drops unknown arguments.  Set
    # here it reaches the caller: nothing in vLLM merges outputs behind `generate`, where `add`
    # would keep the metadata of the earlier output.
    metadata = getattr(output, "metadata", None) or {}
    output.metadata = {**metadata, "external_scores": dict(scores)}


def _other(completion: CompletionOutput, text: str, finish_reason: str) -> CompletionOutput:
    logprobs = completion.logprobs
    # Named are the fields that say nothing of what was generated.  All others, also those that a
    # later vLLM adds, go back to their defaults: stop reason, routed experts, sampling mask, ...
    return type(completion)(
        index=completion.index,
        text=text,
        token_ids=[],
        cumulative_logprob=None,
        # None would be a server's error where the request asked for them.  An empty slice is of
        # the same class, and vLLM has two.
        logprobs=None if logprobs is None else logprobs[:0],
        finish_reason=finish_reason,
        lora_request=completion.lora_request,
    )
