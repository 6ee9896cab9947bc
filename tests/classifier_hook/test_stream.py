# SPDX-License-Identifier: Apache-2.0
"""What goes out for a request: vLLM's own ``generate`` with hooks, in virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support import ROOT

from reference_plugins.classifier_hook import beam_search
from reference_plugins.classifier_hook.contract import DEFAULT_REFUSAL, MARGIN

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from conformance.worker import Zygote

    Told = dict[str, Any]
    Play = Callable[..., Told]
    Ask = Callable[..., Told]

BLOCKER = {"name": "blocker", "blocking": True, "bad": "bad"}


@pytest.fixture
def job(zygote: Zygote, tmp_path: Path) -> Ask:
    """Return a function that runs one of the job's functions in a process of its own."""

    def ask(function: str, arguments: dict[str, Any]) -> Told:
        process = zygote.fork(
            f"stream_job:{function}",
            arguments,
            log=tmp_path / "job.log",
            directory=tmp_path,
            python_path=[str(Path(__file__).parent), str(ROOT)],
        )
        told: Told = process.ask("go", limit=60)
        process.close()
        return told

    return ask


@pytest.fixture
def play(job: Ask) -> Play:
    """Return a function that plays one request."""
    return lambda **case: job("play", {"case": case})


def deltas(*texts: str, finish: str = "stop", index: int = 0, every: float = 1.0) -> list[Any]:
    """Return the script of one completion, a delta each second."""
    last = len(texts) - 1
    return [
        (
            every,
            [{"index": index, "text": text} | ({"finish_reason": finish} if n == last else {})],
        )
        for n, text in enumerate(texts)
    ]


def texts(told: Told, index: int = 0) -> list[str]:
    """Return the texts of one completion, as they went out."""
    completions = [one for output in told["outputs"] for one in output["completions"]]
    return [one["text"] for one in completions if one["index"] == index]


def last(told: Told) -> Told:
    """Return the last completion that went out."""
    completion: Told = told["outputs"][-1]["completions"][-1]
    return completion


def scores(told: Told) -> Told:
    """Return the scores of the last output."""
    found: Told = told["outputs"][-1]["metadata"]["external_scores"]
    return found


def test_without_hooks_nothing_of_vllm_is_replaced(job: Ask) -> None:
    """The class gets a method; the functions of an engine change with its own first hook."""
    told = job("look", {})

    assert told["class"]
    assert told["has method"]
    assert told["engine before"] == []
    assert told["function before"]
    assert told["engine after"] == ["abort", "generate"]
    assert told["other engine"]
    assert told["class after"]


def test_hooks_do_not_keep_an_engine_alive(job: Ask) -> None:
    """An engine with hooks is freed with its last reference, and so shuts down."""
    assert job("look", {})["freed"]


def test_what_a_vllm_lacks_is_said(job: Ask) -> None:
    """The installed one lacks nothing; another is told apart by what it has."""
    told = job("look", {})

    assert told["missing"] == []
    assert told["missing of another"] == [
        "Older.generate is not an async generator function",
        "Older.abort is not a coroutine function",
    ]


def test_a_vllm_with_hooks_of_its_own_keeps_them(job: Ask) -> None:
    """What is configured is registered there, and nothing is put before its functions."""
    assert job("look", {})["vLLM's own"] == (["PiiBlocker"], False)


@pytest.mark.parametrize("act", ["mounting", "registering"])
def test_a_vllm_that_lacks_something_is_refused(job: Ask, act: str) -> None:
    """At the start where hooks are configured, else when the first is registered."""
    assert job("look", {})[act] == (
        "classifier hooks cannot be mounted on this vLLM: "
        "Older.generate is not an async generator function; "
        "Older.abort is not a coroutine function"
    )


@pytest.mark.parametrize("kind", ["DELTA", "CUMULATIVE", "FINAL_ONLY"])
def test_scores_arrive_with_the_last_output(play: Play, kind: str) -> None:
    """An annotation is in its metadata, and everything else passes as it is."""
    script = {
        "DELTA": deltas("ab", "c", "d"),
        "CUMULATIVE": deltas("ab", "abc", "abcd"),
        "FINAL_ONLY": deltas("abcd"),
    }[kind]
    told = play(script=script, kind=kind, hooks=[{"name": "one"}, {"name": "two", "takes": 0.5}])

    assert texts(told) == [one["text"] for _, (one,) in script]
    assert scores(told) == {"one": {"length": 4}, "two": {"length": 4}}
    assert [output["metadata"] for output in told["outputs"][:-1]] == [None] * (len(script) - 1)
    assert last(told)["finish_reason"] == "stop"
    assert told["outputs"][-1]["at"] == len(script) + 0.5
    assert told["outputs"][-1]["transfer"] == {"remote": "blocks"}


def test_a_context_is_complete(play: Play) -> None:
    """All that is known of the completion and of its request is in it."""
    script = [
        (1.0, [{"text": "ab", "logprobs": "asked for"}]),
        (1.0, [{"text": "c", "logprobs": "asked for", "finish_reason": "stop", "stop_reason": 7}]),
    ]
    told = play(
        script=script,
        hooks=[{"name": "one"}],
        params={"logprobs": 1, "prompt_logprobs": 1, "extra_args": {"from": "client"}},
        prompt_logprobs=True,
        scope={"extra_fields": {"user": ["x"]}, "request_metadata": {"tenant": "t"}},
    )
    (seen,) = told["seen"]["one"]

    assert seen == {
        "request_id": "req",
        "prompt": "prompt",
        "generated_text": "abc",
        "finish_reason": "stop",
        "prompt_token_ids": [5, 6],
        "output_token_ids": [97, 98, 99],
        "extra_fields": ("dict", {"from": "client", "user": ["x"]}),
        "request_metadata": ("dict", {"priority": 3, "tenant": "t"}),
        "index": 0,
        "stop_reason": 7,
        "logprobs": [{97: (-0.5, 1, "a")}, {98: (-0.5, 1, "b")}, {99: (-0.5, 1, "c")}],
        "cumulative_logprob": -0.5,
        "prompt_logprobs": [None, {6: (-1.0, 2, "6")}],
    }


def test_texts_that_the_engine_does_not_decode_are_decoded(play: Play) -> None:
    """A request by token ids, for token ids, is scored by its texts all the same."""
    told = play(
        script=[(1.0, [{"text": "", "token_ids": [8, 9], "finish_reason": "stop"}])],
        hooks=[{"name": "one"}],
        params={"detokenize": False},
        prompt=None,
    )
    (seen,) = told["seen"]["one"]

    assert (seen["prompt"], seen["generated_text"]) == ("5 6", "8 9")


@pytest.mark.parametrize(
    ("answer", "text"), [({}, DEFAULT_REFUSAL), ({"replacement": "Not this."}, "Not this.")]
)
def test_a_blocked_answer_is_replaced(play: Play, answer: Told, text: str) -> None:
    """By the hook's text or by the default refusal; the scores say who did it."""
    told = play(script=deltas("so bad"), kind="FINAL_ONLY", hooks=[{**BLOCKER, "answer": answer}])

    assert texts(told) == [text]
    assert last(told)["finish_reason"] == "content_filter"
    assert scores(told) == {"blocker": {"block": True, **answer}}
    assert told["outputs"][-1]["finished"]


def test_a_replaced_answer_keeps_nothing_of_the_original(play: Play) -> None:
    """Tokens, log probabilities, reasons and whatever else vLLM attaches are gone."""
    completion = {
        "text": "so bad",
        "logprobs": "asked for",
        "finish_reason": "stop",
        "stop_reason": "bad",
        "routed_experts": [1],
        "sampling_mask": [2],
        "spec_decode_metrics": [3],
        "weight_versions": [4],
    }
    told = play(
        script=[(1.0, [completion])], kind="FINAL_ONLY", hooks=[BLOCKER], params={"logprobs": 1}
    )

    assert last(told) == {
        "index": 0,
        "text": DEFAULT_REFUSAL,
        "token_ids": [],
        "cumulative_logprob": None,
        "logprobs": [],
        "finish_reason": "content_filter",
        "stop_reason": None,
        "routed_experts": None,
        "lora_request": None,
        "sampling_mask": None,
        "spec_decode_metrics": None,
        "weight_versions": None,
    }
    assert told["outputs"][-1]["transfer"] is None


def test_in_a_stream_only_the_last_chunk_is_replaced(play: Play) -> None:
    """The hooks run once, on the whole text; what was sent stays sent."""
    told = play(script=deltas("so ", "ba", "d!"), hooks=[BLOCKER, {"name": "one"}])

    assert texts(told) == ["so ", "ba", DEFAULT_REFUSAL]
    assert [seen["generated_text"] for seen in told["seen"]["one"]] == ["so bad!"]


def test_a_cumulative_stream_ends_with_the_refusal_alone(play: Play) -> None:
    """Its last output stands for the whole answer."""
    told = play(script=deltas("so ", "so bad"), kind="CUMULATIVE", hooks=[BLOCKER])

    assert texts(told) == ["so ", DEFAULT_REFUSAL]


def test_deltas_that_merge_for_a_slow_reader_lose_nothing(play: Play) -> None:
    """The text is scored whole, and all that had not been sent is replaced."""
    told = play(script=deltas("a", "b", "c", "d", " bad"), hooks=[BLOCKER], pause=3.5)

    assert texts(told) == ["a", "bcd", DEFAULT_REFUSAL]
    assert told["seen"]["blocker"][0]["generated_text"] == "abcd bad"
    assert told["seen"]["blocker"][0]["output_token_ids"] == list(b"abcd bad")


@pytest.mark.parametrize("kind", ["DELTA", "CUMULATIVE"])
def test_a_stream_can_be_held(play: Play, kind: str) -> None:
    """Nothing goes out before the decision; then the chunks do, one by one, as they were."""
    given = ["so ", "good"] if kind == "DELTA" else ["so ", "so good"]
    told = play(
        script=deltas(*given),
        kind=kind,
        hooks=[{**BLOCKER, "takes": 0.5}],
        policy={"streaming": "hold"},
    )

    assert texts(told) == given
    assert [output["at"] for output in told["outputs"]] == [2.5, 2.5]


def test_a_held_stream_that_is_blocked_is_the_refusal_alone(play: Play) -> None:
    """Nothing of the original went out."""
    told = play(script=deltas("so ", "bad"), hooks=[BLOCKER], policy={"streaming": "hold"})

    assert texts(told) == [DEFAULT_REFUSAL]
    assert told["outputs"][0]["finished"]


def test_a_refusal_alone_says_of_the_prompt_what_the_first_chunk_would_have(play: Play) -> None:
    """What is known of the prompt comes with the first output, and that did not go out."""
    told = play(
        script=deltas("so ", "bad"),
        hooks=[BLOCKER],
        policy={"streaming": "hold"},
        prompt_logprobs=True,
    )

    assert [output["prompt_logprobs"] for output in told["outputs"]] == [[None, [6]]]


def test_annotations_hold_nothing(play: Play) -> None:
    """Without a blocking hook a stream goes out as it is generated."""
    told = play(script=deltas("a", "b"), hooks=[{"name": "one"}], policy={"streaming": "hold"})

    assert [output["at"] for output in told["outputs"]] == [1.0, 2.0]


def test_the_operator_words_the_default_refusal(play: Play) -> None:
    """The policy's text goes out where a hook has none."""
    told = play(script=deltas("bad"), hooks=[BLOCKER], policy={"refusal": "No."})

    assert texts(told) == ["No."]


def test_a_blocking_hook_that_times_out_closes(play: Play) -> None:
    """After its timeout the refusal goes out, and its error is in the scores."""
    told = play(script=deltas("fine"), hooks=[{**BLOCKER, "takes": 5.0}])

    assert texts(told) == [DEFAULT_REFUSAL]
    assert scores(told)["blocker"]["error"]["type"] == "timeout"
    assert 2.0 <= told["outputs"][-1]["at"] <= 2.0 + MARGIN


def test_all_completions_of_a_request_are_scored(play: Play) -> None:
    """Of several that arrive together, only the blocked one is replaced."""
    script = [
        (1.0, [{"index": 0, "text": "fine", "finish_reason": "stop"}]),
        (1.0, [{"index": 1, "text": "bad", "finish_reason": "stop"}]),
    ]
    # vLLM sends the two as one output; so does its collector, for a reader that starts late.
    told = play(script=script, n=2, kind="CUMULATIVE", hooks=[BLOCKER, {"name": "one"}])

    assert texts(told, 0) == ["fine"]
    assert texts(told, 1) == [DEFAULT_REFUSAL]
    assert scores(told)["one"] == {0: {"length": 4}, 1: {"length": 3}}
    assert scores(told)["blocker"] == {0: {"block": False}, 1: {"block": True}}
    assert [output["finished"] for output in told["outputs"]] == [False, True]


def test_completions_that_arrive_together_are_decided_together(play: Play) -> None:
    """The one output of a request that is not streamed has both, one of them replaced."""
    both = [
        {"index": 0, "text": "fine", "finish_reason": "stop"},
        {"index": 1, "text": "bad", "finish_reason": "length"},
    ]
    told = play(script=[(1.0, both)], n=2, kind="FINAL_ONLY", hooks=[{**BLOCKER, "takes": 0.5}])
    (output,) = told["outputs"]

    assert output["at"] == 1.5
    assert [one["text"] for one in output["completions"]] == ["fine", DEFAULT_REFUSAL]
    assert [one["finish_reason"] for one in output["completions"]] == ["stop", "content_filter"]
    assert output["metadata"]["external_scores"] == {
        "blocker": {0: {"block": False}, 1: {"block": True}}
    }


def test_a_decision_about_one_completion_holds_up_no_other(play: Play) -> None:
    """While hooks decide about the first, the second goes on, and ends last."""
    script = [
        (1.0, [{"index": 0, "text": "a"}, {"index": 1, "text": "x"}]),
        (1.0, [{"index": 0, "text": "b", "finish_reason": "stop"}, {"index": 1, "text": "y"}]),
        (1.0, [{"index": 1, "text": "z"}]),
        (4.0, [{"index": 1, "text": "!", "finish_reason": "stop"}]),
    ]
    told = play(script=script, n=2, hooks=[{"name": "one", "takes": 2.0, "timeout_ms": 9000}])

    assert texts(told, 0) == ["a", "b"]
    assert texts(told, 1) == ["x", "y", "z", "!"]
    sent = [
        (output["at"], [one["text"] for one in output["completions"]]) for output in told["outputs"]
    ]
    assert sent == [
        (1.0, ["a", "x"]),
        (2.0, ["y"]),
        (3.0, ["z"]),
        (4.0, ["b"]),
        (9.0, ["!"]),
    ]
    assert [output["finished"] for output in told["outputs"]] == [False] * 4 + [True]


def test_the_last_decision_ends_the_request(play: Play) -> None:
    """If the first completion to finish is the last to be decided, it goes out last."""
    script = [
        (1.0, [{"index": 0, "text": "slow", "finish_reason": "stop"}]),
        (0.5, [{"index": 1, "text": "bad", "finish_reason": "stop"}]),
    ]
    told = play(script=script, n=2, hooks=[{**BLOCKER, "takes": 1.0}], policy={"streaming": "hold"})

    assert [output["at"] for output in told["outputs"]] == [2.0, 2.5]
    assert [output["finished"] for output in told["outputs"]] == [False, True]
    assert texts(told, 1) == [DEFAULT_REFUSAL]


def test_several_held_completions_are_released_each_with_its_own_decision(play: Play) -> None:
    """The chunks of one go out together, and those of a blocked one do not."""
    script = [
        (1.0, [{"index": 0, "text": "a"}, {"index": 1, "text": "b"}]),
        (1.0, [{"index": 0, "text": "ad", "finish_reason": "stop"}, {"index": 1, "text": "ad"}]),
        (1.0, [{"index": 1, "text": "!", "finish_reason": "stop"}]),
    ]
    told = play(script=script, n=2, hooks=[BLOCKER], policy={"streaming": "hold"})

    assert texts(told, 0) == ["a", "ad"]
    assert texts(told, 1) == [DEFAULT_REFUSAL]
    assert [output["at"] for output in told["outputs"]] == [2.0, 2.0, 3.0]


@pytest.mark.parametrize("n", [1, 2])
def test_an_aborted_request_is_not_scored(play: Play, n: int) -> None:
    """Its end goes out as vLLM has it, and no hook is asked."""
    told = play(script=deltas("a", "b", "c"), n=n, hooks=[{"name": "one"}], abort_at=1.5)

    assert told["seen"] == {"one": []}
    assert last(told)["finish_reason"] == "abort"
    assert told["outputs"][-1]["metadata"] is None


def test_an_abort_cancels_hooks_at_work(play: Play) -> None:
    """Who aborts while hooks run gets an aborted request, and no text that was not judged."""
    told = play(
        script=deltas("a", "b"),
        hooks=[{**BLOCKER, "takes": 5.0, "timeout_ms": 9000}],
        abort_at=2.5,
    )

    assert texts(told) == ["a", ""]
    assert last(told)["finish_reason"] == "abort"
    assert told["outputs"][-1]["at"] == 2.5
    assert told["events"] == [("CallEnded", "blocker", "cancelled")]


def test_an_abort_under_annotations_leaves_the_text(play: Play) -> None:
    """Nobody was to judge it."""
    told = play(
        script=deltas("a", "b"),
        hooks=[{"name": "one", "takes": 5.0, "timeout_ms": 9000}],
        abort_at=2.5,
    )

    assert texts(told) == ["a", "b"]
    assert last(told)["finish_reason"] == "abort"


def test_an_aborted_answer_that_was_to_be_judged_is_kept_back(play: Play) -> None:
    """What had not gone out by the abort does not go out unscored."""
    script = [(1.0, [{"text": "so bad", "finish_reason": "abort"}])]
    told = play(script=script, kind="FINAL_ONLY", hooks=[BLOCKER])

    assert texts(told) == [""]
    assert last(told)["finish_reason"] == "abort"
    assert told["seen"] == {"blocker": []}


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("at", [0.5, 2.5])
def test_a_client_that_goes_away_takes_the_hooks_with_it(play: Play, n: int, at: float) -> None:
    """Cancelling the reader cancels hooks and request; no task is left."""
    script = [
        *deltas("a", "b"),
        *([(5.0, [{"index": 1, "text": "x", "finish_reason": "stop"}])] if n > 1 else []),
    ]
    told = play(
        script=script,
        n=n,
        hooks=[{"name": "one", "takes": 5.0, "timeout_ms": 9000}],
        cancel_at=at,
    )

    assert told["cancelled"]
    assert told["at"] == at
    assert told["aborted"] == ["req"]
    assert [outcome for _, _, outcome in told["events"]] == ([] if at < 2 else ["cancelled"])


def test_a_reader_that_stops_reading_aborts_the_request(play: Play) -> None:
    """Closing the outputs closes vLLM's, which aborts in the engine."""
    told = play(script=deltas("a", "b", "c"), hooks=[{"name": "one"}], close_after=1)

    assert told["aborted"] == ["req"]
    assert told["seen"] == {"one": []}


def test_a_finished_request_is_not_aborted(play: Play) -> None:
    """A reader that reads to the end leaves vLLM nothing to abort."""
    for n in (1, 2):
        both = [(1.0, [{"index": i, "text": "x", "finish_reason": "stop"} for i in range(n)])]
        assert play(script=both, n=n, hooks=[{"name": "one"}])["aborted"] == []


def test_without_hooks_outputs_are_those_of_vllm(play: Play) -> None:
    """The same request, without hooks: the comparison for all of the above."""
    told = play(script=deltas("so ", "bad"), hooks=[])

    assert texts(told) == ["so ", "bad"]
    assert told["outputs"][-1]["metadata"] is None


def test_a_beam_search_that_was_wrapped_is_found_again() -> None:
    """The hooks of a second engine do not take it for missing."""

    async def search(self: object, prompt: object, params: object) -> AsyncGenerator[object, None]:
        yield (self, prompt, params)

    assert beam_search._searches(search)
    assert beam_search._searches(beam_search._scoring(search))
    assert not beam_search._searches(len)
