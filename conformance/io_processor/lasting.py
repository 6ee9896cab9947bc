# SPDX-License-Identifier: Apache-2.0
"""What a plugin's class, its module or a default keeps of requests, though instances are new."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from typing import Any

import attrs

from conformance.findings import Finding, failed
from conformance.io_processor.bench import Bench
from conformance.io_processor.prompts import prompts_of, unsteady
from conformance.io_processor.stock import near
from conformance.io_processor.trial import Trial
from conformance.watching.comparison import difference, plain, shortened
from conformance.watching.untouched import Ended

#: Of how many pairs of data that differ in little prompts are made in both orders.
PAIRS = 24


@attrs.frozen
class Errand:
    """Have prompts made in a process in which nothing has been done with the plugin."""

    generation: str
    model: str
    asked: tuple[tuple[str, Any], ...]  #: the request id and the data of each request
    what: str = f"{__name__}:in_turn"


def in_turn(plugin: type[Any], errand: Errand) -> list[Any]:
    """Return the prompts of one request after the other, each of a new instance.

    What raises has None: other rules are about that.
    """
    bench = Bench.open(plugin, errand.generation, errand.model, 0)
    found: list[Any] = []
    for request_id, data in errand.asked:
        made, given = bench.make(), None
        with suppress(Exception):
            given = plain(prompts_of(made, bench, data, request_id))
        found.append(given)
    return found


def outliving(trial: Trial) -> Finding | None:
    """Return how prompts depend on earlier requests, though every request has a new instance.

    Chance and clocks give other prompts in every process: what is the same in two of them is what
    the class, its module or a default has kept.
    """
    bench = trial.bench
    if trial.untouched is None or not (bench.hidden or unsteady(bench)):
        return None
    first, *others = bench.stock.originals
    model = bench.model
    for other in (*others, first):
        asked = tuple(("id-0", data) for data in (first, other, first))
        errand = Errand(bench.generation, model, asked)
        try:
            one, two = (trial.untouched.run(errand) for _ in range(2))
        except Ended:
            return None
        if any(given is None for given in (*one, *two)):
            return None
        if difference(one, two) is None and (what := difference(one[2], one[0])):
            return failed(
                f"of a new instance, after {shortened(other)}, the prompts of {shortened(first)} "
                f"are {what}",
                case={"data": first},
            )
    return None


def remembered(trial: Trial) -> Finding | None:
    """Return the finding that one request gets the prompts of another that differs in little.

    Histories of new instances do not show what a module or a class remembers: it was filled by the
    first request of this process.  So the same data are served in both orders, in a process each.
    """
    bench = trial.bench
    if trial.untouched is None:
        return None
    pairs: dict[object, tuple[Any, Any]] = {}
    for data in bench.stock.originals:
        for kind, pair in near(data, bench.stock.keys):
            pairs.setdefault(kind, pair)
    data = tuple(each for pair in islice(pairs.values(), PAIRS) for each in pair)
    model = bench.model
    asked = tuple((f"id-{number}", each) for number, each in enumerate(data))
    errands = [Errand(bench.generation, model, order) for order in (asked, asked[::-1])]
    try:
        forwards, turned = map(trial.untouched.run, errands)
        backwards = turned[::-1]
        numbers = [n for n in range(len(data)) if _others(forwards[n], backwards[n])]
        # What is left to chance is another rule's.
        again = [trial.untouched.run(errand) for errand in errands] if numbers else []
    except Ended:
        return None
    if not numbers or difference(again, [forwards, turned]) is not None:
        return None
    number = numbers[0]
    # The second of a pair comes after the first where all go forwards.
    after, alone = (backwards, forwards) if number % 2 == 0 else (forwards, backwards)
    return failed(
        f"of a new instance, after {shortened(data[number ^ 1])}, the prompts of "
        f"{shortened(data[number])} are {_others(after[number], alone[number])}",
        case={"data": data[number]},
    )


def _others(one: Any, other: Any) -> str | None:  # noqa: ANN401 - any prompts
    """Return how prompts differ, where both are there."""
    return None if one is None or other is None else difference(one, other)
