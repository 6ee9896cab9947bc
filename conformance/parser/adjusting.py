# SPDX-License-Identifier: Apache-2.0
"""How vLLM has requests adjusted: by an instance that parses nothing, and in place.

``OnlineRenderer.preprocess_chat`` makes a parser of its own for that.  The request that it returns
stays there: what is sampled and parsed goes by the one that it was given.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from pydantic_core import to_jsonable_python

from conformance.parser.bench import Bench, guarded
from conformance.parser.messages import Message
from conformance.parser.tokens import Answer


def unheard(request: Any, returned: Any) -> list[str]:  # noqa: ANN401 - requests
    """Return the fields in which a request that was returned is not the one that was given."""
    if returned is request or not isinstance(returned, type(request)):
        return []
    return [
        name
        for name in type(request).model_fields
        if _plain(getattr(returned, name)) != _plain(getattr(request, name))
    ]


def _plain(value: object) -> object:
    return to_jsonable_python(value, fallback=repr)


def lost(bench: Bench, answer: Answer, says: Message) -> str:
    """Say what is lost of what a parser makes of requests, where it reads an answer wrong.

    *says*: what it should read.
    """
    if bench.whole(answer, alone=True).same(says):
        return (
            "; where one instance adjusts the request and parses, it is right: "
            "vLLM has one of its own adjust it"
        )
    request = bench.request(stream=False)
    made = bench.make(request)
    returned = guarded("adjust_request", partial(made.adjust_request, request))
    if not (names := unheard(request, returned)):
        return ""
    return (
        f"; adjust_request sets {', '.join(names)} of another request that it returns: vLLM goes "
        "on with the one that it was given"
    )
