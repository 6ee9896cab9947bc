# SPDX-License-Identifier: Apache-2.0
"""What a classifier hook is, what it is told, and what its answers mean.

The names are those of the RFC (vLLM issue 43999); what it leaves open is settled here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

#: What replaces an answer whose blocking hook names no replacement, or fails.
DEFAULT_REFUSAL = "I'm sorry, but I can't provide this answer."

#: The finish reason of a completion that was replaced, in OpenAI's words.
REPLACED = "content_filter"

#: Completions that ended so are not scored: nobody waits for them, or the engine failed.
UNSCORED = frozenset({"abort", "error"})

#: Seconds by which a hook that ignores its cancellation may hold an answer beyond its timeout.
MARGIN = 0.05


class TokenLogprob(NamedTuple):
    """The log probability of one token at one position."""

    logprob: float
    rank: int | None
    decoded_token: str | None


#: Log probabilities of each position, by token id; None where a position has none.
Logprobs = list[dict[int, TokenLogprob] | None]


@dataclass(kw_only=True)
class ScoringContext:
    """One finished completion, as a hook is told of it: what the RFC calls a dict or a list is one.

    Each hook gets a copy of its own, all the way down (`own`): what it changes reaches nobody.
    """

    request_id: str  #: the caller's id, which need not be unique
    prompt: str  #: the text; decoded from the token ids where the caller gave only those
    generated_text: str  #: the whole text, also of a stream
    finish_reason: str
    prompt_token_ids: list[int]
    output_token_ids: list[int]
    #: what the client sent beside vLLM's own fields: ``vllm_xargs``, and fields that vLLM does
    #: not know where the server reads them (`body.RequestFields`)
    extra_fields: dict[str, Any] = field(default_factory=dict)
    #: what the engine and the program know about the request: ``lora``, ``priority``, ...
    request_metadata: dict[str, Any] = field(default_factory=dict)
    index: int = 0  #: which of the ``n`` completions of the request
    stop_reason: int | str | None = None
    logprobs: Logprobs | None = None  #: of the output tokens, where the request asked for them
    cumulative_logprob: float | None = None  #: where the request asked for logprobs
    prompt_logprobs: Logprobs | None = None  #: where the request asked for them


class ExternalClassifierHook(Protocol):
    """A classifier that scores each finished completion.

    The attributes are read once, at registration.
    A blocking hook may also have ``on_error = "allow"``: then its timeouts and failures let
    the answer through; without it they close, and the default refusal replaces the answer.
    """

    name: str  #: unique in its engine
    blocking: bool  #: True: may replace the answer; False: its scores are an annotation
    timeout_ms: int  #: of one call

    async def score(self, ctx: ScoringContext) -> dict[str, Any]:
        """Return scores: a dict with string keys that holds nothing but JSON values.

        A function that is not ``async`` and returns an awaitable, as of a decorator, does as well.

        If the hook is blocking and ``"block"`` is in it with a truthy value, the answer is
        replaced with ``"replacement"``, or with the default refusal where that is no text.
        """
        ...


@dataclass(frozen=True, slots=True)
class Entry:
    """A registered hook, and its attributes as they were at registration."""

    hook: ExternalClassifierHook
    name: str
    blocking: bool
    timeout: float  #: seconds
    closes: bool  #: whether a timeout or a failure replaces the answer


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the hooks say of one completion."""

    scores: Mapping[str, dict[str, Any]]  #: by the names of the hooks
    blocker: str | None = None  #: the hook that replaces the answer
    replacement: str | None = None  #: the text that replaces it, None for the default refusal


def own(context: ScoringContext) -> ScoringContext:
    """Return a context that shares no list, dict or set with *context*."""
    return replace(
        context,
        prompt_token_ids=list(context.prompt_token_ids),
        output_token_ids=list(context.output_token_ids),
        extra_fields=plain(context.extra_fields),
        request_metadata=plain(context.request_metadata),
        logprobs=plain(context.logprobs),
        prompt_logprobs=plain(context.prompt_logprobs),
    )


def plain(value: Any) -> Any:  # noqa: ANN401 - any data, and the same kind of data
    """Return *value* with dicts, lists and sets of its own instead of their like.

    Other objects, and tuples with names, are returned as they are.
    """
    if type(value) in (list, tuple):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return set(value)
    return value
