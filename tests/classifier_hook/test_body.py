# SPDX-License-Identifier: Apache-2.0
"""The middleware that adds scores to bodies, in front of an application of three lines."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from reference_plugins.classifier_hook import request_scope
from reference_plugins.classifier_hook.body import ScoresInBody
from reference_plugins.classifier_hook.scope import current

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from reference_plugins.classifier_hook.body import Send

    Message = MutableMapping[str, Any]

CHAT = "/v1/chat/completions"


def serve(
    parts: list[bytes],
    *,
    scores: dict[int, Any],
    kind: str = "application/json",
    path: str = CHAT,
    encoding: str | None = None,
) -> tuple[dict[bytes, bytes], list[bytes]]:
    """Return the headers and the parts of the body that a client gets."""
    sent: list[Message] = []

    async def app(_: object, __: object, send: Send) -> None:
        scope = current()
        headers = [(b"Content-Type", kind.encode()), (b"Content-Length", b"%d" % len(parts[0]))]
        if encoding:
            headers.append((b"content-encoding", encoding.encode()))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for number, part in enumerate(parts):
            if scope is not None and number == len(parts) - 1:
                scope.scores.update(scores)
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def receive() -> Message:
        raise AssertionError("nobody reads the request here")

    async def send(message: Message) -> None:
        sent.append(dict(message))

    scope = {"type": "http", "method": "POST", "path": path}
    asyncio.run(ScoresInBody(app)(scope, receive, send))
    start, *bodies = sent
    headers = {name.lower(): value for name, value in start["headers"]}
    return headers, [message["body"] for message in bodies if message["body"]]


def answer(choices: int = 1, **more: object) -> bytes:
    """Return a body."""
    listed = [{"index": n, "finish_reason": "stop"} for n in range(choices)]
    return json.dumps({"choices": listed, **more}).encode()


def chunk(index: int, finish: str | None) -> bytes:
    """Return a chunk of a stream."""
    choice = {"index": index, "delta": {"content": "ü"}, "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


def test_one_choice_has_its_scores_by_hook() -> None:
    """And the body's new length is in its head."""
    headers, (body,) = serve([answer()], scores={0: {"pii": {"x": 1}}})

    assert json.loads(body)["metadata"] == {"external_scores": {"pii": {"x": 1}}}
    assert headers[b"content-length"] == b"%d" % len(body)


def test_several_choices_have_theirs_by_index() -> None:
    """Whichever was scored first, and although one was not scored."""
    scores = {2: {"pii": {"x": 2}}, 0: {"pii": {"x": 0}, "other": {}}}
    _, (body,) = serve([answer(3)], scores=scores)

    assert json.loads(body)["metadata"]["external_scores"] == {
        "pii": {"0": {"x": 0}, "2": {"x": 2}},
        "other": {"0": {}},
    }


def test_metadata_of_others_stays() -> None:
    """Only its own key is added."""
    _, (body,) = serve([answer(metadata={"a": "b"})], scores={0: {"pii": {}}})

    assert json.loads(body)["metadata"] == {"a": "b", "external_scores": {"pii": {}}}


@pytest.mark.parametrize(
    ("parts", "options"),
    [
        ([answer()], {"scores": {}}),
        ([answer()], {"scores": {0: {"pii": {}}}, "path": "/v1/embeddings"}),
        ([answer()], {"scores": {0: {"pii": {}}}, "encoding": "gzip"}),
        ([answer()], {"scores": {0: {"pii": {}}}, "kind": "text/plain"}),
        ([b'{"error": {}}'], {"scores": {0: {"pii": {}}}}),
        ([b"[1]"], {"scores": {0: {"pii": {}}}}),
        ([b"no json"], {"scores": {0: {"pii": {}}}}),
    ],
)
def test_other_bodies_stay_as_they_are(parts: list[bytes], options: dict[str, Any]) -> None:
    """Without scores, of other paths and kinds, compressed, or errors."""
    assert serve(parts, **options)[1] == parts


def test_in_a_stream_the_chunk_that_ends_a_choice_has_its_scores() -> None:
    """All others pass as they are, also when they arrive in pieces."""
    whole = chunk(1, None) + chunk(0, "stop") + chunk(1, None) + b"data: [DONE]\n\n"
    parts = [whole[n : n + 7] for n in range(0, len(whole), 7)]
    _, bodies = serve(parts, scores={0: {"pii": {"x": 1}}}, kind="text/event-stream; charset=x")
    assert b"".join(bodies) == whole  # the scores came with the last piece, and so too late
    _, bodies = serve(
        [chunk(1, None), chunk(0, "stop") + chunk(1, None) + b"data: [DONE]\n\n"],
        scores={0: {"pii": {"x": 1}}},
        kind="text/event-stream",
    )
    first, ended, third, done, end = b"".join(bodies).split(b"\n\n")

    assert json.loads(ended.removeprefix(b"data: "))["metadata"] == {
        "external_scores": {"pii": {"x": 1}}
    }
    assert json.loads(ended.removeprefix(b"data: "))["choices"][0]["delta"] == {"content": "ü"}
    assert (first + b"\n\n", third + b"\n\n") == (chunk(1, None), chunk(1, None))
    assert (done, end) == (b"data: [DONE]", b"")


def test_a_scope_ends_with_its_block() -> None:
    """And one inside another is its own."""
    with request_scope(request_metadata={"a": [1]}) as outer:
        with request_scope() as inner:
            assert current() is inner
        assert current() is outer
        assert outer.request_metadata == {"a": [1]}

    assert current() is None
