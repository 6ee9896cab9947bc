# SPDX-License-Identifier: Apache-2.0
"""What any client may send, in real engines and servers, while others are served.

The simulator says what is worth sending: of what it survived, requests that reach lines which
others do not, and requests of every outcome from all over; and what did harm there, which comes
last.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import attrs

from conformance.engine.pooling import PoolingEngine
from conformance.engine.server import ExternalServer, Server
from conformance.io_processor import bodies, clients
from conformance.io_processor.answers import Answer, Kind
from conformance.io_processor.bench import Bench
from conformance.io_processor.clients import Client, curl
from conformance.ledger import Ledger
from conformance.live_trial import DEATH_SECONDS
from conformance.settings import Budget
from conformance.watching.comparison import difference, plain, shortened
from conformance.watching.endurance import STALL, Trouble
from conformance.watching.interruption import OutOfTime
from conformance.watching.untouched import Untouched

ENDURES = "IO-38"

#: Characters of the longest command that a message shows.
_BY_HAND = 2_000


@attrs.frozen
class Explored:
    """What the simulator found out about requests that any client may send."""

    nearest: tuple[Any, ...] = ()
    harm: Trouble | None = None
    body: Any = None  #: of the request that does harm

    @classmethod
    def of(cls, untouched: Untouched, bench: Bench) -> Explored:
        """Send everything in the simulator, with the quick budget."""
        asked = bodies.asking(bench, Budget.QUICK)
        found = bodies.endured(untouched, bench, asked)
        if isinstance(found, Trouble):
            return cls(harm=found, body=bodies.body_of(asked, found.sent))
        return cls(found.nearest)


def in_engine(
    ledger: Ledger,
    engine: PoolingEngine,
    bench: Bench,
    explored: Explored,
    usual: Sequence[Any],
) -> None:
    """Send requests to an engine, and after each a valid one, whose usual answer is known."""
    for number, data in enumerate(explored.nearest):
        valid = bench.stock.valid[number % len(usual)]
        try:
            engine.encode(copy.deepcopy(data))
        except OutOfTime:
            raise
        except Exception:  # noqa: BLE001, S110 - refused, in whatever way: other rules are about it
            pass
        try:
            got = plain(engine.encode(copy.deepcopy(valid)))
        except OutOfTime:
            raise
        except Exception as error:  # noqa: BLE001 - whatever ends an engine
            what: str | None = f"with {type(error).__name__}: {error}"
        else:
            what = difference(got, usual[number % len(usual)], bench.hidden)
        if what:
            ledger.advise(
                ENDURES,
                f"after the request {shortened(data)} the valid request {shortened(valid)} was "
                f"answered {what}",
            )
            return
        ledger.saw(ENDURES)


def in_server(
    ledger: Ledger,
    server: Server | ExternalServer,
    client: Client,
    explored: Explored,
    *,
    valid: Sequence[Any],
    mixed: Callable[[Answer, int], str | None],
) -> None:
    """Send requests to a server, each beside a valid one and before another.

    What does harm comes last, and is never sent to a server that runs already.

    Args:
        ledger: takes what is seen.
        server: one that has the plugin.
        client: of it.
        explored: what requests do in the simulator.
        valid: requests that are answered.
        mixed: says in what an answer differs from the one to the valid request of that number.

    """
    for number, data in enumerate(explored.nearest):
        index = number % len(valid)
        ask = clients.through_sdk if number % 2 and clients.writes(data) else clients.as_written
        answers = _around(client, data, valid[index], ask)
        if server.healthy() and any(answer.late for answer in answers.values()):
            # Once may be the doing of a busy machine.
            answers = _around(client, data, valid[index], ask)
        for when, answer in answers.items():
            if what := mixed(answer, index):
                death = None if server.healthy() else server.failure(within=DEATH_SECONDS)
                ended = f"got no answer: {death}" if death else what
                ledger.advise(
                    ENDURES,
                    f"{when} the request {shortened(data)} the valid request "
                    f"{shortened(valid[index])} {ended}; {_by_hand(client, data)}",
                )
                return
        ledger.saw(ENDURES)
    if explored.harm is None or not isinstance(server, Server):
        return
    if explored.harm.fills:
        ledger.remarks[ENDURES] = (
            f"{bodies.called(explored.harm.sent)} {explored.harm.what} in the simulator, and was "
            "not sent to a server on this machine"
        )
    elif seen := _harm_in(server, client, explored.body, valid=valid, mixed=mixed):
        said = f"{bodies.called(explored.harm.sent)} {seen}"
        ledger.advise(ENDURES, f"{said}; {_by_hand(client, explored.body)}")


def _around(
    client: Client, data: object, valid: object, ask: Callable[[Client, object], Answer]
) -> dict[str, Answer]:
    """Send a request; return the answers to a valid one beside it and to one after it."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        beside = pool.submit(clients.over_rest, client, valid)
        ask(client, data)
    return {"beside": beside.result(), "after": clients.over_rest(client, valid)}


def _harm_in(
    server: Server,
    client: Client,
    body: object,
    *,
    valid: Sequence[Any],
    mixed: Callable[[Answer, int], str | None],
) -> str | None:
    """Send the request that does harm in the simulator; return what harm it does to a server."""
    with ThreadPoolExecutor(max_workers=1 + len(valid)) as pool:
        sent = pool.submit(clients.as_written, client, body, 2 * STALL)
        others = [pool.submit(clients.over_rest, client, data, None, 2 * STALL) for data in valid]
    answer, beside = sent.result(), [other.result() for other in others]
    if answer.kind is Kind.FAILED:
        # A server that ends takes some seconds for it.
        death = server.failure(within=DEATH_SECONDS)
        if death is not None or not server.healthy():
            return f"{answer.describe()}, and {death or 'the server is no longer healthy'}"
    for index, other in enumerate(beside):
        if what := mixed(other, index):
            return f"was sent, and beside it the valid request {shortened(valid[index])} {what}"
    return None


def _by_hand(client: Client, data: object) -> str:
    """Return the command that asks the same, where it is not too long."""
    command = curl(client, data)
    return command if len(command) < _BY_HAND else "its body is long: see the rule's program"
