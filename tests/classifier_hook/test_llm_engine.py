# SPDX-License-Identifier: Apache-2.0
"""Hooks on a real ``LLMEngine``, as ``LLM`` drives it and step by step."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support import ROOT

from conformance.engine.models import tiny_llama
from reference_plugins.classifier_hook.hooks.blocker import REPLACEMENT

if TYPE_CHECKING:
    from conformance.worker import Zygote

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def told(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what requests of all kinds came to."""
    folder = tmp_path_factory.mktemp("llm")
    job = zygote.fork(
        "llm_job:run",
        {"model": str(tiny_llama())},
        log=folder / "job.log",
        directory=folder,
        python_path=[str(Path(__file__).parent), str(ROOT)],
    )
    answer: dict[str, Any] = job.ask("go", limit=180)
    job.close()
    return answer


def test_an_engine_without_hooks_is_untouched(told: dict[str, Any]) -> None:
    """It runs vLLM's functions, until the first hook; a name that is taken is refused."""
    assert told["untouched"] == [None] * 3
    assert told["refused"] == "a hook named 'pii' is already registered"


def test_every_completion_of_a_batch_is_scored(told: dict[str, Any]) -> None:
    """Also several of one request, of which all are replaced; outputs come in their order."""
    blocked, *fine, free = told["batch"]

    assert [one["text"] for one in blocked["completions"]] == [REPLACEMENT] * 2
    assert [one["reason"] for one in blocked["completions"]] == ["content_filter"] * 2
    assert [blocked["scores"]["pii"][n]["block"] for n in range(2)] == [True] * 2
    for number, output in enumerate(fine):
        assert [one["text"] for one in output["completions"]] == ["all is well"]
        assert output["scores"]["counts"]["text"] == "all is well"
        assert output["scores"]["counts"]["n"] == number
    assert free["scores"]["counts"]["tokens"] == 5


def test_a_program_with_an_event_loop_of_its_own_is_served(told: dict[str, Any]) -> None:
    """As in a notebook."""
    (output,) = told["within a loop"]

    assert output["scores"]["counts"]["text"] == "all is well"


@pytest.mark.parametrize("kind", ["DELTA", "CUMULATIVE"])
def test_streams_end_with_the_replacement(told: dict[str, Any], kind: str) -> None:
    """What was sent before stays; the last output alone has scores."""
    *before, last = told[kind]

    assert before
    assert [one["scores"] for one in before] == [None] * len(before)
    assert last["finished"]
    assert [one["text"] for one in last["completions"]] == [REPLACEMENT]
    assert last["scores"]["pii"]["block"]


def test_completions_of_a_stream_are_scored_one_by_one(told: dict[str, Any]) -> None:
    """Each with all its tokens; the request ends once."""
    outputs = told["several, streamed"]

    assert [output["finished"] for output in outputs].count(True) == 1
    scores = outputs[-1]["scores"]["counts"]
    assert [scores[n]["tokens"] for n in range(2)] == [4, 4]


def test_a_held_stream_is_its_replacement_alone(told: dict[str, Any]) -> None:
    """Nothing goes out before the decision."""
    (output,) = told["held"]

    assert [one["text"] for one in output["completions"]] == [REPLACEMENT]


def test_nothing_is_left(told: dict[str, Any]) -> None:
    """Neither of an aborted request nor of the engine; searches work as without hooks."""
    assert told["aborted"] == [False]
    assert told["beams"] == [len([5, 6, 7]) + 3] * 2
    assert told["threads"] == [False]
