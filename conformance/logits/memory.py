# SPDX-License-Identifier: Apache-2.0
"""Ten thousand requests through one instance, and what is left of them.

Of one that holds the same all the time there are fewer.

A client may say what it likes: where the plugin takes other values than those of the profile, half
of the requests have one that no other request has; after them as many come in which none has.
"""

from __future__ import annotations

import gc
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import partial
from typing import Any

import attrs
from vllm.sampling_params import SamplingParams

from conformance.counterexample.logits_player import other
from conformance.findings import Finding, failed, passed
from conformance.inputs.history import Choice
from conformance.logits.calls import PluginMisshapen, PluginRaised, call
from conformance.logits.configuration import MAX_REQUESTS
from conformance.logits.fuzzing.values import Position, at, positions, replaced
from conformance.logits.keywords import admitted
from conformance.logits.requests import Stock
from conformance.logits.trial import Trial
from conformance.settings import Budget
from conformance.verdict import Verdict
from conformance.watching.endless import ends, taking
from conformance.watching.interruption import PluginHung, limited
from conformance.watching.leaks import (
    FLAT,
    LAST,
    Given,
    flat,
    growing,
    kept,
    more_files,
    names_of_files,
    open_files,
    size_of,
    threads,
)

#: Serves so many requests, all finished in the end, with ``apply`` or without; notes what each
#: handed over; returns in how many steps rows changed.
Serve = Callable[[int, list[Given], bool], int]

#: Makes an instance; returns it, and what has it serve these requests.
Begin = Callable[["Requests"], tuple[object, Serve]]

REQUESTS = {Budget.QUICK: FLAT, Budget.STANDARD: 10_000, Budget.DEEP: 10_000}

#: One part in so many of the requests in each round without ``apply``.
IDLE = 10

#: The first requests, after which libraries have started what they start, and then as many more.
FIRST = 200

#: How often the plugin is measured, with no request in it.
MEASUREMENTS = 5

#: Where it grows with values of clients, so many more requests have one, and as many again: a cache
#: that has an end is full by then.  Of how many objects for each it is said to grow then.
MORE = 10_000
ROUNDS = 3
BLOCKS_PER_REQUEST = 0.5

#: A plugin may keep what it was last given until something else takes its place.
KEPT = 2 * MAX_REQUESTS

#: Requests in which a container is seen to grow.
SOME = 10

#: Seconds for all of it: each call is as long as in any other check, there are only more.
LIMIT = 60.0


@attrs.define
class Requests:
    """Requests, one after the other."""

    bench: Stock
    #: Where parameter sets have values of which there are others.
    places: Mapping[Choice, Sequence[Position]]
    numbers: Iterator[int]
    every: bool = False  #: whether all have another one, and not half of them

    @property
    def share(self) -> str:
        """How many requests bring another value, where half of those do that can."""
        share = Fraction(len(self.places), 2 * len(self.bench.choices))
        return f"{share.numerator} in {share.denominator}"

    def following(self) -> tuple[int, SamplingParams]:
        """Return the number and the parameters of the next request.

        Raises:
            PluginRaised: the plugin does not take its value.

        """
        number, bench = next(self.numbers), self.bench
        choices = tuple(self.places) if self.every else bench.choices
        choice, turn = choices[number % len(choices)], number // len(choices)
        params = bench.params(choice)
        if bench.most(choice) is None and params.max_tokens is not None:
            params.max_tokens += number
        if (places := self.places.get(choice)) and (self.every or turn % 2):
            field, *inside = path = places[turn // 2 % len(places)]
            told = other(at(bench.parameters[choice], path), number)
            setattr(params, field, replaced(getattr(params, field), tuple(inside), told))
            call("validate_params", bench.plugin.validate_params, params)
        return number, params


def _places(bench: Stock) -> dict[Choice, list[Position]]:
    """Return where parameter sets that opt in have values of which there are very many.

    Where none does, as with a plugin that only observes, all sets count.
    """
    last = REQUESTS[Budget.STANDARD] + ROUNDS * MORE
    opting = [choice for choice in bench.choices if choice[0] != "off"] or bench.choices
    found = {
        choice: [
            path
            for path in positions(dict(base))
            # Other tables have keys that vLLM converts.
            if path[0] == "extra_args" or len(path) == 1
            if type(value := at(base, path)) in (str, int, float)
            if value
            and all(
                admitted(bench.plugin, replaced(base, path, other(value, number)))
                for number in (1, last)
            )
        ]
        for choice, base in bench.parameters.items()
        if choice in opting
    }
    return {choice: places for choice, places in found.items() if places}


def forgets(trial: Trial) -> Finding:
    """Nothing of finished requests is kept, and nothing grows."""
    return trial.leaks or trial.contract.look(trial.bench, trial.budget)


def look(bench: Stock, begin: Begin, names: tuple[str, ...], budget: Budget) -> Finding:
    """Return what is found of an instance."""
    found: Finding | None = None
    numbers = itertools.count()  # what is kept on a class or in a module is there for both
    if places := _places(bench):
        # What is raised for a value, other rules say.
        with suppress(PluginRaised, PluginMisshapen, PluginHung):
            found = _look(Requests(bench, places, numbers), begin, names, budget)
    # Also where that is well: what grows under a value that is repeated may have made room for
    # others there.
    plain = _look(Requests(bench, {}, numbers), begin, names, budget)
    if found is None or plain.verdict is Verdict.FAIL:
        return plain
    # A plugin that changes no row may keep something all the same.
    return found if found.verdict is Verdict.FAIL or plain.verdict is Verdict.PASS else plain


def _look(requests: Requests, begin: Begin, names: tuple[str, ...], budget: Budget) -> Finding:
    count = most = REQUESTS[budget]
    given: list[Given] = []
    sizes: list[int] = []
    plugin, serve = begin(requests)
    acted, files, opened = 0, open_files(), names_of_files()
    with limited(LIMIT):
        serve(FIRST, given, True)  # noqa: FBT003 - with apply
        before = threads()
        serve(FIRST, given, True)  # noqa: FBT003 - with apply
        if (left := threads() - before) > KEPT:
            said = f"{left} threads that {FIRST} finished requests started still run"
            return attrs.evolve(failed(said, FIRST), exhausts=True)
        for count in (most,) if budget is Budget.DEEP else sorted({FLAT, most}):
            sizes = []
            for _ in range(MEASUREMENTS):
                acted += serve(count // MEASUREMENTS, given, True)  # noqa: FBT003 - with apply
                sizes.append(size_of(plugin))
                if (left := open_files() - files) > KEPT:
                    said = f"after {len(given)} requests {more_files(left, opened)}"
                    return failed(said, len(given), acted)
            if flat(sizes):
                break
        more = _again(serve, MORE, apply=True)
        goes_on = (
            partial(_with_values, requests, more)
            if requests.places
            else partial(_grows_on, plugin, more)
        )
        grew = growing(sizes, count // MEASUREMENTS)
        if what := kept(given, names, KEPT) or _endlessly(
            plugin, partial(_few, serve, apply=True), goes_on(grew)
        ):
            case = {"varied": _varied(requests)} if requests.places else None
            what += taking(plugin, _again(serve, FIRST, apply=True), FIRST)
            return failed(f"after {count} requests {what}", count, acted, case=case)
        # Ranks of a pipeline but the last, and batches of greedy requests, never get to ``apply``.
        given, sizes = [], sizes[-1:]
        for _ in range(LAST):
            serve(count // IDLE, given, False)  # noqa: FBT003 - without apply
            sizes.append(size_of(plugin))
        more = _again(serve, MORE, apply=False)
        grew = growing(sizes, count // IDLE)
        if what := kept(given, names, KEPT) or _endlessly(
            plugin, partial(_few, serve, apply=False), _grows_on(plugin, more, grew)
        ):
            what += taking(plugin, _again(serve, FIRST, apply=False), FIRST)
            return failed(f"after {len(given)} requests without apply {what}", count, acted)
    return passed(count, acted)


def _again(serve: Serve, count: int, *, apply: bool) -> Callable[[], object]:
    """Return what serves so many requests, each time with a list of its own for them."""
    return lambda: serve(count, [], apply)


def _few(serve: Serve, *, apply: bool) -> int:
    """Serve a few requests; return how many."""
    serve(SOME, [], apply)
    return SOME


def _endlessly(plugin: object, few: Callable[[], int], grew: str | None) -> str | None:
    """Return what was said of a plugin that grew, unless it has an end that is further away."""
    if grew is not None:
        with suppress(PluginHung), limited(LIMIT):
            if ends(plugin, few):
                return None
    return grew


def _grows_on(plugin: object, serve: Callable[[], object], grew: str | None) -> str | None:
    """Return what was said of a plugin that grew, if it still does with many more requests.

    A journal that is worked off whenever it is full grows for a while, again and again.
    """
    if grew is None:
        return None
    sizes = [size_of(plugin)]
    with suppress(PluginHung), limited(LIMIT):
        for _ in range(LAST):
            serve()
            sizes.append(size_of(plugin))
        return grew if growing(sizes, MORE) else None
    return grew  # it takes ever longer


def _with_values(requests: Requests, serve: Callable[[], object], grew: str | None) -> str | None:
    """Say that a plugin still grows where a cache that has an end would be full."""
    if grew is None:
        return None
    requests.every, before = True, None
    for _ in range(ROUNDS):
        serve()
        gc.collect()
        now = sys.getallocatedblocks()
        if before is not None and now - before < MORE * BLOCKS_PER_REQUEST:
            return None
        before = now
    places = ", ".join(".".join(map(str, path)) for path in _varied(requests))
    return f"{grew}, with {requests.share} bringing a value of its own: {places}"


def _varied(requests: Requests) -> list[list[Any]]:
    every = dict.fromkeys(path for paths in requests.places.values() for path in paths)
    return [list(path) for path in every]
