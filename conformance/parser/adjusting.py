# SPDX-License-Identifier: Apache-2.0
"""Checks of how requests are adjusted: by an instance that parses nothing, and in place.

``OnlineRenderer.preprocess_chat`` makes a parser of its own for that.  The request that it returns
stays there: what is sampled and parsed goes by the one that it was given.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from functools import partial
from typing import Any

import attrs
from pydantic_core import to_jsonable_python
from vllm.exceptions import VLLMClientError

from conformance.checking import checks
from conformance.findings import Finding, failed, passed
from conformance.parser.bench import Bench, Wish, guarded
from conformance.parser.messages import Message
from conformance.parser.tokens import Answer
from conformance.parser.tools import an_object, tool
from conformance.parser.trial import Trial
from conformance.watching.raised import placed

#: How a client may want its answer to be sampled, and what else is between it and the engine.
SAMPLED: Mapping[str, object] = {
    "temperature": 0.5,
    "top_p": 0.5,
    "n": 2,
    "seed": 7,
    "max_completion_tokens": 20_000,
    "top_k": 3,
    "min_p": 0.125,
    "logit_bias": {"7": 1.0},
    "cache_salt": "of-a-client",
    "frequency_penalty": 0.5,
    "presence_penalty": 0.25,
    "repetition_penalty": 1.25,
    "priority": 3,
    "user": "somebody",
    "vllm_xargs": {"of": "a-plugin"},
}

#: A stop string, which a client may send as it is, or in a list; a parser may add its own.
STOP = "END"

#: What is the client's to say of a request.
KEPT = ("tools", "tool_choice", "parallel_tool_calls", *SAMPLED)

#: What becomes the client's error.
REFUSALS = (ValueError, VLLMClientError)

#: A tool whose schema is strict.
_CITY = an_object({"city": {"type": "string"}}, required=["city"], additionalProperties=False)
STRICT = tool("get_time", _CITY, strict=True)


def naming(name: str) -> dict[str, Any]:
    """Return the choice that names a tool."""
    return {"type": "function", "function": {"name": name}}


@checks("TP-12")
def adjusted(trial: Trial) -> Finding:
    """Look what becomes of requests: with each ``tool_choice``, and without any tools."""
    bench = attrs.evolve(trial.made(), tools=(*trial.made().tools[:1], STRICT))
    choices = ("auto", "none", "required", naming("get_time"))
    wishes = [Wish(choice, parallel=False) for choice in choices]
    wishes.append(Wish(parallel=False, tools=False))
    for wish in wishes:
        bench = bench.wishing(wish)
        request = _sampled(bench)
        sent = _kept(request)
        what = f"a request with tool_choice {sent['tool_choice']!r}"
        what = what if wish.tools else "a request without tools"
        plugin = bench.make(request).tool_parser
        found = guarded("adjust_request", partial(plugin.adjust_request, request))
        if isinstance(found, REFUSALS) and wish.choice not in ("auto", "none"):
            continue  # the client gets status 400, and knows
        if (wish.choice == "none" or not wish.tools) and getattr(found, "structured_outputs", None):
            return failed(f"adjust_request made {what} obey a grammar")
        if wrong := _wrong(bench, request, sent, found):
            return failed(f"adjust_request of {what} {wrong}")
    return passed(len(wishes))


@checks("RP-24")
def kept(trial: Trial) -> Finding:
    """Look what becomes of a request, which a reasoning parser adjusts as well."""
    bench = trial.made()
    request = _sampled(bench)
    sent = _kept(request)
    plugin = bench.make(request).reasoning_parser
    found = guarded("adjust_request", partial(plugin.adjust_request, request))
    if wrong := _wrong(bench, request, sent, found):
        return failed(f"adjust_request {wrong}")
    return passed(1)


def _sampled(bench: Bench) -> Any:  # noqa: ANN401 - of either endpoint
    """Return a request whose client says how its answer is sampled."""
    request = bench.request(stream=True)
    for each, value in SAMPLED.items():
        setattr(request, each, deepcopy(value))
    request.stop = STOP
    return request


def _wrong(bench: Bench, request: Any, sent: dict[str, Any], found: Any) -> str | None:  # noqa: ANN401 - as above
    """Say what is wrong with a request as it is adjusted, or return None."""
    if isinstance(found, Exception):
        return f"raised {placed(found)}"
    if not isinstance(found, type(request)):
        return f"returned {type(found).__name__}"
    if names := unheard(request, found):
        return (
            f"returned another one, with other {', '.join(names)}: vLLM goes on with the one that "
            "it was given"
        )
    changed = _changed(bench, sent, found)
    return changed and f"made one with {changed} of it"


def _kept(request: Any) -> dict[str, Any]:  # noqa: ANN401 - of either endpoint
    """Return what is the client's to say, as JSON, which shares nothing with the request."""
    return {each: to_jsonable_python(getattr(request, each)) for each in KEPT}


def _changed(bench: Bench, sent: dict[str, Any], found: Any) -> str | None:  # noqa: ANN401 - as above
    """Say what of a request is not the client's any more, or return None."""
    if STOP not in ([found.stop] if isinstance(found.stop, str) else found.stop or ()):
        return f"stop {found.stop!r} instead of {STOP!r}"
    for each, now in _kept(found).items():
        if now != sent[each] and not _stands_in_grammar(bench, each, found):
            return f"{each} {now!r}"
    return None


def _stands_in_grammar(bench: Bench, field: str, request: Any) -> bool:  # noqa: ANN401 - as above
    """Tell whether what has to be called is said by a grammar that the parser's model obeys.

    vLLM's own grammar is of JSON, which it reads itself, and for no request with choice auto.
    """
    if field != "tool_choice" or request.tool_choice != "auto" or bench.wish.choice == "none":
        return False
    grammar = request.structured_outputs
    return grammar is not None and (grammar.json is None or grammar.json != bench.grammar())


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
