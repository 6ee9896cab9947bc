# SPDX-License-Identifier: Apache-2.0
"""The way of a request to the engine, which is a process of its own: vLLM's encoder and decoder.

What cannot be encoded raises in the server, for its client.  What cannot be decoded ends the thread
of the engine that receives requests: no client is answered any more, and ``/health`` says 200.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, get_args

from vllm.pooling_params import PoolingParams
from vllm.tasks import PoolingTask
from vllm.v1.engine import EngineCoreRequest
from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder


def encoded(prompt: object, params: PoolingParams | None = None) -> Any:  # noqa: ANN401 - buffers
    """Return what is sent to the engine for a rendered prompt.

    Raises:
        Exception: it cannot be encoded.

    """
    given = prompt if isinstance(prompt, Mapping) else {}
    known = {
        "request_id": "id",
        "prompt_token_ids": given.get("prompt_token_ids"),
        "pooling_params": PoolingParams() if params is None else params,
        "arrival_time": 0.0,
        "cache_salt": given.get("cache_salt"),
    }
    return MsgpackEncoder().encode(EngineCoreRequest(**{**_required(), **known}))


def undecodable(prompt: object, params: PoolingParams) -> str | None:
    """Return why the engine cannot decode what it is sent for a prompt, or None.

    A task that vLLM does not have is refused before anything is sent: that is for IO-14 to say.
    """
    if params.task not in get_args(PoolingTask):
        params = params.clone()
        params.task = None
    sent = encoded(prompt, params)
    try:
        MsgpackDecoder(EngineCoreRequest).decode(sent)
    except Exception as error:  # noqa: BLE001 - whatever it is, the thread ends
        return f"{type(error).__name__}: {error}"
    return None


@cache
def _required() -> Mapping[str, None]:
    """Return the fields that every request has, which have changed with the releases."""
    fields, defaults = EngineCoreRequest.__struct_fields__, EngineCoreRequest.__struct_defaults__
    return dict.fromkeys(fields[: len(fields) - len(defaults)])
