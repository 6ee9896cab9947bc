# SPDX-License-Identifier: Apache-2.0
"""Fifty clients of a real server whose hooks are slow, raise, take too long and block."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import httpx
import pytest
from support import ROOT

from conformance.classifier_hook.clients import WAYS, Question, Way, asked, together
from conformance.engine.models import tiny_llama
from conformance.engine.server import Server
from reference_plugins.classifier_hook.contract import DEFAULT_REFUSAL, MARGIN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conformance.classifier_hook.live import Answer

pytestmark = [pytest.mark.server, pytest.mark.slow]

PLUGIN = {"vllm.general_plugins": {"classifier_hook": "reference_plugins.classifier_hook:install"}}
HOOKS = ("Number", "Raising", "Late", "Third")
MIDDLEWARE = "--middleware=reference_plugins.classifier_hook.body.ScoresInBody"
CROWD = 50
LEAVING = 20

#: Seconds that a stall may last: far below the seconds that a lost request waits for.
STALL = 2.0


@attrs.frozen
class Running:
    """A server, and how it treats streams."""

    url: str
    model_name: str
    log: Path
    streaming: str


@pytest.fixture(scope="module", params=["final", "hold"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """Start a server whose hooks are all of these, that holds streams or does not."""
    folder = tmp_path_factory.mktemp("server")
    with Server.start(
        tiny_llama(),
        log=folder / "log",
        python_path=[ROOT, Path(__file__).parent],
        entry_points=PLUGIN,
        environment={
            "CLASSIFIER_HOOKS": ",".join(f"unruly_hooks:{name}" for name in HOOKS),
            "CLASSIFIER_HOOKS_STREAMING": request.param,
        },
        arguments=[MIDDLEWARE, "--max-num-seqs=64", "--max-model-len=512"],
    ) as started:
        started.wait_healthy()
        yield Running(started.url, started.model_name, started.log, request.param)


def said(number: int) -> str:
    """Return what the model is made to say in one conversation."""
    return f"The number is {number}."


def wanted(number: int) -> tuple[str, str]:
    """Return what goes out of it in the end, and the finish reason."""
    if number % 7 == 0:
        return DEFAULT_REFUSAL, "content_filter"
    if number % 3 == 0:
        return f"Withheld: {number}.", "content_filter"
    return said(number), "stop"


def check(answer: Answer, number: int, way: Way, streaming: str) -> None:
    """Say in what an answer is not that of its own conversation."""
    assert not answer.error
    text, reason = wanted(number)
    assert answer.reason == reason
    if way.stream and streaming == "final" and reason == "content_filter":
        # What was sent before stays sent, and may be all of it: the last chunk of a text ends it.
        assert answer.text.endswith(text)
        assert said(number).startswith(answer.text.removesuffix(text))
    else:
        assert answer.text == text
        assert reason == "stop" or said(number) not in answer.whole
        assert reason == "stop" or answer.tokens == 0
    assert answer.scores is not None
    assert set(answer.scores) == {"number", "raising", "late", "third"}
    assert answer.scores["number"]["number"] == number
    assert f"id-{number}" in answer.scores["number"]["id"]
    error = answer.scores["raising"].get("error", {}).get("type")
    assert error == ("exception" if number % 2 else None)
    if number % 5 == 0:
        assert answer.scores["late"]["error"]["type"] == "timeout"
    assert ("error" in answer.scores["third"]) is (number % 7 == 0)


def questions() -> list[Question]:
    """Return the questions of fifty clients, in every way."""
    return [
        Question(said(n), WAYS[n % len(WAYS)], f"id-{n}", max_tokens=120)
        for n in range(1, CROWD + 1)
    ]


def test_fifty_clients_each_get_their_own(server: Running) -> None:
    """Nothing is lost, nothing is mixed up, and nothing of what was blocked is left."""
    mine = questions()
    answers = asyncio.run(together(server.url, server.model_name, mine))

    for number, (answer, question) in enumerate(zip(answers, mine, strict=True), 1):
        check(answer, number, question.way, server.streaming)


def test_clients_that_leave_take_nobody_along(server: Running) -> None:
    """Beside twenty that disconnect fifty get their own, and afterwards nothing is at work."""
    mine = questions()
    leaving = [
        Question(said(n), WAYS[n % len(WAYS)], leaves=0.03 * (1 + n % 8)) for n in range(LEAVING)
    ]

    async def ask() -> list[Answer]:
        every = (together(server.url, server.model_name, each) for each in (leaving, mine))
        return (await asyncio.gather(*every))[1]

    for number, (answer, question) in enumerate(zip(asyncio.run(ask()), mine, strict=True), 1):
        check(answer, number, question.way, server.streaming)
    deadline = time.monotonic() + 10
    while _running(server) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert _running(server) == 0


def test_a_late_hook_stalls_nobody(server: Running) -> None:
    """The server answers what needs no hook at once, also while hooks wait for ever.

    A busy machine stalls as well, but not each time.
    """
    stalls = []
    for _ in range(3):
        answers, longest = asyncio.run(_pinged(server))
        assert all(
            (answer.scores or {})["late"]["error"]["type"] == "timeout" for answer in answers
        )
        stalls.append(longest)
        if longest < STALL:
            break

    assert min(stalls) < STALL


async def _pinged(server: Running) -> tuple[list[Answer], float]:
    """Ask many questions; return the answers, and the longest wait for what needs no hook."""
    over, longest = asyncio.Event(), 0.0

    async def ping() -> None:
        nonlocal longest
        async with httpx.AsyncClient(timeout=30, trust_env=False) as http:
            while not over.is_set():
                began = time.perf_counter()
                (await http.get(f"{server.url}/health")).raise_for_status()
                longest = max(longest, time.perf_counter() - began)
                await asyncio.sleep(0.02)

    pinging = asyncio.ensure_future(ping())
    late = [Question(said(5 * n), request_id=f"id-{5 * n}") for n in range(1, CROWD + 1)]
    answers = await together(server.url, server.model_name, late)
    over.set()
    await pinging
    return answers, longest


def test_a_late_hook_holds_its_own_answer_for_its_timeout(server: Running) -> None:
    """One answer at a time: the timeout and the margin, and not much more than without it."""

    async def ask(number: int) -> float:
        question = Question(said(number), request_id=f"id-{number}")
        began = time.perf_counter()
        (answer,) = await asked(server.url, server.model_name, [question])
        check(answer, number, WAYS[0], server.streaming)
        return time.perf_counter() - began

    # Texts of the same length that nobody blocks; of one of them a hook is late.
    least = min(asyncio.run(ask(22)) for _ in range(4))
    held = min(asyncio.run(ask(20)) for _ in range(4)) - least
    assert held < 0.1 + MARGIN + 0.5


def test_the_log_says_what_hooks_did(server: Running) -> None:
    """Each failure is named once, and no error of vLLM's own is among them."""
    failing = [Question(said(n), request_id=f"id-{n}") for n in (5, 11)]
    asyncio.run(together(server.url, server.model_name, failing))
    log = server.log.read_text(encoding="utf-8")

    assert "Classifier hook 'late': timeout, no scores within 100 ms" in log
    assert "Classifier hook 'raising': exception, RuntimeError: odd:" in log
    assert "Traceback" not in log
    assert "Task was destroyed but it is pending" not in log


def _running(server: Running) -> float:
    """Return how many requests vLLM says that it works on."""
    return sum(
        float(line.rpartition(" ")[2])
        for line in httpx.get(f"{server.url}/metrics").text.splitlines()
        if line.startswith(("vllm:num_requests_running{", "vllm:num_requests_waiting{"))
    )
