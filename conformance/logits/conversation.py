# SPDX-License-Identifier: Apache-2.0
"""Talking to a live server: the OpenAI SDK and plain REST, alone and at the same time."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import attrs
import httpx
import openai

from conformance.engine import access
from conformance.inputs.history import Choice

#: Tokens per answer: enough for effects to show, few enough for a tiny model on two cores.
TOKENS = 12

#: A request to a tiny model that is not answered after this long hangs.
LIMIT = 60.0

Route = Literal["completions", "chat"]

#: Fields of ``SamplingParams`` that the OpenAI routes take under the same name.
BODY_FIELDS = frozenset(
    (
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "seed",
        "stop_token_ids",
        "min_tokens",
        "max_tokens",
        "ignore_eos",
        "logit_bias",
        "presence_penalty",
        "frequency_penalty",
        "repetition_penalty",
        "allowed_token_ids",
    )
)


@attrs.frozen
class Ask:
    """One request: what is asked, how, and with which parameters."""

    prompt: str | tuple[int, ...]  #: text, or token ids for completions
    choice: Choice
    route: Route
    body: Mapping[str, Any]
    stream: bool = False


@attrs.frozen
class Answer:
    """What came back."""

    status: int
    tokens: tuple[int, ...] = ()
    text: str = ""
    error: str | None = None
    late: bool = False  #: there was none within :data:`LIMIT`

    @property
    def broken(self) -> bool:
        """Whether the connection ended before there was an answer, as a network may do it."""
        return not self.status and not self.late

    @property
    def same_as(self) -> tuple[tuple[int, ...], str]:
        """What two answers to the same request have in common."""
        return self.tokens, self.text


def body_of(keywords: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return ``SamplingParams`` keywords as fields of a request body, or None if they do not fit.

    ``extra_args`` travel as ``vllm_xargs``, which takes strings, numbers and flat lists of them.
    """
    body: dict[str, Any] = {}
    for key, value in keywords.items():
        if isinstance(value, float) and not math.isfinite(value):
            return None  # JSON has no word for it
        if key == "extra_args":
            if not all(_fits(item) for item in (value or {}).values()):
                return None
            body["vllm_xargs"] = value
        elif key == "logit_bias":
            body[key] = {str(token): bias for token, bias in value.items()}
        elif key in BODY_FIELDS:
            body[key] = value
        else:
            return None
    return body


def _fits(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(_fits(item) and not isinstance(item, list | tuple) for item in value)
    # vLLM's protocol turns true into 1 before a plugin can tell them apart.
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, str | int) and not isinstance(value, bool)


async def converse(url: str, model: str, asks: Sequence[Ask], *, at_once: bool) -> list[Answer]:
    """Put all questions through the OpenAI SDK, at the same time or one after the other."""
    async with access.sdk(url, LIMIT) as client:
        if at_once:
            return await access.gather(url, [_put(client, model, ask) for ask in asks])
        return [await _put(client, model, ask) for ask in asks]


async def _put(client: openai.AsyncOpenAI, model: str, ask: Ask) -> Answer:
    """Put one question; an error status is an answer too."""
    body = {"max_tokens": TOKENS, "return_token_ids": True, **ask.body}
    named: dict[str, Any] = {"model": model, "stream": ask.stream, "extra_body": body}
    try:
        if ask.route == "completions":
            answer: Any = await client.completions.create(prompt=ask.prompt, **named)
        else:
            messages: Any = [{"role": "user", "content": ask.prompt}]
            answer = await client.chat.completions.create(messages=messages, **named)
        tokens: list[int] = []
        text: list[str] = []
        if not ask.stream:
            _collect(answer.choices[0], tokens, text)
        else:
            async for chunk in answer:
                if chunk.choices:
                    _collect(chunk.choices[0], tokens, text)
        return Answer(200, tuple(tokens), "".join(text))
    except openai.APIStatusError as error:
        return Answer(error.status_code, error=str(error))
    except openai.APITimeoutError as error:
        return Answer(0, error=str(error), late=True)
    except openai.APIError as error:
        # A refused stream has status 200 and an error in its first event.
        code = (error.body or {}).get("code") if isinstance(error.body, dict) else None
        return Answer(int(code or 0), error=f"{type(error).__name__}: {error}")


def _collect(choice: object, tokens: list[int], text: list[str]) -> None:
    """Take tokens and text out of a choice of any route, whole or a chunk."""
    tokens += getattr(choice, "token_ids", None) or []
    for holder in (choice, getattr(choice, "message", None), getattr(choice, "delta", None)):
        for field in ("text", "content"):
            value = getattr(holder, field, None)
            if isinstance(value, str):
                text.append(value)


def post(url: str, model: str, ask: Ask) -> Answer:
    """Put one question over plain REST, as ``curl`` would."""
    path, body = _posted(model, ask)
    try:
        with access.rest(url, LIMIT) as client:
            response = client.post(url + path, json={"return_token_ids": True, **body})
    except httpx.TimeoutException as error:
        return Answer(0, error=f"{type(error).__name__}: {error}", late=True)
    except httpx.HTTPError as error:
        return Answer(0, error=f"{type(error).__name__}: {error}")
    if response.status_code != httpx.codes.OK:
        return Answer(response.status_code, error=response.text[:300])
    choice = response.json()["choices"][0]
    text = choice["text"] if ask.route == "completions" else choice["message"]["content"]
    return Answer(200, tuple(choice.get("token_ids") or ()), text or "")


def post_all(url: str, model: str, asks: Sequence[Ask]) -> list[Answer]:
    """Put all questions over plain REST, at the same time."""
    with ThreadPoolExecutor(max_workers=access.at_once(url, len(asks)) or 1) as pool:
        return list(pool.map(lambda ask: post(url, model, ask), asks))


def curl(url: str, model: str, ask: Ask) -> str:
    """Return the command that puts a question by hand."""
    path, body = _posted(model, ask)
    return access.curl(url, path, json.dumps(body))


def _posted(model: str, ask: Ask) -> tuple[str, dict[str, Any]]:
    """Return the path of a question, and its body."""
    body = {"model": model, "max_tokens": TOKENS, **ask.body}
    if ask.route == "completions":
        return "/v1/completions", {**body, "prompt": ask.prompt}
    message = {"role": "user", "content": ask.prompt}
    return "/v1/chat/completions", {**body, "messages": [message]}
