# SPDX-License-Identifier: Apache-2.0
"""Requests and responses as they travel over HTTP, with vLLM's own classes, which have moved."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import attrs


@attrs.frozen
class Received:
    """What a client makes of a response."""

    data: Any
    request_id: str | None  #: of which request the response says that it is


class WrongResponse(RuntimeError):
    """``output_to_response`` returned something else than an ``IOProcessorResponse``."""

    def __init__(self, response: object) -> None:
        super().__init__(f"output_to_response returned {type(response).__name__}")


def request_of(data: object, beside: Iterable[tuple[str, Any]] = ()) -> Any:  # noqa: ANN401 - JSON values
    """Return the request that an online host hands on, with what its client sets beside data."""
    try:
        from vllm.entrypoints.pooling.pooling.protocol import IOProcessorRequest
    except ImportError:
        from vllm.entrypoints.openai.protocol import IOProcessorRequest
    return IOProcessorRequest(data=data, **dict(beside))


def response_class() -> Any:  # noqa: ANN401 - a class of vLLM
    """Return vLLM's ``IOProcessorResponse``, which has moved."""
    try:
        from vllm.entrypoints.pooling.pooling.protocol import IOProcessorResponse
    except ImportError:
        from vllm.entrypoints.openai.protocol import IOProcessorResponse
    return IOProcessorResponse


def as_json(response: object) -> Any:  # noqa: ANN401 - an IOProcessorResponse
    """Return the data of a response as the client reads it.

    Raises:
        Exception: the server cannot write it as JSON.

    """
    return received(written(response)).data


def written(response: object) -> Any:  # noqa: ANN401 - an IOProcessorResponse, as HTTP has it
    """Return what the server sends for a response."""
    return writer()(response)


@cache
def writer() -> Callable[[Any], Any]:
    """Return the function with which the server writes a response as JSON; it has moved.

    Raises:
        ImportError: the installed vLLM has it in neither of the known places.

    """
    try:
        from vllm.entrypoints.pooling.utils import get_json_response_cls
    except ImportError:  # since 0.33
        from vllm.entrypoints.serve.utils.api_utils import create_json_response

        return create_json_response  # type: ignore[no-any-return, unused-ignore] # not there before
    cls = get_json_response_cls()
    return lambda response: cls(content=response.model_dump())


def received(response: Any) -> Received:  # noqa: ANN401 - a response of starlette
    """Return what a client makes of what the server sends."""
    body = json.loads(response.body)
    return Received(body["data"], body.get("request_id"))


def raw_request(request_id: str) -> Any:  # noqa: ANN401 - a request of starlette
    """Return an HTTP request with an id."""
    from starlette.requests import Request

    return Request({"type": "http", "headers": [(b"x-request-id", request_id.encode())]})
