# SPDX-License-Identifier: Apache-2.0
"""Histories as case files have them: written down, read, and played again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from conformance.counterexample.source import decoded, encoded
from conformance.io_processor.answers import Kind
from conformance.io_processor.bench import Bench, ConstructorRaised
from conformance.io_processor.isolation import Broken, judge
from conformance.io_processor.stock import Stock
from conformance.io_processor.traffic import Asked, Do, History, Move
from conformance.watching.comparison import Place, letter
from conformance.watching.interruption import PluginExited, PluginHung


def written(bench: Bench, stock: Stock, broken: Broken) -> dict[str, Any]:
    """Return a history as data: enough to print it and to play it again.

    Args:
        bench: the plugin.
        stock: the data of the history, which may be others than the bench's.
        broken: the history, and what came of it.

    """
    return {
        "awaited": broken.awaited,
        "requests": [
            {
                "name": letter(index),
                "id": asked.id,
                "valid": asked.valid,
                "data": encoded(carried(stock, asked)),
                **({"beside": dict(asked.beside)} if asked.beside else {}),
            }
            for index, asked in enumerate(broken.history.asked)
        ],
        # Moves that did not apply say nothing; and those that nobody had to say are said.
        "moves": [_move(move) for move in _applied(broken)],
        "lines": [attrs.asdict(step) for step in broken.played.steps],
        "hidden": sorted(list(place) for place in bench.hidden),
    }


def _move(move: Move) -> list[Any]:
    flags = (move.hurried, move.rest)
    return [move.do.value, move.request, move.pick, *(flags if any(flags) else ())]


def carried(stock: Stock, asked: Asked) -> Any:  # noqa: ANN401 - JSON values
    """Return the data of a request."""
    return (stock.valid if asked.valid else stock.invalid)[asked.data]


def _applied(broken: Broken) -> tuple[Move, ...]:
    """Return the moves that did something, to the end; all of them where nobody can tell."""
    names = [letter(index) for index in range(len(broken.history.asked))]
    waiting: dict[int, list[int]] = {}
    found: list[Move] = []
    if broken.history.hurried:
        return broken.history.moves
    for step in broken.played.steps:
        request = names.index(step.request)
        pick = 0
        if step.do is Do.ARRIVE:
            waiting[request] = list(range(step.waits))
        elif step.output in waiting[request]:
            pick = waiting[request].index(step.output)
            waiting[request].remove(step.output)
        elif step.do is not Do.LEAVE:
            return broken.history.moves
        found.append(Move(step.do, request, pick))
    return tuple(found)


@attrs.frozen
class Saved:
    """A history of a case file."""

    history: History
    valid: tuple[Any, ...]
    invalid: tuple[Any, ...]
    awaited: bool
    hidden: frozenset[Place]


def read(counterexample: Mapping[str, Any]) -> Saved:
    """Read what :func:`written` wrote.

    Raises:
        AttributeError, LookupError, TypeError, ValueError: it is nothing of the kind.

    """
    data: dict[bool, list[Any]] = {True: [], False: []}
    asked = []
    for request in counterexample["requests"]:
        mine = data[request["valid"]]
        beside = tuple(request.get("beside", {}).items())
        asked.append(Asked(len(mine), str(request["id"]), request["valid"], beside))
        mine.append(decoded(request["data"]))
    moves = []
    for do, index, pick, *flags in counterexample["moves"]:
        if not (type(index) is type(pick) is int and 0 <= index < len(asked) and pick >= 0):
            raise ValueError(f"a move of request {index!r} among {len(asked)}")
        moves.append(Move(Do(do), index, pick, *map(bool, flags)))
    if not any(move.do is Do.ARRIVE for move in moves):
        raise ValueError("no request arrives")
    return Saved(
        History(tuple(asked), tuple(moves)),
        tuple(data[True]),
        tuple(data[False]),
        bool(counterexample["awaited"]),
        frozenset(tuple(map(str, place)) for place in counterexample.get("hidden", ())),
    )


def again(bench: Bench, saved: Saved) -> tuple[list[str], str]:
    """Play a history of a case file again; return the kinds of trouble, and a message.

    What the history was about can be judged only where its requests are still answered alone, and
    answers are as steady as they were.
    """
    count = len(saved.valid)
    bench.stock = Stock(saved.valid, saved.invalid, "replay", count, prompts=(0,) * count)
    try:
        return _judged(bench, saved)
    except ConstructorRaised as error:
        return ["constructor"], f"making an instance raised {error}"
    except PluginHung as error:
        return ["hung"], str(error)
    except PluginExited as error:
        return ["exited"], str(error)


def _judged(bench: Bench, saved: Saved) -> tuple[list[str], str]:
    bench.hidden = bench.unsteady()
    broken = judge(bench, saved.history, awaited=saved.awaited)
    if broken is not None:
        return ["traffic"], broken.message
    for index, asked in enumerate(saved.history.asked):
        answer = bench.by_itself(asked, awaited=saved.awaited)
        if asked.valid and answer.kind is not Kind.ANSWERED:
            name = letter(index)
            return ["unanswered"], f"request {name}, alone, {answer.describe()}"
    if bench.hidden - saved.hidden:
        return ["unsteady"], "the same request, asked again, gets another answer"
    return [], ""
