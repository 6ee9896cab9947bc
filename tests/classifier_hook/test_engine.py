# SPDX-License-Identifier: Apache-2.0
"""Hooks on a real ``AsyncLLM``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support import ROOT

from conformance.engine.models import tiny_llama
from reference_plugins.classifier_hook.hooks.blocker import REPLACEMENT

if TYPE_CHECKING:
    from conformance.worker import Zygote

    Told = dict[Any, Any]

pytestmark = pytest.mark.engine

SECRET = "write to ann@example.com"
FINE = "all is well"
KINDS = ("DELTA", "CUMULATIVE", "FINAL_ONLY")


@pytest.fixture(scope="module")
def told(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Told:
    """Return what requests of all kinds came to."""
    folder = tmp_path_factory.mktemp("engine")
    job = zygote.fork(
        "engine_job:run",
        {"model": str(tiny_llama())},
        log=folder / "job.log",
        directory=folder,
        python_path=[str(Path(__file__).parent), str(ROOT)],
    )
    answer: Told = job.ask("go", limit=180)
    job.close()
    return answer


def texts(outputs: list[Told], index: int = 0) -> list[str]:
    """Return the texts of a completion, as they went out."""
    completions = [one for output in outputs for one in output["completions"]]
    return [one["text"] for one in completions if one["index"] == index]


def test_engines_get_the_hooks_that_the_environment_names(told: Told) -> None:
    """In its order; a name that is taken is refused."""
    assert told["configured"] == ["patterns", "pii"]
    assert told["refused"] == "a hook named 'pii' is already registered"


@pytest.mark.parametrize("kind", KINDS)
def test_answers_that_pass_are_whole(told: Told, kind: str) -> None:
    """Scores stand beside them, and only there."""
    outputs = told[kind, FINE]
    text = "".join(texts(outputs)) if kind == "DELTA" else texts(outputs)[-1]

    assert text == FINE
    assert outputs[-1]["scores"]["patterns"] == {"found": 0, "counts": {}}
    assert [output["scores"] for output in outputs[:-1]] == [None] * (len(outputs) - 1)
    assert outputs[-1]["completions"][0]["reason"] == "stop"


@pytest.mark.parametrize("kind", KINDS)
def test_blocked_answers_end_with_the_replacement(told: Told, kind: str) -> None:
    """The last output has the replacement and no tokens."""
    outputs = told[kind, SECRET]

    assert outputs[-1]["completions"] == [
        {
            "index": 0,
            "text": REPLACEMENT,
            "tokens": 0,
            "logprobs": None,
            "reason": "content_filter",
        }
    ]
    assert outputs[-1]["scores"]["pii"]["counts"] == {"email": 1}
    assert outputs[-1]["finished"]


def test_each_of_several_completions_is_scored(told: Told) -> None:
    """All were made to say the same, and all are replaced, log probabilities and all."""
    (output,) = told["several"]

    assert [one["text"] for one in output["completions"]] == [REPLACEMENT] * 3
    assert [one["logprobs"] for one in output["completions"]] == [0] * 3
    assert [output["scores"]["pii"][n]["block"] for n in range(3)] == [True] * 3


def test_streams_of_several_completions_end_once(told: Told) -> None:
    """Each completion has its nine tokens and scores; the last output alone says finished."""
    outputs = told["several, streamed"]
    tokens = dict.fromkeys(range(3), 0)
    for output in outputs:
        for one in output["completions"]:
            tokens[one["index"]] += one["tokens"]

    assert tokens == dict.fromkeys(range(3), 9)
    assert [output["finished"] for output in outputs].count(True) == 1
    assert outputs[-1]["finished"]
    assert outputs[-1]["scores"]["slow"] == {n: {"tokens": 9} for n in range(3)}


def test_a_slow_reader_loses_nothing(told: Told) -> None:
    """Deltas merge, and the hooks are told of all tokens."""
    outputs = told["merged"]
    tokens = [output["completions"][0]["tokens"] for output in outputs]

    assert tokens[1:] == [60 - tokens[0]]
    assert outputs[-1]["scores"]["slow"] == {"tokens": 60}


def test_held_streams_are_all_or_nothing(told: Told) -> None:
    """A blocked one is its replacement alone; one that passes is sent in its chunks."""
    assert texts(told["held", SECRET]) == [REPLACEMENT]
    assert "".join(texts(told["held", FINE])) == FINE
    assert len(texts(told["held", FINE])) > 1


def test_each_turn_of_a_session_is_scored(told: Told) -> None:
    """A request whose input is a stream finishes an answer for each question."""
    scored = [output["scores"]["slow"] for output in told["session"] if output["scores"]]

    assert scored == [{"tokens": 4}] * 2


def test_hooks_end_with_their_request(told: Told) -> None:
    """Cancelled by a client that goes away, and by an abort; nothing is left behind."""
    assert told["cancelled"] == ["cancelled"]
    (output,) = told["aborted"]
    assert output["completions"][0]["reason"] == "abort"
    assert output["completions"][0]["text"] == ""
    assert told["left"] == {"unfinished": 0, "running": 0, "strays": 0, "hooks": []}
