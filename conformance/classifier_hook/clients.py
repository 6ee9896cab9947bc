# SPDX-License-Identifier: Apache-2.0
"""Clients of a server with hooks: OpenAI's, for completions and chat, streamed and not.

The texts that the model is made to say are those of the profile.  Scores are read from
``metadata.external_scores``, where the runtime's middleware puts them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import attrs
import openai

from conformance.classifier_hook.live import Answer
from conformance.engine import access
from conformance.watching.comparison import first_line

#: A request to a tiny model that is not answered after this long hangs.
LIMIT = 120.0

#: The most tokens of an answer.
TOKENS = 400

PROMPT = "Say it."


@attrs.frozen
class Way:
    """How a completion is asked for."""

    name: str
    chat: bool
    stream: bool

    @property
    def path(self) -> str:
        """The path of the endpoint."""
        return "/v1/chat/completions" if self.chat else "/v1/completions"


WAYS = (
    Way("completion", chat=False, stream=False),
    Way("completion, streamed", chat=False, stream=True),
    Way("chat", chat=True, stream=False),
    Way("chat, streamed", chat=True, stream=True),
)


@attrs.frozen
class Question:
    """A request of a client."""

    text: str | None  #: what the model is made to say; None for whatever it says
    way: Way = WAYS[0]
    request_id: str | None = None
    max_tokens: int = TOKENS
    leaves: float | None = None  #: seconds after which the client disconnects
    n: int = 1

    def body(self, model: str) -> dict[str, Any]:
        """Return the body of the request."""
        found: dict[str, Any] = {"model": model, "temperature": 0, "max_tokens": self.max_tokens}
        if self.way.chat:
            found |= {"messages": [{"role": "user", "content": PROMPT}], "logprobs": True}
        else:
            found |= {"prompt": PROMPT, "logprobs": 1}
        found |= {"return_token_ids": True, "stream": self.way.stream}
        if self.n > 1:  # vLLM refuses several that would all be the same
            found |= {"n": self.n, "temperature": 1.0, "seed": 1}
        if self.text is not None:
            found["structured_outputs"] = {"choice": [self.text]}
        return found


async def _ask(sdk: openai.AsyncOpenAI, model: str, question: Question) -> list[Answer]:
    """Ask one question; return an answer for each completion."""
    try:
        async with asyncio.timeout(question.leaves):
            return await _answered(sdk, model, question)
    except TimeoutError:
        why = "the client left"
    except openai.APIError as error:
        why = f"{type(error).__name__}: {first_line(str(error))}"
    return [Answer(question.way.name, asked=question.text, error=why)]


async def _answered(sdk: openai.AsyncOpenAI, model: str, question: Question) -> list[Answer]:
    body = question.body(model)
    # What OpenAI's client has no argument for.
    extra = {key: body.pop(key) for key in _EXTRA & body.keys()}
    headers = {"X-Request-Id": question.request_id} if question.request_id else {}
    endpoint: Any = sdk.chat.completions if question.way.chat else sdk.completions
    made = await endpoint.create(**body, extra_body=extra, extra_headers=headers)
    if not question.way.stream:
        return _answers(question, [_plain(made)])
    async with made:  # a client that leaves closes it
        return _answers(question, [_plain(chunk) async for chunk in made])


_EXTRA = {"return_token_ids", "structured_outputs"}


def _plain(made: Any) -> dict[str, Any]:  # noqa: ANN401 - OpenAI's models
    # Its metadata are texts by its own declaration, and scores are not.
    found: dict[str, Any] = made.to_dict(warnings=False)
    return found


def _answers(question: Question, documents: Sequence[dict[str, Any]]) -> list[Answer]:
    """Return what a client makes of each completion, in one piece or in chunks."""
    told = [(document.pop("metadata", None) or {}, document) for document in documents]
    return [_answer(question, number, told) for number in range(question.n)]


def _answer(
    question: Question, number: int, told: Sequence[tuple[Mapping[str, Any], dict[str, Any]]]
) -> Answer:
    texts: list[str] = []
    reason: str | None = None
    scores: Mapping[str, Any] | None = None
    tokens = 0
    whole = []
    for metadata, document in told:
        mine = [each for each in document.get("choices", ()) if each["index"] == number]
        whole.append({**document, "choices": mine})
        if mine or question.n == 1:
            scores = metadata.get("external_scores", scores)
        for choice in mine:
            part = choice.get("message") or choice.get("delta") or choice
            texts.append(part.get("content" if question.way.chat else "text") or "")
            reason = choice.get("finish_reason") or reason
            tokens += len(choice.get("token_ids") or ())
            logprobs = choice.get("logprobs") or {}
            tokens += len(logprobs.get("content" if question.way.chat else "tokens") or ())
    if scores is not None and question.n > 1 and not question.way.stream:
        index = str(number)
        scores = {name: each[index] for name, each in scores.items() if index in each}
    return Answer(
        question.way.name,
        "".join(texts),
        reason,
        scores,
        tokens,
        json.dumps(whole, ensure_ascii=False),
        asked=question.text,
        streamed=question.way.stream,
    )


def curl(url: str, model: str, question: Question) -> str:
    """Return the command that asks the same."""
    return access.curl(url, question.way.path, json.dumps(question.body(model), ensure_ascii=False))


async def asked(url: str, model: str, questions: Sequence[Question]) -> list[Answer]:
    """Ask one question after the other."""
    async with access.sdk(url, LIMIT) as sdk:
        return [answer for each in questions for answer in await _ask(sdk, model, each)]


async def together(url: str, model: str, questions: Sequence[Question]) -> list[Answer]:
    """Ask everything at the same time."""
    async with access.sdk(url, LIMIT) as sdk:
        answers = await access.gather(url, [_ask(sdk, model, each) for each in questions])
        return [answer for found in answers for answer in found]


async def leave(url: str, model: str, questions: Sequence[Question]) -> None:
    """Ask everything at the same time, and disconnect as each question says."""
    with suppress(OSError):
        await together(url, model, questions)
