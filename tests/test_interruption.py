# SPDX-License-Identifier: Apache-2.0
"""How long a plugin's call may take."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
import torch

from conformance.interruption import PluginHung, in_call, limited

if TYPE_CHECKING:
    from collections.abc import Callable

SECONDS = 0.3


def _slow_to_compile(graph: torch.fx.GraphModule, _: list[Any]) -> Callable[..., Any]:
    time.sleep(4 * SECONDS)
    forward: Callable[..., Any] = graph.forward
    return forward


def test_a_call_that_hangs_is_ended() -> None:
    """The message names the call that was in progress."""
    with pytest.raises(PluginHung, match="apply did not return within 0 s"), limited(SECONDS):  # noqa: SIM117 - the inner one is the plugin's
        with in_call("apply"):
            time.sleep(10)


def test_compiling_is_no_hang() -> None:
    """A first call may wait for torch.compile; what it runs then has the usual time."""
    compiled = torch.compile(lambda x: x + 1, backend=_slow_to_compile)
    with limited(SECONDS), in_call("apply"):
        assert compiled(torch.ones(2)).tolist() == [2.0, 2.0]


def test_what_was_compiled_may_hang() -> None:
    """Only the compilation has more time."""

    def stuck(graph: torch.fx.GraphModule, _: list[Any]) -> Callable[..., Any]:
        forward = graph.forward

        def run(*arguments: object) -> object:
            time.sleep(10)
            return forward(*arguments)

        return run

    compiled = torch.compile(lambda x: x + 2, backend=stuck)
    with pytest.raises(PluginHung), limited(SECONDS), in_call("apply"):
        compiled(torch.ones(2))
