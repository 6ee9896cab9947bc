# SPDX-License-Identifier: Apache-2.0
"""What a client may ask for besides the plugin, and what vLLM makes of it before a processor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from typing import Any

import attrs
import torch
from vllm.sampling_params import SamplingParams

from conformance.inputs.history import Choice, label
from conformance.logits.configuration import MAX_MODEL_LEN
from conformance.logits.requests import Stock

#: Characters of a value that is shown whole, and of one that is too long for that.
_LONG, _SHOWN = 40, 24


@attrs.frozen
class Asked:
    """One thing that a client may ask for."""

    keywords: Mapping[str, Any]  #: of ``SamplingParams``
    why: str  #: what it may bring a plugin to
    prompt: tuple[int, ...] | None = None

    @property
    def said(self) -> str:
        """What is asked, as messages say it."""
        if self.prompt is not None:
            return f"a prompt of {len(self.prompt)} tokens"
        return ", ".join(f"{key}={_short(value)}" for key, value in self.keywords.items())


def _short(value: object) -> str:
    text = repr(value)
    if len(text) <= _LONG or not isinstance(value, Sized):
        return text
    return f"{text[:_SHOWN]}..., {len(value)} of them]"


def everything(bench: Stock) -> list[Asked]:
    """Return all that may be asked for, of what this release of vLLM knows.

    What never reaches a processor is missing, and tests see whether that is still so:

    - Priority is the scheduler's alone: a request waits or is preempted, as in every history.
    - A prompt is truncated before the engine has it, and then it is one like any other.
    - A beam search makes requests of its own, without the client's ``extra_args``.
      What they ask for is in the table, since a plugin may be on for everybody.
    - Embeddings: the engine has no token ids of such a prompt, and a history cannot show it here.
      LB-25 does, and a real engine has them beside a neighbour; see ``company.py``.
    """
    named = bench.waits.tokens if bench.waits.declared else ()
    first, second, third, *_ = dict.fromkeys((*named, *bench.tokens))
    # With min_tokens a request forbids its own stop tokens: none of them may be all that is left.
    ends = {t for named in bench.parameters.values() for t in named.get("stop_token_ids") or ()}
    other = bench.vocabulary - 2
    word = {"bad_words": ["word"]}
    table = [
        Asked({"max_tokens": 1}, "the first token is the last"),
        Asked({"temperature": 0.0}, "greedy: no division by it"),
        Asked({"temperature": 2.0}, "the highest"),
        Asked({"temperature": 0.01}, "the lowest that is not greedy: logits grow a hundredfold"),
        Asked({"top_k": 1}, "one token is left, later"),
        Asked({"top_p": 1e-6}, "as few as that"),
        Asked({"min_p": 1.0}, "as few as that, by another processor"),
        Asked({"seed": 0}, "false where it is asked for truth"),
        Asked({"seed": 5}, "equal for several requests"),
        Asked({"n": 2, "seed": 5}, "two requests with seeds of their own"),
        Asked({"n": 2}, "two requests with equal parameters and one prompt"),
        Asked({"logprobs": 0}, "false where it is asked for truth"),
        Asked({"logprobs": 5}, "no effect on logits"),
        Asked({"logprobs": -1}, "all of the vocabulary, and negative as an index"),
        Asked({"prompt_logprobs": 0}, "false where it is asked for truth"),
        Asked({"prompt_logprobs": -1}, "all of the vocabulary"),
        Asked({"logprob_token_ids": [first, other]}, "tokens that are no candidates"),
        Asked({"min_tokens": 2}, "the end of the sequence is masked for some steps"),
        Asked({"min_tokens": 4, "stop_token_ids": [first]}, "a token of the plugin is masked"),
        Asked({"stop_token_ids": [other]}, "a longer set of stop tokens"),
        Asked({"stop": ["END"]}, "a stop string, which no processor sees"),
        Asked({"ignore_eos": True}, "no token ends the sequence"),
        Asked({**word, "_bad_words_token_ids": [[first]]}, "a token of the plugin is masked"),
        Asked({**word, "_bad_words_token_ids": [[second, first], [third]]}, "in two tokens"),
        *(
            Asked({"allowed_token_ids": [each]}, "one token is left, and the plugin knows it")
            for each in dict.fromkeys((first, *(t for t in (second, third) if t not in ends)))
        ),
        Asked({"allowed_token_ids": [other]}, "one token is left that the plugin may not know"),
        Asked({"allowed_token_ids": [first, second, other]}, "a few are left"),
        Asked(
            {"allowed_token_ids": [t for t in range(bench.vocabulary) if t != first]},
            "a token of the plugin is masked",
        ),
        Asked({"logit_bias": {first: 100.0}}, "one logit is far above all others"),
        Asked({"logit_bias": {first: -100.0}}, "one logit is far below all others"),
        Asked({"structured_outputs": {"choice": [str(first)]}}, "a grammar leaves one token"),
        Asked({"structured_outputs": {"choice": [str(other)]}}, "as above, another token"),
        Asked({"presence_penalty": 2.0}, "the highest"),
        Asked({"presence_penalty": -2.0}, "the lowest"),
        Asked({"frequency_penalty": 2.0}, "the highest"),
        Asked({"frequency_penalty": -2.0}, "the lowest"),
        Asked({"repetition_penalty": 2.0}, "logits are divided"),
        Asked({"repetition_penalty": 0.01}, "logits grow a hundredfold"),
        Asked({}, "nothing to look back at", (first,)),
        Asked({}, "the same token all along", (first,) * 24),
        Asked({}, "the prompt of its neighbour", (first, second)),
        # What Model Runner V2 keeps for a prompt of embeddings; V1 tells of none: LB-25.
        Asked({}, "token 0, as for a prompt of embeddings", (0, 0, 0)),
        Asked({}, "as long as the model allows", _long(bench)),
        Asked({"logprobs": 4, "max_tokens": 1}, "what a beam search sends for each beam"),
    ]
    known = {*SamplingParams.__struct_fields__}
    return [asked for asked in table if known.issuperset(asked.keywords)]


def _long(bench: Stock) -> tuple[int, ...]:
    count = len(bench.tokens)
    return tuple(bench.tokens[index % count] for index in range(MAX_MODEL_LEN - 1))


@attrs.frozen
class Combination:
    """What one client asks for: the plugin, and more."""

    choice: Choice
    asked: tuple[Asked, ...]

    @property
    def said(self) -> str:
        """The request, as messages name it."""
        return f"{label(self.choice)} with " + " and ".join(asked.said for asked in self.asked)

    def keywords(self, own: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters; what the ``on`` set asks for itself stays as it is."""
        merged: dict[str, Any] = {}
        for asked in self.asked:
            merged |= asked.keywords
        return merged | dict(own)

    @property
    def prompt(self) -> tuple[int, ...] | None:
        """The prompt, if it is a special one."""
        return next((asked.prompt for asked in self.asked if asked.prompt is not None), None)

    @property
    def sensible(self) -> bool:
        """Whether no two things are values of the same parameter."""
        keys = [key for asked in self.asked for key in asked.keywords or ("prompt",)]
        return len(keys) == len(set(keys))


def put_behind_grammars(logits: torch.Tensor, asked: Sequence[Mapping[str, Any]]) -> None:
    """Leave one token in the row of each request that has a grammar.

    As ``apply_grammar_bitmask`` of ``vllm.v1.structured_output.utils`` and its equivalent in Model
    Runner V2, before any processor.  The choice of such a request names its token by number.
    """
    for row, keywords in enumerate(asked):
        grammar = keywords.get("structured_outputs")
        choice = grammar.get("choice") if isinstance(grammar, dict) else None
        if choice and choice[0].isdecimal():
            kept = logits[row, int(choice[0])].clone().nan_to_num(neginf=0.0)
            logits[row] = -torch.inf
            logits[row, int(choice[0])] = kept
