# SPDX-License-Identifier: Apache-2.0
"""How long a plugin's call may take."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from support import ROOT

from conformance.watching import interruption
from conformance.watching.interruption import (
    OutOfTime,
    PluginHung,
    in_call,
    innermost,
    limited,
    place_in,
    progressed,
)

if TYPE_CHECKING:
    from collections.abc import Callable

SECONDS = 0.3


def _slow_to_compile(graph: torch.fx.GraphModule, _: list[Any]) -> Callable[..., Any]:
    time.sleep(4 * SECONDS)
    forward: Callable[..., Any] = graph.forward
    return forward


def _get_on_and_stop() -> None:
    progressed()
    time.sleep(10)


def _get_on_within() -> None:
    with limited(10 * SECONDS):
        progressed()
    time.sleep(10)


def _return_and_hang() -> None:
    for _ in range(6):
        with in_call("apply"):
            time.sleep(SECONDS / 2)
    with in_call("the last"):
        time.sleep(20 * SECONDS)


def test_a_call_that_hangs_is_ended() -> None:
    """The message names the call that was in progress."""
    with pytest.raises(PluginHung, match="apply did not return within 0 s"), limited(SECONDS):  # noqa: SIM117 - the inner one is the plugin's
        with in_call("apply"):
            time.sleep(10)


def test_a_busy_machine_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that waits for a processor most of its time has more time, and not without end."""
    monkeypatch.setattr(interruption, "SAMPLE", SECONDS / 6)
    monkeypatch.setattr(interruption, "delayed_threads", lambda: 0.6 * time.monotonic())
    with limited(SECONDS), in_call("apply"):
        time.sleep(2 * SECONDS)

    started = time.monotonic()
    with pytest.raises(PluginHung), limited(SECONDS), in_call("apply"):
        time.sleep(10)
    assert time.monotonic() - started < 5  # the clock is that of a busy machine, too


def test_a_slow_host_is_no_plugin_that_hangs() -> None:
    """Where no call of the plugin was in progress, its end says so, and where it was."""
    with pytest.raises(OutOfTime, match="nothing of the plugin running") as caught:  # noqa: SIM117 - the limit raises
        with limited(SECONDS):
            time.sleep(10)
    place = str(place_in(caught.value, __file__))
    assert place.startswith("test_interruption.py:")
    line = int(place.partition(":")[2])
    assert "time.sleep(10)" in Path(__file__).read_text("utf-8").splitlines()[line - 1]
    assert place_in(caught.value, "/elsewhere/plugin.py") is None


@pytest.mark.parametrize(
    ("file", "plugin", "its_own"),
    [
        ("/project/plugin.py", "/project/plugin.py", True),
        ("/project/helpers/rows.py", "/project/plugin.py", True),
        ("/project/.venv/lib/python3.12/site-packages/vllm/llm.py", "/project/plugin.py", False),
        ("/env/site-packages/package/base.py", "/env/site-packages/package/plugin.py", True),
        ("/env/site-packages/vllm/llm.py", "/env/site-packages/package/plugin.py", False),
        ("/env/site-packages/vllm/llm.py", "/env/site-packages/plugin.py", False),
        ("/projects/plugin.py", "/project/plugin.py", False),
        ("<frozen runpy>", str(Path.cwd() / "plugin.py"), False),
        (limited.__code__.co_filename, str(ROOT / "plugin.py"), False),
    ],
)
def test_files_of_a_plugin_are_told_from_others(file: str, plugin: str, its_own: bool) -> None:
    """Those of its package are its own; vLLM and the harness are not, wherever they lie."""
    found = innermost([("/usr/lib/python3.12/threading.py", 1), (file, 7)], plugin)
    assert found == (f"{Path(file).name}:7" if its_own else None)


def test_a_host_that_gets_on_has_time() -> None:
    """With every sign of life the time begins anew, and without them it ends."""
    with limited(SECONDS):
        for _ in range(8):
            time.sleep(SECONDS / 2)
            progressed()
    with pytest.raises(OutOfTime), limited(SECONDS):
        _get_on_and_stop()


def test_progress_within_a_call_leaves_the_outer_limit_alone() -> None:
    """After an inner block the outer one has the time it had left."""
    with pytest.raises(OutOfTime), limited(SECONDS):
        _get_on_within()


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


def test_calls_that_return_one_after_the_other_do_not_hang(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The usual limit is one of each call; the last one here does not return."""
    monkeypatch.setattr(interruption, "CALL_LIMIT", SECONDS)
    with pytest.raises(PluginHung, match="the last did not return"), limited(SECONDS):
        _return_and_hang()
