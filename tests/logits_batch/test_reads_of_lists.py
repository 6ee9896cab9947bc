# SPDX-License-Identifier: Apache-2.0
"""Lists of tokens that note who looks into them, however that is done."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from conformance.logits.waiting import TokenList

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    "look",
    [
        lambda prompt, outputs: prompt + outputs,
        lambda prompt, outputs: outputs + prompt,
        lambda _, outputs: [1] + outputs,  # noqa: RUF005 - the way that is looked at
        lambda prompt, outputs: prompt == outputs,
        lambda prompt, outputs: prompt < outputs,
        lambda _, outputs: [*outputs],
        lambda _, outputs: outputs[-1],
        lambda _, outputs: repr(outputs),
    ],
)
def test_a_look_is_noted(look: Callable[[list[int], list[int]], object]) -> None:
    """Both lists that are joined or compared are looked into."""
    read: set[str] = set()
    prompt, outputs = TokenList([1, 2], "prompt", read), TokenList([3], "outputs", read)

    assert not read
    look(prompt, outputs)
    assert "outputs" in read
