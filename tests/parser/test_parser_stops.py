# SPDX-License-Identifier: Apache-2.0
"""Texts of deltas that come later than their tokens, as vLLM's own detokenizer holds them back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from vllm import SamplingParams
from vllm.v1.engine import EngineCoreRequest
from vllm.v1.engine.detokenizer import IncrementalDetokenizer

from conformance.parser import tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

TEXT = 'I look 😀.<tool_call>{"name": "f", "arguments": {"city": "漢字"}}</tool_call>'


def streamed(
    ids: Sequence[int], stop: str, step: int, special: tuple[str, ...]
) -> list[tuple[str, list[int]]]:
    """Return what vLLM streams of these tokens."""
    made = tokens.tokenizer(special)
    request = EngineCoreRequest(
        request_id="r",
        prompt_token_ids=made.encode("user: x", add_special_tokens=False),
        mm_features=None,
        sampling_params=SamplingParams(stop=[stop]),
        pooling_params=None,
        arrival_time=0.0,
        lora_request=None,
        cache_salt=None,
        data_parallel_rank=None,
    )
    detokenizer = IncrementalDetokenizer.from_new_request(made, request)
    found = []
    for start in range(0, len(ids), step):
        part, last = list(ids[start : start + step]), start + step >= len(ids)
        assert detokenizer.update(part, stop_terminated=last) is None
        found.append((detokenizer.get_next_output_text(finished=last, delta=True), part))
    return found


@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize("length", [1, 2, 12, 400])
def test_text_is_held_back_as_by_vllm(length: int, step: int) -> None:
    """A stop string of so many letters holds back all but one; the last delta has the rest."""
    special = ("<tool_call>", "</tool_call>")
    answer = tokens.answer(tokens.tokenizer(special), TEXT)
    cuts = range(step, len(answer), step)

    found = [*answer.deltas(cuts, held=length - 1)]

    assert found == streamed(answer.ids, "!" * length, step, special)
