# SPDX-License-Identifier: Apache-2.0
"""A reasoning parser for ``<think>reasoning</think>content``, with markers of one token each.

    vllm serve MODEL --reasoning-parser-plugin thinking.py --reasoning-parser thinking

The start may be missing, since chat templates put it at the end of the prompt.  Tokens say where
the markers are, and the text is parted there: a step looks at its own tokens alone.
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
        self._started = self._ended = False

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
        """Tell whether the end is among the tokens of this step."""
        return self._end in delta_ids

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
        if self._ended:
            return DeltaMessage(content=delta_text) if delta_text else None
        reasoning, content = delta_text, ""
        if self._end in delta_token_ids:
            reasoning, _, content = delta_text.partition(END)
            self._ended = True
        if not self._started and START in reasoning:
            reasoning = reasoning.replace(START, "", 1)
            self._started = True
        if not reasoning and not content:
            return None
        return DeltaMessage(reasoning=reasoning or None, content=content or None)
