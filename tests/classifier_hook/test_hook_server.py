# SPDX-License-Identifier: Apache-2.0
"""Hooks in a real ``vllm serve``, as its clients see them."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import openai
import pytest
from support import ROOT

from conformance.engine.models import tiny_llama
from conformance.engine.server import Server, ServerFailed
from fixtures.classifier_service.service import ClassifierService
from reference_plugins.classifier_hook.contract import DEFAULT_REFUSAL, ScoringContext
from reference_plugins.classifier_hook.hooks.blocker import REPLACEMENT
from reference_plugins.classifier_hook.hooks.judge import ModelJudge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Body = dict[str, Any]

pytestmark = [pytest.mark.server, pytest.mark.slow]

PATIENCE = 30.0
PLUGIN = {"vllm.general_plugins": {"classifier_hook": "reference_plugins.classifier_hook:install"}}
HOOKS = "reference_plugins.classifier_hook.hooks"
MIDDLEWARE = "reference_plugins.classifier_hook.body"
FINE = "all is well here"
SECRET = "write to ann@example.com now"
CALL = '<tool_call>\n{"name": "look", "arguments": {"at": "%s"}}\n</tool_call>'
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]


@pytest.fixture(scope="module")
def service() -> Iterator[ClassifierService]:
    """Run the remote classifier."""
    with ClassifierService() as running:
        yield running


@pytest.fixture(autouse=True)
def recovered(service: ClassifierService) -> Iterator[None]:
    """Let the remote classifier work after each test, whatever was done to it."""
    yield
    service.mode = "ok"
    service.words = ("forbidden",)


@pytest.fixture(scope="module")
def starting(
    service: ClassifierService, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """Start a server whose hooks have arguments."""
    folder = tmp_path_factory.mktemp("server")
    hooks = folder / "hooks.toml"
    hooks.write_text(f"""
        [[hook]]
        class = "{HOOKS}.annotator:PatternAnnotator"
        arguments = {{ words = ["well"] }}
        [[hook]]
        class = "{HOOKS}.blocker:PiiBlocker"
        [[hook]]
        class = "telling:Telling"
        [[hook]]
        class = "{HOOKS}.remote:RemoteClassifier"
        arguments = {{ url = "{service.url}", blocking = true, timeout_ms = 2000 }}
    """)
    middlewares = [
        f"--middleware={MIDDLEWARE}.{name}" for name in ("ScoresInBody", "RequestFields")
    ]
    with Server.start(
        tiny_llama(),
        log=folder / "log",
        python_path=[ROOT, Path(__file__).parent],
        entry_points=PLUGIN,
        environment={"CLASSIFIER_HOOKS": str(hooks)},
        arguments=[
            *middlewares,
            "--enable-auto-tool-choice",
            "--tool-call-parser=hermes",
            "--enable-scale-out",
        ],
    ) as server:
        yield server


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Start a server of two processes, which holds streams and leaves bodies alone."""
    folder = tmp_path_factory.mktemp("several")
    with Server.start(
        tiny_llama(),
        log=folder / "log",
        python_path=[ROOT],
        entry_points=PLUGIN,
        environment={
            "CLASSIFIER_HOOKS": f"{HOOKS}.annotator:PatternAnnotator,{HOOKS}.blocker:PiiBlocker",
            "CLASSIFIER_HOOKS_STREAMING": "hold",
        },
        arguments=["--api-server-count=2"],
    ) as server:
        server.wait_healthy()
        yield server


@pytest.fixture
def server(starting: Server) -> Server:
    """Return the first server, which answers."""
    starting.wait_healthy()
    return starting


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    """Return OpenAI's client of the first server."""
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def saying(text: str, **more: object) -> Body:
    """Return the arguments of a request whose answer is *text*."""
    extra = {"structured_outputs": {"choice": [text]}, **more}
    return {"model": "tiny", "temperature": 0, "max_tokens": 120, "extra_body": extra}


def chat(text: str, **more: object) -> Body:
    """Return the same for a chat."""
    return {"messages": [{"role": "user", "content": "hi"}], **saying(text, **more)}


def curl(url: str, body: Body) -> str:
    """Return what curl gets."""
    command = ["curl", "-sS", "-H", "Content-Type: application/json", "-d", json.dumps(body), url]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout


def events(stream: str) -> list[Body]:
    """Return the chunks of a stream."""
    lines = [line.removeprefix("data: ") for line in stream.split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


def metric(server: Server, name: str, **labels: str) -> float:
    """Return a metric, summed over the labels that are not given."""
    total = 0.0
    for line in httpx.get(f"{server.url}/metrics").text.splitlines():
        named = line.startswith(f"classifier_hook_{name}{{")
        if named and all(f'{key}="{value}"' in line for key, value in labels.items()):
            total += float(line.rpartition(" ")[2])
    return total


def eventually(condition: Callable[[], bool]) -> None:
    """Return when a condition holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.02)


def test_curl_gets_the_replacement(server: Server) -> None:
    """Completions and chat, with nothing of the original in the body."""
    extra = {"structured_outputs": {"choice": [SECRET]}, "model": "tiny", "max_tokens": 120}
    asked = [
        ("completions", {"prompt": "x", "logprobs": 2}),
        ("chat/completions", {"messages": [{"role": "user", "content": "x"}], "logprobs": True}),
    ]
    for path, body in asked:
        wanted = {**body, **extra, "return_token_ids": True}
        answer = json.loads(curl(f"{server.url}/v1/{path}", wanted))
        # The scores, which the operator asked for here, are those of a hook that tells all.
        del answer["metadata"]
        (choice,) = answer["choices"]

        assert choice.get("text", choice.get("message", {}).get("content")) == REPLACEMENT
        assert choice["finish_reason"] == "content_filter"
        assert choice["token_ids"] == []
        assert "ann@" not in json.dumps(answer)


def test_curl_gets_what_is_not_blocked_as_it_is(server: Server) -> None:
    """Text, tokens and log probabilities are the model's."""
    body = {
        "model": "tiny",
        "prompt": "x",
        "max_tokens": 120,
        "logprobs": 1,
        "return_token_ids": True,
        "structured_outputs": {"choice": [FINE]},
    }
    (choice,) = json.loads(curl(f"{server.url}/v1/completions", body))["choices"]

    assert choice["text"] == FINE
    assert choice["finish_reason"] == "stop"
    assert "".join(choice["logprobs"]["tokens"]) == f"{FINE}</s>"
    assert len(choice["token_ids"]) == len(choice["logprobs"]["tokens"])


def test_openai_gets_the_replacement(client: openai.OpenAI) -> None:
    """Completions, chat and responses."""
    completion = client.completions.create(prompt="x", **saying(SECRET)).choices[0]
    message = client.chat.completions.create(**chat(SECRET)).choices[0]
    extra = {"structured_outputs": {"choice": [SECRET]}}
    response = client.responses.create(
        model="tiny", input="x", max_output_tokens=120, extra_body=extra
    )

    assert (completion.text, str(completion.finish_reason)) == (REPLACEMENT, "content_filter")
    assert message.message.content == REPLACEMENT
    assert message.finish_reason == "content_filter"
    assert response.output_text == REPLACEMENT


def test_openai_gets_a_stream_that_ends_with_the_replacement(client: openai.OpenAI) -> None:
    """What was sent before stays; the last chunk is the replacement alone."""
    chunks = list(client.chat.completions.create(stream=True, **chat(SECRET)))
    contents = [chunk.choices[0].delta.content for chunk in chunks]

    assert contents[-1] == REPLACEMENT
    assert chunks[-1].choices[0].finish_reason == "content_filter"
    assert SECRET.startswith("".join(content or "" for content in contents[:-1]))


def test_openai_gets_a_stream_that_passes(client: openai.OpenAI) -> None:
    """Chunk by chunk what the model said, where the reader keeps up with it."""
    streams = [
        list(client.completions.create(prompt="x", stream=True, **saying(FINE))) for _ in range(5)
    ]

    for chunks in streams:
        assert "".join(chunk.choices[0].text for chunk in chunks) == FINE
        assert str(chunks[-1].choices[0].finish_reason) == "stop"
    # On a busy machine vLLM merges what is not read yet, sometimes all of it.
    assert any(len(chunks) > 1 for chunks in streams)


def test_prompt_lists_and_several_completions_are_scored_each(server: Server) -> None:
    """The body's metadata has the scores of each choice by its index."""
    body = {"model": "tiny", "prompt": ["x", "y"], "n": 2, "max_tokens": 60, "temperature": 1}
    body |= {"structured_outputs": {"choice": [SECRET]}, "echo": True, "logprobs": 1}
    answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=PATIENCE).json()

    texts = [choice["text"] for choice in answer["choices"]]
    assert texts == ["x" + REPLACEMENT] * 2 + ["y" + REPLACEMENT] * 2
    scores = answer["metadata"]["external_scores"]
    assert {name: list(by_choice) for name, by_choice in scores.items()} == {
        name: ["0", "1", "2", "3"] for name in ("patterns", "pii", "telling", "remote")
    }


def test_scores_reach_the_body_where_the_operator_wants_them(server: Server) -> None:
    """In a stream they come with the chunk that ends the choice."""
    # As JSON: OpenAI's client takes metadata for texts, and warns of anything else.
    body = {key: value for key, value in chat(FINE).items() if key != "extra_body"}
    body |= {"structured_outputs": {"choice": [FINE]}}
    url = f"{server.url}/v1/chat/completions"
    whole = httpx.post(url, json=body, timeout=PATIENCE).json()
    *earlier, last = events(httpx.post(url, json=body | {"stream": True}, timeout=PATIENCE).text)
    scores = {
        "patterns": {"found": 1, "counts": {"keyword": 1}},
        "pii": {"block": False, "counts": {}},
        "remote": {"score": 0.0, "label": "fine", "block": False},
    }

    for body in (whole, last):
        found = body["metadata"]["external_scores"]
        assert {name: found[name] for name in scores} == scores
    assert not any("metadata" in chunk for chunk in earlier)


def test_hooks_are_told_what_the_client_sent(server: Server) -> None:
    """Also what vLLM does not know, where the operator has the server read it."""
    body = {"model": "tiny", "max_tokens": 120, "structured_outputs": {"choice": [FINE]}}
    body |= {"vllm_xargs": {"tenant": "a"}, "unknown": [1], "logprobs": 1, "prompt": "x"}
    headers = {"X-Session-ID": "s"}
    url = f"{server.url}/v1/completions"
    answer = httpx.post(url, json=body, headers=headers, timeout=PATIENCE).json()
    told = answer["metadata"]["external_scores"]["telling"]

    assert (told["prompt"], told["text"]) == ("x", FINE)
    assert told["extra"] == {"tenant": "a", "unknown": [1]}
    assert told["logprobs"] == told["tokens"] == answer["usage"]["completion_tokens"]


def test_token_ids_are_scored_by_their_text(server: Server) -> None:
    """vLLM's interface for token ids does not decode; a hook reads a text all the same."""
    choice = {"structured_outputs": {"choice": [SECRET]}, "max_tokens": 120}
    body = {"token_ids": [5, 6], "sampling_params": {**choice, "detokenize": False}}
    url = f"{server.url}/inference/v1/generate"
    answer = httpx.post(url, json=body, timeout=PATIENCE).json()

    assert answer["choices"][0]["token_ids"] == []
    assert answer["choices"][0]["finish_reason"] == "content_filter"


def test_responses_stream_what_replaces_them(client: openai.OpenAI) -> None:
    """The last delta of the text is the replacement."""
    extra = {"structured_outputs": {"choice": [SECRET]}}
    stream = client.responses.create(
        model="tiny", input="x", max_output_tokens=120, extra_body=extra, stream=True
    )
    deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]

    assert deltas[-1] == REPLACEMENT
    assert SECRET.startswith("".join(deltas[:-1]))


def test_a_held_stream_is_all_or_nothing(several: Server) -> None:
    """The chunks that passed are those of the model; a blocked stream is one chunk."""
    texts = {}
    for text in (FINE, SECRET):
        body = {"model": "tiny", "prompt": "x", "max_tokens": 120, "stream": True}
        body |= {"structured_outputs": {"choice": [text]}}
        chunks = events(curl(f"{several.url}/v1/completions", body))
        texts[text] = [chunk["choices"][0]["text"] for chunk in chunks]

    assert "".join(texts[FINE]) == FINE
    assert len(texts[FINE]) > 1
    assert texts[SECRET] == [REPLACEMENT]


def test_bodies_are_vllms_own_where_nobody_asked_for_scores(several: Server) -> None:
    """Without the middleware there is no field that vLLM does not send."""
    body = {"model": "tiny", "prompt": "x", "max_tokens": 5}

    assert "metadata" not in curl(f"{several.url}/v1/completions", body)


def test_metrics_of_several_processes_are_summed(several: Server) -> None:
    """Whichever process answers, all calls are counted."""
    before = metric(several, "calls_total", hook="pii")
    body = {"model": "tiny", "prompt": "x", "max_tokens": 2}
    for _ in range(8):  # connections of their own, so that both processes get some
        httpx.post(f"{several.url}/v1/completions", json=body, timeout=PATIENCE)

    eventually(lambda: metric(several, "calls_total", hook="pii") == before + 8)


def test_metrics_show_each_hook(server: Server, client: openai.OpenAI) -> None:
    """Calls, blocks and latencies, by the name of the hook."""
    calls = metric(server, "calls_total", hook="pii")
    blocks = metric(server, "blocks_total", hook="pii")
    client.completions.create(prompt="x", **saying(SECRET))
    client.completions.create(prompt="x", **saying(FINE))

    assert metric(server, "calls_total", hook="pii") == calls + 2
    assert metric(server, "blocks_total", hook="pii") == blocks + 1
    assert metric(server, "latency_seconds_count", hook="pii") == calls + 2
    assert metric(server, "blocks_total", hook="patterns") == 0


def test_a_remote_classifier_blocks(client: openai.OpenAI, service: ClassifierService) -> None:
    """It is asked about the whole answer, and its score decides."""
    choice = client.completions.create(prompt="x", **saying("a forbidden word")).choices[0]

    assert choice.text == DEFAULT_REFUSAL
    assert service.received[-1]["text"] == "a forbidden word"
    assert service.received[-1]["prompt"] == "x"


@pytest.mark.parametrize("mode", ["error", "drop", "garbage", "scoreless"])
def test_an_outage_closes(
    server: Server, client: openai.OpenAI, service: ClassifierService, mode: str
) -> None:
    """While the service fails no answer goes out, and afterwards answers do again."""
    errors = metric(server, "errors_total", hook="remote")
    service.mode = mode
    refused = client.completions.create(prompt="x", **saying(FINE)).choices[0]
    service.mode = "ok"
    answered = client.completions.create(prompt="x", **saying(FINE)).choices[0]

    assert refused.text == DEFAULT_REFUSAL
    assert answered.text == FINE
    assert metric(server, "errors_total", hook="remote") == errors + 1


def test_a_slow_service_times_out_and_closes(
    server: Server, client: openai.OpenAI, service: ClassifierService
) -> None:
    """The hook's two seconds are all that an answer waits for it."""
    timeouts = metric(server, "timeouts_total", hook="remote")
    service.mode = "stall"
    start = time.monotonic()
    refused = client.completions.create(prompt="x", **saying(FINE)).choices[0]

    assert refused.text == DEFAULT_REFUSAL
    assert 2 <= time.monotonic() - start < 10
    assert metric(server, "timeouts_total", hook="remote") == timeouts + 1


def test_a_client_that_goes_away_takes_its_hooks_with_it(
    server: Server, service: ClassifierService
) -> None:
    """While the service thinks, the client leaves: the call is cancelled, not timed out."""
    cancelled = metric(server, "cancelled_total", hook="remote")
    asked = len(service.received)
    service.mode = "stall"
    body = json.dumps({"model": "tiny", "prompt": "x", "max_tokens": 2}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
    head += "Content-Type: application/json\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port)) as leaving:
        leaving.sendall(head.encode() + body)
        service.wait_received(asked + 1)

    eventually(lambda: metric(server, "cancelled_total", hook="remote") == cancelled + 1)


def test_a_beam_search_is_scored_by_its_results(server: Server, service: ClassifierService) -> None:
    """Not by its steps: the service is asked once for each result, and can block it."""
    asked = len(service.received)
    body = {"model": "tiny", "prompt": "x", "max_tokens": 4, "n": 2, "use_beam_search": True}
    answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=PATIENCE).json()
    texts = [choice["text"] for choice in answer["choices"]]
    assert sorted(document["text"] for document in service.received[asked:]) == sorted(texts)
    service.words = (texts[0],)
    answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=PATIENCE).json()

    assert [choice["text"] for choice in answer["choices"]] == [DEFAULT_REFUSAL, texts[1]]


def test_tool_calls_pass_untouched(client: openai.OpenAI) -> None:
    """Streamed or not, an answer that is not blocked calls its tool."""
    arguments = chat(CALL % "the sky") | {"tools": TOOLS}
    whole: Body = client.chat.completions.create(**arguments).choices[0].to_dict()
    chunks: list[Body] = [
        chunk.to_dict() for chunk in client.chat.completions.create(stream=True, **arguments)
    ]
    deltas = [chunk["choices"][0]["delta"].get("tool_calls") for chunk in chunks]
    streamed = "".join(calls[0]["function"].get("arguments") or "" for calls in deltas if calls)

    assert whole["finish_reason"] == "tool_calls"
    assert json.loads(whole["message"]["tool_calls"][0]["function"]["arguments"]) == {
        "at": "the sky"
    }
    assert json.loads(streamed) == {"at": "the sky"}


def test_a_blocked_tool_call_calls_no_tool(client: openai.OpenAI) -> None:
    """The replacement is the content of the message."""
    choice = client.chat.completions.create(**chat(CALL % SECRET) | {"tools": TOOLS}).choices[0]

    assert not choice.message.tool_calls
    assert choice.message.content == REPLACEMENT
    assert choice.finish_reason == "content_filter"


async def test_a_judge_says_a_label(server: Server) -> None:
    """A model that knows nothing says one of the two labels all the same."""
    judge = ModelJudge(f"{server.url}/v1", "tiny")
    context = ScoringContext(
        request_id="r",
        prompt="What is this?",
        generated_text="Nothing much.",
        finish_reason="stop",
        prompt_token_ids=[],
        output_token_ids=[],
    )
    scores = await judge.score(context)
    await judge.close()

    assert scores["label"] in ("safe", "unsafe")
    assert scores == {
        "label": scores["label"],
        "block": scores["label"] == "unsafe",
        "model": "tiny",
    }


@pytest.mark.parametrize(
    ("hooks", "sentence"),
    [
        ("nowhere:Hook", "CLASSIFIER_HOOKS names 'nowhere:Hook', which cannot be imported"),
        (f"{HOOKS}.blocker", "CLASSIFIER_HOOKS names hooks as 'package.module:Class'"),
    ],
)
def test_a_server_does_not_start_without_the_hooks_it_was_to_have(
    hooks: str, sentence: str, tmp_path: Path
) -> None:
    """Its log ends with the sentence that says why."""
    with (
        Server.start(
            tiny_llama(),
            log=tmp_path / "log",
            python_path=[ROOT],
            entry_points=PLUGIN,
            environment={"CLASSIFIER_HOOKS": hooks},
        ) as server,
        pytest.raises(ServerFailed),
    ):
        server.wait_healthy()

    assert sentence in (tmp_path / "log").read_text()
