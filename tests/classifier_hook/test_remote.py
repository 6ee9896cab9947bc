# SPDX-License-Identifier: Apache-2.0
"""The remote classifier and the service that it asks."""

from __future__ import annotations

import asyncio
import gc
import warnings
from typing import TYPE_CHECKING, Any, Literal

import httpx
import pytest

from fixtures.classifier_service.service import ClassifierService
from reference_plugins.classifier_hook.contract import ScoringContext, Verdict
from reference_plugins.classifier_hook.dispatch import Dispatcher
from reference_plugins.classifier_hook.hooks.remote import RemoteClassifier
from reference_plugins.classifier_hook.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Iterator

CONTEXT = ScoringContext(
    request_id="r",
    prompt="a question",
    generated_text="a forbidden word",
    finish_reason="stop",
    prompt_token_ids=[],
    output_token_ids=[],
)


@pytest.fixture
def service() -> Iterator[ClassifierService]:
    """Run the service."""
    with ClassifierService() as running:
        yield running


def ask(hook: RemoteClassifier) -> Verdict:
    """Score the context with one hook."""

    async def main() -> Verdict | None:
        try:
            return await Dispatcher().start(Registry([hook]).entries, CONTEXT).verdict()
        finally:
            await hook.close()

    verdict = asyncio.run(main())
    assert verdict is not None
    return verdict


def error(verdict: Verdict) -> tuple[str, str]:
    """Return the type and the message of the hook's error."""
    told = verdict.scores["remote"]["error"]
    return told["type"], told["message"]


def test_the_service_is_told_of_the_completion(service: ClassifierService) -> None:
    """And its answer, with the decision, is the score."""
    verdict = ask(RemoteClassifier(service.url, blocking=True, timeout_ms=20_000))

    assert service.received == [
        {"request_id": "r", "prompt": "a question", "text": "a forbidden word"}
    ]
    assert verdict.scores["remote"] == {"score": 1.0, "label": "bad", "block": True}
    assert verdict.blocker == "remote"


def test_the_threshold_decides(service: ClassifierService) -> None:
    """A score below it lets the answer through."""
    hook = RemoteClassifier(service.url, blocking=True, threshold=1.1, timeout_ms=20_000)
    assert ask(hook).blocker is None


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("error", "503"),
        ("drop", "RemoteProtocolError"),
        ("garbage", "JSONDecodeError"),
        ("scoreless", "answered without a score"),
    ],
)
@pytest.mark.parametrize(("on_error", "blocker"), [("block", "remote"), ("allow", None)])
def test_an_outage_is_an_error_of_the_hook(
    service: ClassifierService,
    mode: str,
    message: str,
    on_error: Literal["block", "allow"],
    blocker: str | None,
) -> None:
    """Whether it closes is the hook's choice."""
    service.mode = mode
    hook = RemoteClassifier(service.url, blocking=True, on_error=on_error, timeout_ms=20_000)
    verdict = ask(hook)

    assert error(verdict)[0] == "exception"
    assert message in error(verdict)[1]
    assert verdict.blocker == blocker


def test_a_service_that_is_not_there_is_an_error_of_the_hook() -> None:
    """As a port where nobody listens."""
    kind, message = error(ask(RemoteClassifier("http://127.0.0.1:9/classify")))

    assert kind == "exception"
    assert "ConnectError" in message


def test_a_slow_service_is_a_timeout(service: ClassifierService) -> None:
    """The call is given up, and with it its connection."""
    service.mode = "stall"

    assert error(ask(RemoteClassifier(service.url, timeout_ms=50)))[0] == "timeout"


def test_calls_share_connections_and_run_at_once(service: ClassifierService) -> None:
    """A service that stalls all of them is asked by all of them before it answers one."""
    service.mode = "stall"
    hook = RemoteClassifier(service.url, timeout_ms=20_000)

    async def main() -> list[dict[str, Any]]:
        calls = [asyncio.ensure_future(hook.score(CONTEXT)) for _ in range(8)]
        await asyncio.to_thread(service.wait_received, 8)
        service.mode = "ok"
        answers = await asyncio.gather(*calls)
        await hook.close()
        return answers

    assert [answer["score"] for answer in asyncio.run(main())] == [1.0] * 8


def test_a_hook_serves_one_event_loop_after_another(service: ClassifierService) -> None:
    """Connections of a loop that is gone are not used."""
    hook = RemoteClassifier(service.url)

    async def last() -> dict[str, Any]:
        scores = await hook.score(CONTEXT)
        await hook.close()
        return scores

    with warnings.catch_warnings():
        # The first loop is gone before anybody closed its connection.
        warnings.simplefilter("ignore", ResourceWarning)
        scores = [asyncio.run(hook.score(CONTEXT)), asyncio.run(last())]
        gc.collect()

    assert [one["score"] for one in scores] == [1.0, 1.0]


def test_the_switches_of_the_service_work_over_http(service: ClassifierService) -> None:
    """As for a service in another process."""
    switch = service.url.replace("/classify", "/mode")
    assert httpx.post(switch, content="error").status_code == 200
    assert service.mode == "error"
    assert httpx.post(switch, content="nonsense").status_code == 400
    assert httpx.post(service.url.replace("/classify", "/x"), content="{}").status_code == 404
