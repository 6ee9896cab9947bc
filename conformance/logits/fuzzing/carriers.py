# SPDX-License-Identifier: Apache-2.0
"""How a request reaches an engine: what vLLM itself refuses, and which status a client gets.

All of it is vLLM's own code: the request models of its server, the encoder between its processes
and the function that makes responses of errors. So each release says what it does.
"""

from __future__ import annotations

import json
import shlex
from functools import cache
from typing import TYPE_CHECKING, Any

import attrs

from conformance.counterexample.source import expression
from conformance.engine import access

if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm.sampling_params import SamplingParams

    from conformance.logits.fuzzing.values import Keywords

#: A status that the harness expects where this release has no function that says so.
BAD_REQUEST, _SERVER_ERROR = 400, 500

REST = "REST"
SDK = "the OpenAI SDK"
PYTHON = "LLM and AsyncLLM"

#: Fields of a body that become keywords of ``SamplingParams`` as they are.
_FIELDS = frozenset(
    (
        *("max_tokens", "min_tokens", "ignore_eos", "stop", "stop_token_ids"),
        *("temperature", "top_k", "top_p", "min_p", "seed"),
        *("frequency_penalty", "presence_penalty", "repetition_penalty"),
    )
)

#: Tokens that the client of a command asks for.
TOKENS = 12

#: A body of more characters is made by a command.
_LONG = 400

#: As many tokens as a server has room for; a request may ask for fewer.
_ROOM = 1 << 20


def carried(params: SamplingParams) -> SamplingParams | None:
    """Return the parameters as an engine of another process gets them; None where it gets none."""
    from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder

    kind = type(params)
    try:
        return MsgpackDecoder(kind).decode(MsgpackEncoder().encode(params))
    except Exception:  # noqa: BLE001 - whatever the encoder says, nothing has got through
        return None


#: The seeds that vLLM takes.
_SEEDS = range(-(2**63), 2**63)


def admitted_by_host(params: SamplingParams, config: Any) -> bool:  # noqa: ANN401 - VllmConfig
    """Tell whether vLLM itself admits a request to a model; older releases check less.

    A seed has 64 bits: the server refuses others, and no runner of vLLM's own has room for them.
    """
    if isinstance(params.seed, int) and params.seed not in _SEEDS:
        return False
    verify = getattr(params, "verify", None)
    if verify is None:
        return True
    try:
        verify(config.model_config, None, config.structured_outputs_config, None)
    except Exception:  # noqa: BLE001 - refused, in whatever way
        return False
    return True


def ways(keywords: Keywords, *, carried: bool) -> tuple[str, ...]:
    """Return by which ways a request can reach an engine with a plugin, the most public first."""
    found = []
    if public(keywords):
        found.append(REST)
        if _strict(keywords):
            found.append(SDK)
    return (*found, PYTHON) if carried else tuple(found)


def public(keywords: Keywords) -> bool:
    """Tell whether a request can reach an engine by HTTP."""
    return route_of(keywords) is not None


def route_of(keywords: Keywords) -> Route | None:
    """Return the route of the server that carries a request as it is; None where none does."""
    return next((route for route in _routes() if route.carries(keywords)), None)


def ordinary(keywords: Keywords) -> Route | None:
    """Return the route whose every request without arguments of a plugin is such a one."""
    route = None if keywords.get("extra_args") is None else route_of(keywords)
    return route if route and not keywords["extra_args"] and not fields(keywords) else None


def fields(keywords: Keywords) -> dict[str, Any]:
    """Return what a body has beside the arguments of plugins, such as ``max_tokens``."""
    return {name: value for name, value in keywords.items() if name != "extra_args"}


@attrs.frozen
class Route:
    """A route of vLLM's server, and how its bodies say what every request has."""

    path: str
    model: Any  #: the class of its requests
    prompt: str  #: the field of the prompt
    limit: str  #: the field of ``max_tokens``

    def body(self, keywords: Keywords, model: str, prompt: str, tokens: int) -> dict[str, Any]:
        """Return what a client sends for a request."""
        beside = {self._field(name): value for name, value in fields(keywords).items()}
        sent = {"model": model, self.prompt: prompt, self.limit: tokens, **beside}
        arguments = keywords.get("extra_args")
        return {**sent, "vllm_xargs": arguments} if arguments else sent

    def _field(self, name: str) -> str:
        """Return how its bodies call a field of the parameters."""
        return self.limit if name == "max_tokens" else name

    def carries(self, keywords: Keywords) -> bool:
        """Tell whether a request becomes these parameters, to the types of their values.

        True becomes 1 on the way, and of no arguments each route makes what it likes.
        """
        beside = fields(keywords)
        sent = self.body(keywords, "m", "x", TOKENS)
        if not set(beside) <= _FIELDS or not set(sent) <= set(self.model.model_fields):
            return False
        try:
            made = self.model(**sent)
            took = {name: getattr(made, self._field(name)) for name in beside}
            arguments = made.to_sampling_params(_ROOM, {}).extra_args
        except Exception:  # noqa: BLE001 - pydantic, or vLLM itself, refuses it
            return False
        return repr((arguments, took)) == repr((keywords.get("extra_args"), beside))


@cache
def _routes() -> tuple[Route, ...]:
    """Return the routes of this release, the most used first."""
    from vllm.entrypoints.openai.completion.protocol import CompletionRequest

    completions = Route("/v1/completions", CompletionRequest, "prompt", "max_tokens")
    try:
        from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
    except ImportError:
        return (completions,)
    return completions, Route("/v1/responses", ResponsesRequest, "input", "max_output_tokens")


def _strict(keywords: Keywords) -> bool:
    """Tell whether the SDK can write the body: its JSON has no NaN and no half of a pair."""
    try:
        json.dumps(keywords, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def status(error: BaseException) -> int:
    """Return the HTTP status that a client gets for what ``validate_params`` raised."""
    respond = _responder()
    if respond is None:
        return BAD_REQUEST if isinstance(error, ValueError) else _SERVER_ERROR
    return int(respond(error))


@cache
def _responder() -> Callable[[BaseException], int] | None:
    """Return what this release's server makes of an exception, if it can be asked."""
    try:
        from vllm import exceptions
        from vllm.entrypoints.serve.exception_handling.error_response import create_error_response
        from vllm.v1.engine.exceptions import EngineGenerateError
    except ImportError:
        return None
    # AsyncLLM.generate lets these pass, as far as this release has them, and wraps all others.
    passing = [getattr(exceptions, name, None) for name in ("VLLMClientError", "GracefulHTTPError")]
    passed = tuple(each for each in passing if each is not None)

    def respond(error: BaseException) -> int:
        known: Any = error
        if isinstance(error, ValueError):  # see validate_logits_processors_parameters
            known = exceptions.VLLMValidationError(str(error))
        elif not isinstance(error, passed):
            known = EngineGenerateError()
        return int(create_error_response(known).error.code)

    return respond


def curl(
    keywords: Keywords,
    url: str = "http://localhost:8000",
    model: str = "MODEL",
    prompt: str = "Hello",
    tokens: int = TOKENS,
) -> str | None:
    """Return the command with which a client sends a request, where HTTP can carry it."""
    route = route_of(keywords)
    if route is None:
        return None
    body = route.body(keywords, model, prompt, tokens)
    document = json.dumps(body)
    if len(document) <= _LONG:
        return access.curl(url, route.path, document)
    shown = {key: value for key, value in body.items() if key != "vllm_xargs"}
    made = f"import json; print(json.dumps({shown!r} | {{'vllm_xargs': "
    made += f"{expression(body['vllm_xargs'])}}}))"
    return f"python3 -c {shlex.quote(made)} | {access.curl(url, route.path)} -d @-"
