# SPDX-License-Identifier: Apache-2.0
"""A reasoning parser for ``<think>reasoning</think>content``, with markers of one token each.

    vllm serve MODEL --reasoning-parser-plugin thinking.py --reasoning-parser thinking

The start may be missing, since chat templates put it at the end of the prompt.  Tokens say that a
marker comes, and the text is parted where it is: a step looks at its own tokens alone.  Where a
request has stop strings, the text of a marker comes later than its token, and in parts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm.reasoning import ReasoningParser, ReasoningParserManager

try:
    from vllm.entrypoints.generate.base.protocol import DeltaMessage
except ImportError:  # vLLM 0.28
    from vllm.entrypoints.openai.engine.protocol import DeltaMessage

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
    from vllm.tokenizers import TokenizerLike

START, END = "<think>", "</think>"


def held_back(text: str, marker: str) -> int:
    """Return how many letters at the end of a text are the beginning of a marker."""
    longest = min(len(text), len(marker) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(marker[:n])), 0)


@ReasoningParserManager.register_module("thinking")
class ThinkingParser(ReasoningParser):
    """Reasoning up to a marker, content behind it."""

    def __init__(self, tokenizer: TokenizerLike, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - as vLLM has them
        super().__init__(tokenizer, *args, **kwargs)
        missing = [marker for marker in (START, END) if marker not in self.vocab]
        if missing:
            raise ValueError(f"the tokenizer has no token {missing[0]}")
        self._start: int = self.vocab[START]
        self._end: int = self.vocab[END]
        self._streams = self._started = self._ended = False
        self._due: set[str] = set()  # markers whose tokens have come, and whose texts have not
        self._rest = ""  # what may be the beginning of one of them

    def adjust_request(
        self, request: ChatCompletionRequest | ResponsesRequest
    ) -> ChatCompletionRequest | ResponsesRequest:
        """Keep the markers in the text: some tokenizers take them for special tokens."""
        request.skip_special_tokens = False
        return request

    def is_reasoning_end(self, input_ids: Sequence[int]) -> bool:
        """Tell whether the last marker of a prompt or an answer is the end."""
        markers = (each for each in reversed(input_ids) if each in (self._start, self._end))
        return next(markers, None) == self._end

    def is_reasoning_end_streaming(
        self, input_ids: Sequence[int], delta_ids: Iterable[int]
    ) -> bool:
        """Tell whether the end is in this step: in its text, where this instance reads that."""
        return self._ended if self._streams else self._end in delta_ids

    def extract_content_ids(self, input_ids: list[int]) -> list[int]:
        """Return the tokens behind the end."""
        if self._end not in input_ids:
            return []
        return input_ids[input_ids.index(self._end) + 1 :]

    def count_reasoning_tokens(self, token_ids: Sequence[int]) -> int:
        """Return how many tokens stand in front of the end; the start is none of them."""
        ends = token_ids.index(self._end) if self._end in token_ids else len(token_ids)
        return sum(each != self._start for each in token_ids[:ends])

    def extract_reasoning(
        self, model_output: str, request: ChatCompletionRequest
    ) -> tuple[str | None, str | None]:
        """Part a whole answer; one without an end is reasoning that was broken off."""
        reasoning, _, content = model_output.partition(END)
        return reasoning.replace(START, "", 1) or None, content or None

    def extract_reasoning_streaming(
        self,
        previous_text: str,
        current_text: str,
        delta_text: str,
        previous_token_ids: Sequence[int],
        current_token_ids: Sequence[int],
        delta_token_ids: Sequence[int],
    ) -> DeltaMessage | None:
        """Part what this delta adds."""
        self._streams = True
        if self._ended:
            return DeltaMessage(content=delta_text) if delta_text else None
        if self._start in delta_token_ids and not self._started:
            self._due.add(START)
            self._started = True
        if self._end in delta_token_ids:
            self._due.add(END)
        reasoning, content = self._rest + delta_text, ""
        if END in self._due:
            reasoning, found, content = reasoning.partition(END)
            self._ended = bool(found)
        if START in self._due and START in reasoning:
            reasoning = reasoning.replace(START, "", 1)
            self._due.remove(START)
        if not self._ended:
            kept = max((held_back(reasoning, marker) for marker in self._due), default=0)
            reasoning, self._rest = (
                reasoning[: len(reasoning) - kept],
                reasoning[len(reasoning) - kept :],
            )
        if not reasoning and not content:
            return None
        return DeltaMessage(reasoning=reasoning or None, content=content or None)
