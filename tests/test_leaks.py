# SPDX-License-Identifier: Apache-2.0
"""What is left of requests that are over."""

from __future__ import annotations

import torch._dynamo  # noqa: F401 - its hook is set below
from torch._C._dynamo.eval_frame import set_eval_frame

from conformance.leaks import Given, kept

NAMES = ("SamplingParams",)


def _given() -> list[Given]:
    return [([number],) for number in range(10)]


def test_what_somebody_else_holds_is_kept() -> None:
    """Only as many requests are counted as something else refers to."""
    given = _given()
    holder = [entry[0] for entry in given[:4]]

    found = kept(given, NAMES, 3)

    assert found == "the SamplingParams of 4 of them, all finished, are still held somewhere"
    assert kept(given, NAMES, len(holder)) is None


def test_what_hooks_into_calls_holds_nothing() -> None:
    """torch.compile holds the arguments of every call once more while its hook is set."""
    before = set_eval_frame(False)
    try:
        assert kept(_given(), NAMES, 0) is None
    finally:
        set_eval_frame(before)
