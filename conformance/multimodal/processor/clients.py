# SPDX-License-Identifier: Apache-2.0
"""A client of ``POST /v1/chat/completions``: the OpenAI client, with items in its messages.

Models that pool are asked by ``POST /pooling``, which takes the same messages.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import openai
import torch
from PIL import Image

from conformance.engine import access
from conformance.multimodal.modality import media
from conformance.watching.comparison import first_line, same_rows

#: A request to a tiny model that is not answered after this long hangs.
LIMIT = 60.0

#: Tokens of an answer; values of one that is pooled that a sentence tells.
OUTPUT, SHOWN = 6, 4

#: Where chats are sent, and those of models that pool.
CHAT, POOLING = "/v1/chat/completions", "/pooling"


class NotSendable(Exception):
    """An item has no form in which a chat could carry it."""


@attrs.frozen
class Answer:
    """What came back."""

    status: int  #: 0 where the connection ended
    prompt: tuple[int, ...] = ()  #: tokens, as the server counts them
    tokens: tuple[int, ...] = ()
    error: str = ""
    pooled: torch.Tensor | None = None  #: of a model that pools: it has no tokens

    @property
    def good(self) -> bool:
        """Tell whether it is an answer."""
        return self.status == 200  # noqa: PLR2004 - OK

    def same(self, other: Answer) -> bool:
        """Tell whether this says the same as another answer."""
        if self.pooled is None or other.pooled is None:
            return self.tokens == other.tokens
        return same_rows(self.pooled, other.pooled)

    def says(self) -> str:
        """Say what the answer is."""
        if self.pooled is None:
            return str(self.tokens)
        first = ", ".join(f"{value:.3g}" for value in self.pooled.flatten()[:SHOWN].tolist())
        return f"values of shape {tuple(self.pooled.shape)} that begin with {first}"

    def describe(self) -> str:
        """Say what came back instead of an answer."""
        status = f"HTTP {self.status}" if self.status else "no answer"
        return f"{status} ({self.error})" if self.error else status


@attrs.frozen
class Client:
    """Where a server is, and how it calls its model."""

    url: str
    model: str
    output: int = OUTPUT  #: tokens of an answer
    #: Of a server that is asked before, so that it encodes the items for this one.
    encoder: Client | None = None
    pools: bool = False  #: whether the model does

    @property
    def route(self) -> str:
        """Where the server takes requests."""
        return POOLING if self.pools else CHAT

    def body(self, content: Sequence[Any], options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the body of a request."""
        more: dict[str, Any] = {"mm_processor_kwargs": dict(options)} if options else {}
        messages = [{"role": "user", "content": list(content)}]
        if not self.pools:
            more |= {"temperature": 0, "max_tokens": self.output}
            more |= {"ignore_eos": True, "return_token_ids": True}
        return {"model": self.model, "messages": messages, **more}


def part(modality: str, value: object) -> dict[str, Any]:
    """Return the part of a message that carries an item.

    Raises:
        NotSendable: there is none for data like this.

    """
    if modality == "image" and isinstance(value, Image.Image):
        return {
            "type": "image_url",
            "image_url": {"url": media.data_url(media.encoded(value, "PNG"), "image/png")},
        }
    if modality == "audio" and isinstance(value, tuple):
        samples, rate = value
        loudest = np.iinfo(np.int16).max
        sound = media.wav(np.clip(samples, -1.0, 1.0) * loudest, rate)
        return {
            "type": "input_audio",
            "input_audio": {"data": media.base64_of(sound), "format": "wav"},
        }
    if modality == "video" and isinstance(value, np.ndarray):
        pictures = (media.encoded(Image.fromarray(frame), "JPEG") for frame in value)
        frames = ",".join(map(media.base64_of, pictures))
        return {"type": "video_url", "video_url": {"url": f"data:video/jpeg;base64,{frames}"}}
    raise NotSendable(f"no part of a chat carries {modality} as {type(value).__name__}")


def ask(client: Client, content: Sequence[Any], options: Mapping[str, Any]) -> Answer:
    """Ask with the OpenAI client."""
    return asyncio.run(crowd(client, [(content, options)]))[0]


async def crowd(
    client: Client, asked: Sequence[tuple[Sequence[Any], Mapping[str, Any]]]
) -> list[Answer]:
    """Ask everything at the same time."""
    if client.encoder is not None:
        await crowd(client.encoder, asked)  # what it answers is of no use
    async with access.sdk(client.url, LIMIT) as sdk:

        async def one(content: Sequence[Any], options: Mapping[str, Any]) -> Answer:
            try:
                url, body = f"{client.url}{client.route}", client.body(content, options)
                found = await sdk.post(url, cast_to=object, body=body)
            except openai.APIStatusError as error:
                return Answer(error.status_code, error=first_line(_message(error.body)))
            except openai.APIError as error:
                return Answer(0, error=f"{type(error).__name__}: {error}")
            assert isinstance(found, dict)
            prompt = found.get("prompt_token_ids") or (0,) * found["usage"]["prompt_tokens"]
            if client.pools:
                (pooled,) = found["data"]
                return Answer(200, tuple(prompt), pooled=torch.tensor(pooled["data"]))
            (choice,) = found["choices"]
            return Answer(200, tuple(prompt), tuple(choice.get("token_ids") or ()))

        return await access.gather(client.url, [one(*question) for question in asked])


def curl(
    client: Client, content: Sequence[Any], options: Mapping[str, Any], folder: str | Path
) -> str:
    """Return the command that asks the same; its body, too long to show, goes into a folder."""
    path = Path(folder) / "request.json"
    path.write_text(json.dumps(client.body(content, options)) + "\n", encoding="utf-8")
    return access.curl(client.url, client.route, f"@{path}")


def _message(body: object) -> str:
    """Return what the server says; the client hands over what is under "error" alone."""
    return str(body.get("message", body)) if isinstance(body, dict) else str(body)
