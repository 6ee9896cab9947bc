# SPDX-License-Identifier: Apache-2.0
"""Two middlewares for ``vllm serve``, for operators who want what HTTP does not carry by itself.

``--middleware reference_plugins.classifier_hook.body.ScoresInBody`` adds the scores to the bodies
of chat completions and completions, as ``metadata.external_scores``; without it no body changes.

``--middleware reference_plugins.classifier_hook.body.RequestFields`` tells hooks of fields that
vLLM does not know and drops, as ``ScoringContext.extra_fields``.

vLLM's own seam for middlewares is used, so nothing of its server is changed.
"""

from __future__ import annotations

import contextlib
import importlib
import json
from typing import TYPE_CHECKING, Any

from reference_plugins.classifier_hook import scope as scopes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, MutableMapping

    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]
    App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

#: Where vLLM defines what it knows of a request, by the end of the path.
_KNOWN = {
    "/v1/chat/completions": (
        "vllm.entrypoints.openai.chat_completion.protocol",
        "ChatCompletionRequest",
    ),
    "/v1/completions": ("vllm.entrypoints.openai.completion.protocol", "CompletionRequest"),
}


class ScoresInBody:
    """Adds ``metadata.external_scores`` to the answers of the OpenAI server.

    One choice has the scores by the names of the hooks; several have, for each hook, the scores
    by the index of the choice.
    In a stream the chunk that ends a choice has those of that choice.
    """

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http" or not _path(scope):
            await self._app(scope, receive, send)
            return
        with _request_scope() as request:
            await self._app(scope, receive, _Annotator(request, send))


class _Annotator:
    """Sends the messages of one response, annotated."""

    def __init__(self, request: scopes.Scope, send: Send) -> None:
        self._request = request
        self._send = send
        self._start: Message | None = None
        self._kind = ""
        self._body = b""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = {key.lower(): value for key, value in message["headers"]}
            if b"content-encoding" not in headers:
                self._kind = headers.get(b"content-type", b"").partition(b";")[0].decode()
            if self._kind == "application/json":
                self._start = message  # its length is not known yet
                return
        elif message["type"] == "http.response.body" and self._start is not None:
            self._body += message.get("body", b"")
            if not message.get("more_body"):
                await self._finish(self._start)
            return
        elif message["type"] == "http.response.body" and self._kind == "text/event-stream":
            message = {**message, "body": self._events(message)}
        await self._send(message)

    async def _finish(self, start: Message) -> None:
        body = _annotated(self._body, self._whole) if self._request.scores else self._body
        length = (b"content-length", str(len(body)).encode())
        others = [pair for pair in start["headers"] if pair[0].lower() != b"content-length"]
        await self._send({**start, "headers": [*others, length]})
        await self._send({"type": "http.response.body", "body": body})

    def _events(self, message: Message) -> bytes:
        *events, rest = (self._body + message.get("body", b"")).split(b"\n\n")
        self._body = rest
        sent = b"".join(self._event(event) + b"\n\n" for event in events)
        return sent if message.get("more_body") else sent + rest

    def _event(self, event: bytes) -> bytes:
        # No scores yet: what a stream consists of, until a choice ends.
        if not self._request.scores or not event.startswith(b"data: {"):
            return event
        return b"data: " + _annotated(event.removeprefix(b"data: "), self._chunk)

    def _whole(self, choices: list[Any]) -> dict[str, Any] | None:
        scores = self._request.scores
        if len(choices) == 1:
            return dict(scores.get(0, {}))
        names = dict.fromkeys(name for by_name in scores.values() for name in by_name)
        return {
            name: {str(choice): one[name] for choice, one in sorted(scores.items()) if name in one}
            for name in names
        }

    def _chunk(self, choices: list[Any]) -> dict[str, Any] | None:
        ended = [choice["index"] for choice in choices if choice.get("finish_reason")]
        return dict(self._request.scores.get(ended[0], {})) if ended else None


class RequestFields:
    """Reads from the body of a request what vLLM does not know, and tells hooks of it."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve a request."""
        path = _path(scope) if scope["type"] == "http" and scope["method"] == "POST" else None
        if path is None:
            await self._app(scope, receive, send)
            return
        messages = []
        while True:
            messages.append(await receive())
            if messages[-1]["type"] != "http.request" or not messages[-1].get("more_body"):
                break
        body = b"".join(message.get("body", b"") for message in messages)

        async def replay() -> Message:
            return messages.pop(0) if messages else await receive()

        with _request_scope() as request:
            request.extra_fields = {**request.extra_fields, **_unknown(body, path)}
            await self._app(scope, replay, send)


def _path(scope: MutableMapping[str, Any]) -> str | None:
    return next((path for path in _KNOWN if scope["path"].endswith(path)), None)


def _unknown(body: bytes, path: str) -> dict[str, Any]:
    """Return the fields of a request's body that vLLM does not know."""
    try:
        document = json.loads(body)
    except ValueError:
        return {}  # vLLM says what is wrong with it
    if not isinstance(document, dict):
        return {}
    module, name = _KNOWN[path]
    fields = getattr(importlib.import_module(module), name).model_fields
    known = {*fields, *(field.alias for field in fields.values())}
    return {key: value for key, value in document.items() if key not in known}


def _annotated(body: bytes, scores_of: Callable[[list[Any]], dict[str, Any] | None]) -> bytes:
    try:
        document = json.loads(body)
    except ValueError:
        return body
    if not isinstance(document, dict) or not isinstance(document.get("choices"), list):
        return body
    scores = scores_of(document["choices"])
    if not scores:
        return body
    metadata = document.get("metadata") or {}
    document["metadata"] = {**metadata, "external_scores": scores}
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


@contextlib.contextmanager
def _request_scope() -> Iterator[scopes.Scope]:
    """Open a scope, or use the one that another middleware has opened."""
    request = scopes.current()
    if request is not None:
        yield request
        return
    with scopes.request_scope() as request:
        yield request
