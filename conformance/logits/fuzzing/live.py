# SPDX-License-Identifier: Apache-2.0
"""What any client may send, in real engines and servers, while neighbours are served."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from http import HTTPStatus
from typing import Any

from vllm.sampling_params import SamplingParams

from conformance.engine.offline import OfflineEngine
from conformance.engine.server import ExternalServer, Server
from conformance.inputs.history import Choice
from conformance.ledger import Ledger
from conformance.live_trial import DEATH_SECONDS
from conformance.logits import workload
from conformance.logits.conversation import Answer, Ask, converse, post, post_all
from conformance.logits.fuzzing import bodies, carriers
from conformance.logits.fuzzing.bodies import TEXT, TOKENS
from conformance.logits.fuzzing.explorer import Explored
from conformance.logits.fuzzing.serving import End, Outcome, Stage
from conformance.logits.fuzzing.values import readable
from conformance.logits.requests import Stock
from conformance.logits.roles import Roles
from conformance.logits.ways import Reply, difference
from conformance.logits.workload import Job
from conformance.watching.interruption import OutOfTime

#: Tokens of a neighbour in a server: enough that it runs while all the others come and go.
SERVED_TOKENS = 64

#: Neighbours of a request that are served at the same time, where a few show no harm: more than
#: were served at once before, whose slots have come into another order.
CROWD = 48


def in_engine(
    ledger: Ledger, rule: str, engine: OfflineEngine, outcomes: Sequence[Outcome], bench: Stock
) -> None:
    """Send requests to an engine, each among neighbours, and judge what becomes of all.

    The first opts in where any request does, and the last one does not.
    """
    jobs = _jobs(bench)
    alone = [Reply(*engine.generate_decided([job.prompt], [job.params()])[0]) for job in jobs]
    for outcome in outcomes:
        if outcome.stage is Stage.ADMISSION and outcome.end is End.HARMFUL:
            continue  # it would end or hang this process: servers show it
        said = f"a request with {readable(outcome.keywords)}"
        harmful = outcome.end is End.HARMFUL
        # Rounding may decide about random tokens, and proves nothing where no harm is known.
        neighbours = jobs if harmful else jobs[:2]
        fail = ledger.advise if harmful else ledger.fail
        answers: list[tuple[str, int, tuple[int, ...]]] = []
        orders = _orders(len(neighbours))
        try:
            for order in orders if harmful else orders[:1]:
                answers += _among(engine, neighbours, outcome, order)
            after = workload.answers(engine, neighbours)
        except OutOfTime:
            raise
        except Exception as error:  # noqa: BLE001 - whatever ends an engine
            fail(rule, f"{said} ended the engine: {type(error).__name__}: {error}")
            return
        for when, number, tokens in [*answers, *(("after", *each) for each in enumerate(after))]:
            if problem := difference(alone[number], tokens, "alone"):
                who = f"a neighbour ({neighbours[number].label})"
                fail(rule, f"{when} {said} {who} got other tokens: {problem}")
                return
        ledger.saw(rule)


def _jobs(bench: Stock) -> list[Job]:
    """Return what neighbours ask for: two greedy requests, and one at random if it may be.

    A plugin may change rows in a way that only random tokens show.
    """
    first, *_, last = workload.questions(bench, invariant=False)
    third = workload.questions(bench, invariant=True)[1]
    try:
        bench.plugin.validate_params(third.params())
    except Exception:  # noqa: BLE001 - it refuses what is drawn at random
        return [first, last]
    return [first, last, third]


def _orders(count: int) -> list[tuple[int | None, ...]]:
    """Return the orders in which neighbours come, by their numbers, and None, the request.

    Each neighbour is once in the row before it and once in the row behind it, and is there when it
    joins last.  Slots are given back in the order in which Model Runner V2 gave them out, and taken
    in the opposite one: who comes twice in the same order has the slots on either side.
    """
    orders: list[tuple[int | None, ...]] = []
    for first in range(count):
        turned = [*range(first, count), *range(first)]
        orders += [(turned[0], None, *turned[1:])] * 2
        orders += [(*turned, None)] * 2
    return orders


def _among(
    engine: OfflineEngine, neighbours: Sequence[Job], outcome: Outcome, order: Sequence[int | None]
) -> list[tuple[str, int, tuple[int, ...]]]:
    """Serve a request among others, in an order; return who of them got which tokens."""
    life = {"max_tokens": workload.ANSWER_TOKENS, "detokenize": False}
    sent = neighbours[0].prompt[::-1], SamplingParams(**life | outcome.keywords)
    asked = [
        sent if number is None else (neighbours[number].prompt, neighbours[number].params())
        for number in order
    ]
    try:
        answers = engine.generate([prompt for prompt, _ in asked], [params for _, params in asked])
    except OutOfTime:
        raise
    except Exception:
        if outcome.end not in (End.REFUSED, End.MISREFUSED):
            raise
        return []
    pairs = zip(order, answers, strict=True)
    return [("beside", number, answer) for number, answer in pairs if number is not None]


def in_servers(
    ledger: Ledger,
    roles: Roles,
    servers: Sequence[Server | ExternalServer],
    explored: Explored,
    sets: Mapping[Choice, Mapping[str, Any]],
) -> None:
    """Send requests to servers over REST and through the SDK, beside neighbours.

    What does harm comes last, and never to a server that somebody else runs.

    Args:
        ledger: takes what is seen.
        roles: which rules that is about.
        servers: those that have the plugin.
        explored: what requests do in the simulator.
        sets: bodies of requests that work, by the parameter set.

    """
    carried = [o for o in explored.nearest if carriers.REST in o.ways]
    harm = explored.harm
    for server in servers:
        if not _serve_odd(ledger, roles, server, carried, sets):
            return
    if harm is not None and carriers.REST in harm.ways:
        for server in servers:
            if isinstance(server, Server) and (seen := _harm_in(server, harm, sets)):
                ledger.advise(roles.harmless, seen)


def _neighbours(sets: Mapping[Choice, Mapping[str, Any]]) -> list[Ask]:
    """Return a request that opts in, one that does not if there is any, and a random one."""
    usual = {"max_tokens": SERVED_TOKENS, "ignore_eos": True}
    chance = {"temperature": 1.0, "seed": workload.RANDOM_SEED}
    first, *_, last = [*sets, *sets]
    return [
        Ask(f"{TEXT} {number}", choice, "completions", {**usual, **sets[choice], **more})
        for number, (choice, more) in enumerate(((first, {}), (last, {}), (first, chance)))
    ]


def _serve_odd(
    ledger: Ledger,
    roles: Roles,
    server: Server | ExternalServer,
    outcomes: Sequence[Outcome],
    sets: Mapping[Choice, Mapping[str, Any]],
) -> bool:
    """Send requests that do no harm in the simulator; return whether they do none here."""
    name, url, rule = server.model_name, server.url, roles.harmless
    *neighbours, _ = _neighbours(sets)  # as in engines
    alone = [post(url, name, ask) for ask in neighbours]
    through_sdk = [_ask(outcome) for outcome in outcomes if _by_sdk(outcome)]
    served = [body["vllm_xargs"] for body in sets.values() if body.get("vllm_xargs")]
    served += [_arguments(o) for o in outcomes if o.end is End.SERVED]
    with ThreadPoolExecutor(max_workers=4) as pool:
        meanwhile = [pool.submit(post, url, name, ask) for ask in neighbours]
        statuses = list(pool.map(lambda o: bodies.send(url, *_written(name, o)), outcomes))
        odd = [(body, bodies.send(url, body.text)) for body in bodies.odd(name, served)]
        answers = asyncio.run(converse(url, name, through_sdk, at_once=True))
        beside = [future.result() for future in meanwhile]
    for outcome, status in zip(outcomes, statuses, strict=True):
        if outcome.end is End.REFUSED and status not in (HTTPStatus.BAD_REQUEST, None):
            ledger.advise(
                roles.client_error,
                f"a request with {readable(outcome.keywords)} got status {status}, not 400; "
                + _by_hand(url, name, outcome),
            )
        ledger.saw(roles.client_error, outcome.end is End.REFUSED)
    after = post_all(url, name, neighbours)
    for what, found in (("beside odd requests", beside), ("after odd requests", after)):
        for answer, usual in zip(found, alone, strict=True):
            if answer.late or usual.late:
                ledger.stop("this machine is too slow: a neighbour was not served in time")
                return False
            if answer.same_as != usual.same_as:
                death = server.failure(within=DEATH_SECONDS) if isinstance(server, Server) else None
                got = f"no answer: {death}" if death else _compared(answer, usual)
                ledger.fail(rule, f"{what} a neighbour got {got}")
                return False
    ledger.saw(rule, len(outcomes) + len(odd) + len(answers))
    return True


def _harm_in(server: Server, harm: Outcome, sets: Mapping[Choice, Mapping[str, Any]]) -> str | None:
    """Send the request that does harm in the simulator; return what harm it does to a server.

    Where it returns None the finding of the simulator stands, and nothing more was seen.
    """
    name, url = server.model_name, server.url
    neighbours = _neighbours(sets)
    alone = [post(url, name, ask) for ask in neighbours]
    if any(answer.status != HTTPStatus.OK for answer in alone):
        return None  # this machine is too slow
    said = f"a request with {readable(harm.keywords)}"
    by_hand, written = _by_hand(url, name, harm), _written(name, harm, SERVED_TOKENS)
    others: list[tuple[Future[Answer], Answer]] = []
    sent: list[Future[int | None]] = []
    with ThreadPoolExecutor(max_workers=2 * len(neighbours)) as pool:
        # In rows before it and behind it there is somebody to be harmed.
        for ask, usual in zip(neighbours, alone, strict=True):
            others.append((pool.submit(post, url, name, ask), usual))
            sent.append(pool.submit(bodies.send, url, *written))
    status = sent[0].result()
    beside = [(future.result(), usual) for future, usual in others]
    if all(answer.same_as == usual.same_as for answer, usual in beside):
        beside += _full_house(url, name, list(zip(neighbours, alone, strict=True)), harm)
    got = f"got status {status}" if status is not None else "got no answer"
    ill = status is None or status >= HTTPStatus.INTERNAL_SERVER_ERROR
    if ill or any(answer.status != HTTPStatus.OK for answer, _ in beside):
        # An engine that ends takes the server with it some seconds later.
        death = server.failure(within=DEATH_SECONDS)
        if death is not None or not server.healthy():
            return f"{said} {got}, and {death or 'the server is no longer healthy'}; {by_hand}"
    after = zip(post_all(url, name, neighbours), alone, strict=True)
    for when, answers in (("beside", beside), ("after", after)):
        for answer, usual in answers:
            if answer.same_as != usual.same_as:
                return f"{when} {said} a neighbour got {_compared(answer, usual)}; {by_hand}"
    return None


def _full_house(
    url: str, name: str, known: Sequence[tuple[Ask, Answer]], harm: Outcome
) -> list[tuple[Answer, Answer]]:
    """Serve a crowd of neighbours, and send the request again until all of them are answered.

    Slots of Model Runner V2 are given out from the last one down, and a slot that is free again
    first of all: so a short request comes before all others, and again while they are served.
    """
    crowd = [one for one in known for _ in range(CROWD // len(known))]
    asks = [ask for ask, _ in crowd]
    without = post_all(url, name, asks)
    with ThreadPoolExecutor(max_workers=len(crowd) + 1) as pool:
        written = _written(name, harm)
        first = pool.submit(bodies.send, url, *written)
        beside = [pool.submit(post, url, name, ask) for ask in asks]
        while first.result() is not None and not all(each.done() for each in beside):
            first = pool.submit(bodies.send, url, *written)
    return [
        (future.result(), usual)
        for future, usual, (_, alone) in zip(beside, without, crowd, strict=True)
        if usual.same_as == alone.same_as  # else rounding decides about it in a crowd
    ]


def _compared(answer: Answer, alone: Answer) -> str:
    got = "no answer" if answer.late else answer.error or repr(answer.text)
    return f"{got}, alone {alone.text!r}"


def _arguments(outcome: Outcome) -> Mapping[str, Any]:
    return outcome.keywords.get("extra_args") or {}


def _by_sdk(outcome: Outcome) -> bool:
    """Tell whether the SDK asks for a completion with it."""
    route = carriers.route_of(outcome.keywords)
    return carriers.SDK in outcome.ways and route is not None and route.path == bodies.PATH


def _ask(outcome: Outcome) -> Ask:
    beside = carriers.fields(outcome.keywords)
    body = {"max_tokens": TOKENS, **beside, "vllm_xargs": _arguments(outcome)}
    return Ask(TEXT, ("sent", 0), "completions", body)


def _written(model: str, outcome: Outcome, tokens: int = TOKENS) -> tuple[str, str]:
    """Return a body as JSON, or nearly, and its path: NaN and Infinity are words of Python's."""
    route = carriers.route_of(outcome.keywords)
    assert route is not None, outcome.keywords
    return json.dumps(route.body(outcome.keywords, model, TEXT, tokens)), route.path


def _by_hand(url: str, model: str, outcome: Outcome) -> str:
    return str(carriers.curl(outcome.keywords, url, model, TEXT, TOKENS))
