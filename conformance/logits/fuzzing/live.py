# SPDX-License-Identifier: Apache-2.0
"""What any client may send, in real engines and servers, while a neighbour is served."""

from __future__ import annotations

import asyncio
import json
import math
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import attrs
import httpx
from vllm.sampling_params import SamplingParams

from conformance.engine import access
from conformance.engine.server import Server
from conformance.interruption import OutOfTime
from conformance.live_trial import DEATH_SECONDS
from conformance.logits.conversation import LIMIT, Ask, converse, curl, post
from conformance.logits.fuzzing import carriers
from conformance.logits.fuzzing.serving import End, Outcome, Stage
from conformance.logits.fuzzing.values import readable
from conformance.logits.ways import Reply, difference

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from conformance.engine.offline import OfflineEngine
    from conformance.engine.server import ExternalServer
    from conformance.ledger import Ledger
    from conformance.logits.fuzzing.exploration import Explored
    from conformance.logits.roles import Roles

#: Tokens of a neighbour in an engine, and of those that join it.
NEIGHBOUR_TOKENS, TOKENS = 16, 6

#: Tokens of a neighbour in a server: enough that it runs while all the others come and go.
SERVED_TOKENS = 64

_PROMPTS = ((5, 11, 7, 13, 9), (6, 12, 8, 14))

_TEXT = "a neighbour that is served meanwhile"

#: Characters of a body of about a megabyte.
_MEGABYTE = 1_000_000


@attrs.frozen
class Body:
    """A request over HTTP, as it is written."""

    says: str  #: what is odd about it
    text: str  #: JSON, or nearly


def in_engine(
    ledger: Ledger, rule: str, engine: OfflineEngine, outcomes: Sequence[Outcome]
) -> None:
    """Send requests to an engine, each beside a neighbour, and judge what becomes of both."""
    plain = SamplingParams(temperature=0.0, max_tokens=NEIGHBOUR_TOKENS, ignore_eos=True)
    ((tokens, decided),) = engine.generate_decided([_PROMPTS[0]], [plain.clone()])
    for outcome in outcomes:
        if outcome.stage is Stage.ADMISSION and outcome.end is End.HARMFUL:
            continue  # it would end or hang this process: servers show it
        said = f"a request with {readable(outcome.keywords)}"
        sent = SamplingParams(**{"max_tokens": TOKENS, "detokenize": False, **outcome.keywords})
        refused = outcome.end in (End.REFUSED, End.MISREFUSED)
        fail = ledger.advise if outcome.end is End.HARMFUL else ledger.fail
        try:
            _, *others = engine.generate(_PROMPTS[::-1], [sent, plain.clone()])
        except OutOfTime:
            raise
        except Exception as error:  # noqa: BLE001 - whatever ends an engine
            if not refused:
                what = f"{said} ended the engine: {type(error).__name__}: {error}"
                fail(rule, what)
                return
            others = []
        if not others:  # refused: the engine goes on
            others = engine.generate([_PROMPTS[0]], [plain.clone()])
        if problem := difference(Reply(tokens, decided), others[0], "alone"):
            what = f"beside {said} a neighbour got other tokens: {problem}"
            fail(rule, what)
            return
        ledger.saw(rule)


def in_servers(
    ledger: Ledger, roles: Roles, servers: Sequence[Server | ExternalServer], explored: Explored
) -> None:
    """Send requests to servers over REST and through the SDK, beside a neighbour.

    What does harm comes last, and never to a server that somebody else runs.
    """
    carried = [o for o in explored.nearest if carriers.REST in _ways(o)]
    harm = explored.harm
    for server in servers:
        if not _serve_odd(ledger, roles, server, carried):
            return
    if harm is not None and carriers.REST in _ways(harm):
        for server in servers:
            if isinstance(server, Server):
                _serve_harm(ledger, roles.harmless, server, harm)


def _serve_odd(
    ledger: Ledger, roles: Roles, server: Server | ExternalServer, outcomes: Sequence[Outcome]
) -> bool:
    """Send requests that do no harm in the simulator; return whether they do none here."""
    name, url, rule = server.model_name, server.url, roles.harmless
    neighbour = Ask(_TEXT, ("off", 0), "completions", {"max_tokens": SERVED_TOKENS, **_GREEDY})
    alone = post(url, name, neighbour)
    through_sdk = [_ask(outcome) for outcome in outcomes if carriers.SDK in _ways(outcome)]
    with ThreadPoolExecutor(max_workers=4) as pool:
        meanwhile = pool.submit(post, url, name, neighbour)
        statuses = list(pool.map(lambda o: _send(url, _body(name, _ask(o).body)), outcomes))
        odd = [(body, _send(url, body.text)) for body in _ways_of_json(name, outcomes)]
        answers = asyncio.run(converse(url, name, through_sdk, at_once=True))
        beside = meanwhile.result()
    after = post(url, name, neighbour)
    for outcome, status in zip(outcomes, statuses, strict=True):
        if outcome.end is End.REFUSED and status not in (HTTPStatus.BAD_REQUEST, None):
            ledger.advise(
                roles.client_error,
                f"a request with {readable(outcome.keywords)} got status {status}, not 400; "
                + curl(url, name, _ask(outcome)),
            )
        ledger.saw(roles.client_error, outcome.end is End.REFUSED)
    for what, answer in (("beside odd requests", beside), ("after odd requests", after)):
        if answer.late or alone.late:
            ledger.stop(f"this machine is too slow: no answer within {LIMIT:.0f} s")
            return False
        if answer.same_as != alone.same_as:
            death = server.failure(within=DEATH_SECONDS) if isinstance(server, Server) else None
            got = death or f"{answer.text!r} ({answer.error})"
            ledger.fail(rule, f"{what} a neighbour got {got}, alone {alone.text!r}")
            return False
    ledger.saw(rule, len(outcomes) + len(odd) + len(answers))
    return True


def _serve_harm(ledger: Ledger, rule: str, server: Server, harm: Outcome) -> None:
    """Send the request that does harm in the simulator, and see whether the server lives."""
    ask = _ask(harm)
    status = _send(server.url, _body(server.model_name, ask.body))
    if status is not None and status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return  # the finding of the simulator stands; here nothing more was seen
    # An engine that ends takes the server with it some seconds later.
    death = server.failure(within=DEATH_SECONDS)
    if death is None and server.healthy():
        return
    got = f"status {status}" if status is not None else "no answer"
    ledger.advise(
        rule,
        f"a request with {readable(harm.keywords)} got {got}, and "
        f"{death or 'the server is no longer healthy'}; "
        + curl(server.url, server.model_name, ask),
    )


_GREEDY: Mapping[str, Any] = {"temperature": 0.0, "ignore_eos": True}


def _ways(outcome: Outcome) -> tuple[str, ...]:
    return carriers.ways(outcome.keywords, carried=outcome.carried)


def _ask(outcome: Outcome) -> Ask:
    arguments = outcome.keywords.get("extra_args") or {}
    body = {"max_tokens": TOKENS, "vllm_xargs": arguments}
    return Ask(_TEXT, ("sent", 0), "completions", body)


def _body(model: str, body: Mapping[str, Any]) -> str:
    """Return a body as JSON, or nearly: NaN and Infinity are words of Python's."""
    return json.dumps({"model": model, "prompt": _TEXT, **body})


def _ways_of_json(model: str, outcomes: Sequence[Outcome]) -> list[Body]:
    """Return bodies that are odd as JSON, made of arguments that are served."""
    served = [o for o in outcomes if o.end is End.SERVED and o.keywords.get("extra_args")]
    if not served:
        return []
    arguments = served[0].keywords["extra_args"]
    key, value = next(iter(arguments.items()))
    whole = isinstance(value, int) and not isinstance(value, bool)
    others: list[tuple[str, Any]] = [
        ("a number beyond 64 bits", 10**30),
        ("true", True),
        ("a list of a megabyte", [1] * (_MEGABYTE // 3)),
        ("a text of a megabyte", "x" * _MEGABYTE),
        *([("a float for an integer", float(value))] if whole else []),
    ]
    bodies = [
        Body(what, _body(model, {"max_tokens": TOKENS, "vllm_xargs": {**arguments, key: other}}))
        for what, other in others
        if not (isinstance(other, float) and math.isinf(other))
    ]
    twice = _body(model, {"max_tokens": TOKENS, "vllm_xargs": arguments})
    name = json.dumps(key)
    return [*bodies, Body("a key twice", twice.replace(f"{name}:", f'{name}: "x", {name}:', 1))]


def _send(url: str, text: str) -> int | None:
    """Send a body as it is written; return the status, or None where there is none."""
    try:
        with access.rest(url, LIMIT / 2) as client:
            return client.post(
                f"{url}/v1/completions",
                content=text.encode("utf-8", "surrogatepass"),
                headers={"Content-Type": "application/json"},
            ).status_code
    except httpx.HTTPError:
        return None
