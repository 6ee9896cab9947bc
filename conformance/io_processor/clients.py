# SPDX-License-Identifier: Apache-2.0
"""Clients of ``POST /pooling``: the OpenAI client's raw request and plain REST."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Any

import attrs
import httpx
import openai

from conformance.engine import access
from conformance.io_processor.answers import Answer, Kind
from conformance.watching.comparison import first_line

#: A request to a tiny model that is not answered after this long hangs.
LIMIT = 60.0

#: Seconds after which a client that disconnects does so: the server has begun, and is not done.
IMPATIENCE = 0.01


@attrs.frozen
class Client:
    """Where a server is, and how it calls its model."""

    url: str
    model: str

    def body(self, data: object) -> dict[str, Any]:
        """Return the body of a request."""
        return {"model": self.model, "data": data}


def through_sdk(client: Client, data: object) -> Answer:
    """Ask with the OpenAI client."""
    with access.blocking_sdk(client.url, LIMIT) as sdk:
        try:
            # An IO processor has no method of its own there.
            body = sdk.post(f"{client.url}/pooling", cast_to=object, body=client.body(data))
        except openai.APIStatusError as error:
            return _answer(error.status_code, error.body, str(error))
        except openai.APIError as error:
            return _unanswered(error)
        return _answer(HTTPStatus.OK, body, str(body))


def over_rest(
    client: Client,
    data: object,
    request_id: str | None = None,
    limit: float = LIMIT,
) -> Answer:
    """Ask with a plain POST."""
    headers = {"X-Request-Id": request_id} if request_id else {}
    return _posted(client, limit, json=client.body(data), headers=headers)


def as_written(client: Client, data: object, limit: float = LIMIT) -> Answer:
    """Ask with a body that Python writes: NaN and halves of characters are sent as well."""
    headers = {"Content-Type": "application/json"}
    return _posted(client, limit, content=json.dumps(client.body(data)), headers=headers)


def _posted(client: Client, limit: float, **request: Any) -> Answer:  # noqa: ANN401 - httpx's own
    try:
        with access.rest(client.url, limit) as http:
            return _read(http.post(f"{client.url}/pooling", **request))
    except httpx.HTTPError as error:
        return _unanswered(error)


def writes(data: object) -> bool:
    """Tell whether clients that write strict JSON can send data at all."""
    try:
        json.dumps(data, ensure_ascii=False, allow_nan=False).encode()
    except ValueError:
        return False
    return True


async def crowd(client: Client, asked: Sequence[tuple[Any, str]]) -> list[Answer]:
    """Ask everything at the same time; each question is data and a request id."""
    async with access.coroutines(client.url, LIMIT) as http:

        async def ask(data: object, request_id: str) -> Answer:
            try:
                return _read(
                    await http.post(
                        f"{client.url}/pooling",
                        json=client.body(data),
                        headers={"X-Request-Id": request_id},
                    )
                )
            except httpx.HTTPError as error:
                return _unanswered(error)

        return await access.gather(client.url, [ask(data, name) for data, name in asked])


async def leave(client: Client, asked: Sequence[Any]) -> None:
    """Ask everything at the same time, and disconnect before it can be answered."""
    async with access.coroutines(client.url, LIMIT) as http:

        async def ask(data: object) -> None:
            with suppress(httpx.HTTPError, TimeoutError):
                await asyncio.wait_for(
                    http.post(f"{client.url}/pooling", json=client.body(data)), IMPATIENCE
                )

        await access.gather(client.url, [ask(data) for data in asked])


def curl(client: Client, data: object) -> str:
    """Return the command that asks the same."""
    body = json.dumps(client.body(data), ensure_ascii=not writes(data))
    return access.curl(client.url, "/pooling", body)


def _read(response: httpx.Response) -> Answer:
    """Return what a client makes of a response."""
    try:
        body = response.json()
    except ValueError:
        body = None
    return _answer(response.status_code, body, response.text)


def _answer(status: int, body: object, text: str) -> Answer:
    if status == HTTPStatus.OK and isinstance(body, dict) and "data" in body:
        return Answer(Kind.ANSWERED, body["data"], status)
    # The OpenAI client hands over what is under "error" alone.
    error = body.get("error", body) if isinstance(body, dict) else None
    message = error.get("message") if isinstance(error, dict) else text
    return Answer(Kind.of_status(status), status=status, error=first_line(str(message)))


def _unanswered(error: Exception) -> Answer:
    """Return the answer of a client that got none at all."""
    return Answer(Kind.FAILED, status=0, error=f"{type(error).__name__}: {error}")
