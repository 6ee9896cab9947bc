# SPDX-License-Identifier: Apache-2.0
"""The prompts that real engines are given."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from conformance.inputs.words import Words
from conformance.logits.workload import prompt_of

if TYPE_CHECKING:
    from conformance.logits.requests import Stock

WAITED = (11, 401, 402)


def _stock(*prompts: tuple[int, ...]) -> Stock:
    words = Words((3, 4), prompts=prompts)
    known = {"vocabulary": 500, "tokens": (3, 4), "words": words, "parameters": {}}
    return cast("Stock", SimpleNamespace(**known))


@pytest.mark.parametrize("length", [6, 9, 40])
def test_a_prompt_that_the_profile_names_stands_at_both_ends(length: int) -> None:
    """A plugin that waits for it acts in an engine too, whichever end it looks at."""
    prompts = [prompt_of(_stock(WAITED), length, index) for index in range(150)]

    assert {prompt[:3] for prompt in prompts} == {WAITED}
    assert {prompt[-3:] for prompt in prompts} == {WAITED}
    assert len(set(prompts)) == len(prompts)


def test_several_prompts_take_turns() -> None:
    """Each of them is the prompt of some request."""
    prompts = [prompt_of(_stock(WAITED, (7,)), 6, index) for index in range(4)]

    assert [prompt[-1] for prompt in prompts] == [402, 7, 402, 7]
