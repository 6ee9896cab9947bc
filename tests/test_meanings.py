# SPDX-License-Identifier: Apache-2.0
"""The ready functions that a profile may name."""

from __future__ import annotations

import ast
import inspect
from typing import Any

import pytest
import torch
from vllm import SamplingParams

from conformance import meanings
from reference_plugins import expected

ROW = torch.tensor([0.5, 2.0, -1.0, 3.0])


def _row(meaning: meanings.Function, output: int = 0, /, **arguments: object) -> list[float]:
    params = SamplingParams(extra_args=arguments or None)
    row = meaning(params, [1], [2] * output, ROW.clone())
    found: list[float] = row.tolist()
    return found


NO = -torch.inf


@pytest.mark.parametrize("tokens", [1, [1], [1, 1, 9]])
def test_bans(tokens: object) -> None:
    """An id, several, one twice, and one that the model does not have."""
    assert _row(meanings.bans("banned"), banned=tokens) == [0.5, NO, -1.0, 3.0]
    assert _row(meanings.bans("banned")) == ROW.tolist()


def test_a_token_is_left() -> None:
    """Rows that would have none stay as they were."""
    assert _row(meanings.bans("banned"), banned=[0, 1, 2, 3]) == ROW.tolist()
    assert _row(meanings.allows("allowed"), allowed=[9]) == ROW.tolist()


def test_allows() -> None:
    """All others are masked, for those who ask for it."""
    assert _row(meanings.allows("allowed"), allowed=[0, 3]) == [0.5, NO, NO, 3.0]
    assert _row(meanings.allows("allowed")) == ROW.tolist()


def test_adds() -> None:
    """A token that is named twice gets the amount once."""
    adds = meanings.adds("tokens", "bias")

    assert _row(adds, tokens=[0, 0, 2], bias=1.5) == [2.0, 2.0, 0.5, 3.0]
    assert _row(adds, tokens=[0]) == ROW.tolist()


def test_forces() -> None:
    """From an output on, for some outputs or for all."""
    late = meanings.forces("token", after=1, first=lambda params: params.extra_args["count"])
    rows = [_row(late, output, token=2, count=2) for output in range(4)]

    alone = [NO, NO, -1.0, NO]
    assert rows == [ROW.tolist(), alone, alone, ROW.tolist()]
    assert _row(meanings.forces("token"), 7, token=2) == alone
    assert _row(meanings.forces("token", first="count"), 7) == ROW.tolist()


def test_one_after_the_other() -> None:
    """The second gets what the first has made."""
    both = meanings.in_order(meanings.bans("banned"), meanings.adds("tokens", "bias"))

    assert _row(both, banned=1, tokens=[1, 0], bias=1.0) == [1.5, NO, -1.0, 3.0]
    assert _row(meanings.leaves) == ROW.tolist()


@pytest.mark.parametrize(
    ("ready", "plain", "arguments"),
    [
        (meanings.allows("target_token"), expected.target_token, {"target_token": 3}),
        (meanings.allows("target_token"), expected.target_token, {"target_token": 99}),
        (
            meanings.adds("biased_tokens", "token_bias"),
            expected.token_bias,
            {"biased_tokens": [3, 3, 1, 77], "token_bias": -2.0},
        ),
    ],
)
def test_they_say_what_those_of_the_references_say(
    ready: meanings.Function, plain: meanings.Function, arguments: dict[str, Any]
) -> None:
    """Two ways to say the same, one ready and one written out."""
    assert _row(ready, **arguments) == _row(plain, **arguments)


def test_references_say_what_they_mean_in_fifteen_lines() -> None:
    """What an author has to write is short; what the functions of references share has a name."""
    body = ast.parse(inspect.getsource(expected)).body
    functions = [each for each in body if isinstance(each, ast.FunctionDef)]

    assert functions
    for function in functions:
        assert (function.end_lineno or 0) - function.lineno < 15, function.name
