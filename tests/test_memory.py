# SPDX-License-Identifier: Apache-2.0
"""The requests by which the memory of a logits processor is judged."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from vllm.sampling_params import SamplingParams

from conformance.logits.memory import Requests

if TYPE_CHECKING:
    from conformance.inputs.history import Choice

STYLE = {"extra_args": {"style": "calm"}}


@pytest.mark.parametrize(("others", "share"), [(0, 2), (1, 4), (2, 6)])
def test_as_many_bring_a_value_as_is_said(others: int, share: int) -> None:
    """The rate of growth is over all requests, so how many have a value of their own is said."""
    off: list[Choice] = [("off", index) for index in range(others)]
    on: Choice = ("on", 0)
    sets: dict[Choice, dict[str, Any]] = {on: STYLE, **{choice: {} for choice in off}}
    bench: Any = SimpleNamespace(
        choices=(on, *off),
        parameters=sets,
        params=lambda choice: SamplingParams(**sets[choice]),
        most=lambda _: None,
        plugin=SimpleNamespace(validate_params=lambda _: None),
    )
    requests = Requests(bench, {on: [("extra_args", "style")]}, count())

    every = [requests.following()[1].extra_args for _ in range(120)]
    own = sum(bool(said) and said["style"] != "calm" for said in every)

    assert requests.share == f"1 in {share}"
    assert own == 120 // share
