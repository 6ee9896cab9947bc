# SPDX-License-Identifier: Apache-2.0
"""What vLLM does to outputs: tokens that are taken back, and placeholders that stay.

Histories have of both what reaches a plugin. Where a new release lets more of it through, a test
here fails.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from conformance.engine.models import tiny_llama

if TYPE_CHECKING:
    from collections.abc import Callable

    from conformance.worker import Zygote

PROMPT = 40  #: tokens of the first prompt of the jobs


@pytest.fixture
def ask(zygote: Zygote, tmp_path: Path) -> Callable[..., Any]:
    """Return a function that runs a job and returns its answer."""

    def run(function: str, **arguments: str) -> object:
        job = zygote.fork(
            f"kv_loads_job:{function}",
            arguments,
            log=tmp_path / "job.log",
            directory=tmp_path,
            python_path=[str(Path(__file__).parent)],
        )
        answer = job.ask("run", limit=240)
        job.close()
        return answer

    return run


@pytest.mark.engine
def test_a_failed_load_is_played_as_in_an_engine(ask: Callable[..., Any]) -> None:
    """The same calls with the same outputs: no update, and a row for the same outputs again."""
    lived, played = ask("engine_and_simulator", model=str(tiny_llama()))

    assert played == lived
    assert [what for call, what, _ in lived if call == "update"][1] is None
    assert [at[0] for call, _, at in lived if call == "apply"][:2] == [(), ()]


@pytest.mark.engine
def test_no_plugin_sees_a_token_that_is_taken_back(ask: Callable[..., Any]) -> None:
    """It is gone before the next call, also of requests that were preempted and have outputs."""
    plain, failing, again, shorter = ask("many", model=str(tiny_llama()))

    assert failing == plain
    assert again, "no request with outputs was computed again"
    assert not shorter


@pytest.mark.engine
def test_asynchronous_scheduling_takes_nothing_back(ask: Callable[..., Any]) -> None:
    """The scheduler goes on counting the placeholder of the token that it has dropped.

    So the runner keeps that token, and the client never gets it: histories leave that out, since
    vLLM itself is wrong there.
    """
    counts, outputs = ask("asynchronous", model=str(tiny_llama()))

    assert counts == [1, 2, 3, 4]
    assert outputs == [101, 102, 103]


@pytest.mark.engine
def test_model_runner_v2_takes_nothing_back(ask: Callable[..., Any]) -> None:
    """It computes everything again behind what is there, and keeps the token.

    So there is nothing for slot plugins to be tried on: rows are of positions that no request has
    (vllm-project/vllm#49250).
    """
    seen, joined = ask("slots", model=str(tiny_llama()))

    assert joined == 1, "a request whose load has failed is added again"
    assert seen[:2] == [(PROMPT - 1, PROMPT), (2 * PROMPT - 1, PROMPT + 1)]


def test_placeholders_stay_for_entry_points(ask: Callable[..., Any]) -> None:
    """Until a request in the batch has penalties; tokens from before that are missing then."""
    listed, entry_point = ask("placeholders")

    assert listed == [(), (11,), (11, 12), (11, 12, 13), (11, 12, 13, 14)]
    assert entry_point == [(), (-1,), (-1, -1), (-1, -1, -1), (14,)]
