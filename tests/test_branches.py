# SPDX-License-Identifier: Apache-2.0
"""Tokens that a plugin knows by heart, or computes each time, are found by what it does."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import attrs
import pytest
import torch
from support import UNUSUAL, UNUSUAL_SLOT, Specimen, certify, gallery

from conformance.logits.branches import MOST_KEPT, constants, told
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from conformance.worker import Zygote

NAMES = {"knows_its_tokens_by_heart", "acts_beyond_a_token", "asks_its_tokenizer_late"}

SPECIMENS = [
    specimen
    for folder in (UNUSUAL, UNUSUAL_SLOT)
    for specimen in gallery(folder)
    if specimen.name in NAMES
]


class Listener:
    """Names tokens in each way in which code may."""

    @staticmethod
    def _quiet(token: int) -> bool:
        return token in {317, 402} or any(token == each for each in (88, 89))

    @property
    def _end(self) -> int:
        return 451


def test_code_names_tokens() -> None:
    """Whole numbers and sets of them are found in methods, properties and what is within them."""
    found = set(constants(Listener, __file__))

    assert {frozenset({317, 402}), 88, 89, 451} <= found
    assert not set(constants(Listener, "another.py"))


def _rows(outputs: Sequence[int]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Serve a request whose row is changed behind 301 and 302, and which runs a line at 77."""
    row = torch.zeros(4)
    yield row, row
    for token in outputs:
        after = row + 1 if token in {301, 302} else row
        if token == 77:
            after = after.clone()
        yield row, after


def test_a_line_or_a_change_tells_a_token() -> None:
    """Each token comes once, behind those whose lines are known."""
    found = told(_rows, [5, 7, 5], range(3, 500), __file__)

    assert set(found) == {77, 301}
    assert len(told(_rows, [], count(3), "another.py")) <= MOST_KEPT


@pytest.mark.gallery
@pytest.mark.parametrize("specimen", SPECIMENS, ids=lambda s: f"{s.generation}-{s.name}")
def test_what_it_waits_for_is_said_without_a_profile(
    zygote: Zygote, specimen: Specimen, tmp_path: Path
) -> None:
    """A plugin that acts behind a token acts where nobody names it, nor what switches it on."""
    rule = "LB-05" if specimen.generation == "logits/batch" else "LS-05"
    found = certify(zygote, attrs.evolve(specimen, profile={}), tmp_path, rules={rule})[rule]

    assert found.verdict is Verdict.PASS, found.message
    assert found.acted
