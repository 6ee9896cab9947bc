# SPDX-License-Identifier: Apache-2.0
"""Ten thousand requests through one instance, answered and abandoned, and what is left of them.

Of a plugin that takes its time there are fewer, and of one that holds the same all the time.
"""

from __future__ import annotations

import copy
import gc
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import attrs
import torch

from conformance.checking import checks
from conformance.findings import Finding, failed, passed, waiting
from conformance.io_processor.bench import Bench
from conformance.io_processor.direct import prepared
from conformance.io_processor.parameters import asks
from conformance.io_processor.prompts import parsed
from conformance.io_processor.stock import Path, changed, places, without
from conformance.io_processor.trial import ENDURES, Trial
from conformance.io_processor.watched import Watched
from conformance.settings import Budget
from conformance.verdict import Verdict
from conformance.watching.endless import endless, taking
from conformance.watching.interruption import limited, progressed
from conformance.watching.later import ahead
from conformance.watching.leaks import (
    FLAT,
    LONGEST,
    STRAIGHT,
    Given,
    Spent,
    flat,
    growing,
    kept,
    more_files,
    names_of_files,
    open_files,
    size_of,
)

REQUESTS = {Budget.QUICK: FLAT, Budget.STANDARD: 10_000, Budget.DEEP: 10_000}

#: Of those that are refused, fewer tell: they leave nothing, or something each.
REFUSED = 2_000

#: Seconds of work, and of waiting, that the requests of one measurement may take, and how many
#: there are at the least.
SECONDS, FEWEST = 1.0, 2

#: How often the plugin is measured, with no request in it.
MEASUREMENTS = 5

#: How often as many requests follow where the plugin grew: a cache may not be full yet.
ROUNDS = 3

#: Requests in which a container is seen to grow.
SOME = 6

#: Answered requests in a measurement where each has a text of its own: that takes longer.
UNLIKE = 100

#: Of how many objects for each request a plugin is then said to keep growing.
BLOCKS_PER_REQUEST = 0.5

#: What a plugin holds may be forgotten after a time: after how long that is looked for, in how many
#: further requests, and which share of all objects may remain for another reason, as in a cache.
LATER = {60: "a minute", 3_600: "an hour", 86_400: "a day"}
FURTHER, REMAINS = 500, 0.25

#: Requests a second by which messages tell how much that is.
BUSY = 100

#: Of how many answered requests a plugin may still hold something, or have a file open; after how
#: many requests files are counted: a process may have a thousand.
KEPT, COUNTED = 16, 100

NAMES = ("data", "output")


@checks("IO-35")
def forgets(trial: Trial) -> Finding:
    """Nothing of answered requests is held, nor of their texts where each has its own."""
    found = _look(trial, answered=True)
    if found.verdict is not Verdict.PASS:
        return found
    load = _Load(trial.bench, trial.bench.make(), answered=True, unlike=True)
    sizes: list[int] = []
    for _ in range(MEASUREMENTS):
        load.serve(UNLIKE, SECONDS)
        sizes.append(load.size())
    if growing(sizes, UNLIKE) is None or (what := _endless(load)) is None:
        return found
    if trial.find("IO-36").verdict is Verdict.FAIL:
        return waiting("IO-36")  # it is kept whether they are answered or not
    said = f"after {load.served} answered requests, each with a text of its own, {what}"
    return failed(said, load.served, case={"answered": True, "unlike": True})


@checks("IO-36")
def abandons(trial: Trial) -> Finding:
    """What is held of requests that never came to ``post_process`` is bounded."""
    found = _look(trial, answered=False)
    # What is kept by their ids may be bounded, and what is kept of one id not.
    found = _also(trial, found, partial(_Load, answered=False, unlike=True, alike=True))
    if found.verdict is not Verdict.PASS:
        return found
    if trial.find(ENDURES).verdict is Verdict.FAIL:
        return waiting(ENDURES)  # what is refused may end this process
    refused = _refused(trial.bench)
    return _also(trial, found, partial(_Refused, refused=refused)) if refused else found


def _also(trial: Trial, found: Finding, load: Callable[[Bench, Watched], _Load]) -> Finding:
    """Judge by other requests as well, where those so far show no fault."""
    if found.verdict is not Verdict.PASS:
        return found
    again = _judged(load(trial.bench, trial.bench.make()), most=REFUSED, first=REFUSED)
    # Where neither is endless, more is to be said of the one that takes a time.
    return found if found.case and again.verdict is Verdict.PASS else again


@checks("IO-44", after=("IO-36", "IO-35"))
def by_number(trial: Trial) -> Finding:
    """What is held of requests is bounded by itself, and not by how many come in a time."""
    count = 0
    for rule in ("IO-36", "IO-35"):
        found = trial.find(rule)
        if found.verdict is not Verdict.PASS:
            return waiting(rule, found.message)
        if found.case is not None:  # it passes, since what shows it is forgotten after a time
            return failed(str(found.message), found.examples, case=found.case)
        count += found.examples
    return passed(count, count)


def _look(trial: Trial, *, answered: bool) -> Finding:
    load = _Load(trial.bench, trial.bench.make(), answered=answered, unlike=not answered)
    most = REQUESTS[trial.budget]
    return _judged(load, most=most, first=most if trial.budget is Budget.DEEP else FLAT)


def _judged(load: _Load, *, most: int, first: int) -> Finding:
    each, sizes = _sizes(load, first)
    if first < most and load.served >= first and not flat(sizes):
        each, sizes = _sizes(load, most)
    served = load.served
    found = load.open_files
    if found is None and load.case["answered"]:
        found = kept(load.given, NAMES, KEPT)
    if found is None and (grew := growing(sizes, each)):
        enough = min(most, STRAIGHT)
        if each < enough // MEASUREMENTS and (what := _endless(load)):
            said = f"after {served} {load.which} {grew}: {what}"
            return failed(said, load.served, case=load.case)
        if not _keeps_growing(load, most):
            return passed(load.served, load.served)
        found = grew
        if load.served < enough:
            why = f"after {load.served} requests {found}; there was no time for {enough}"
            return Finding(Verdict.NOT_VERIFIED, load.served, load.served, why)
    if found:
        said = f"after {served} {load.which} {found}"
        if load.left_open <= KEPT and (seconds := _forgotten_after(load)):
            said += (
                f"; they are forgotten within {LATER[seconds]}, and not before: at {BUSY} requests "
                f"a second that is what {BUSY * seconds} of them leave"
            )
            bounded = passed(load.served, load.served)
            return attrs.evolve(bounded, message=said, case=load.case)
        if load.left_open <= KEPT:
            said += taking(load.plugin.plugin, partial(load.serve, SOME, LONGEST), SOME)
        return failed(said, load.served, case=load.case)
    return passed(load.served, load.served)


def _forgotten_after(load: _Load) -> int | None:
    """Return after how many seconds what a plugin holds is gone, or None where it stays."""
    with ahead(load.plugin.plugin) as clock:
        load.serve(SOME, LONGEST)
        if not clock.asked:
            return None
        # Where there are many of them, some look how old they are.
        load.serve(max(REQUESTS.values()), MEASUREMENTS * SECONDS)
        for seconds in LATER:
            held, before = load.blocks() - load.blocks_before, load.served
            clock.seconds += seconds
            further = load.serve(FURTHER, SECONDS)
            remain = load.blocks() - load.blocks_before - held * further / before
            if remain < held * REMAINS:
                return seconds
    return None


def _sizes(load: _Load, most: int) -> tuple[int, list[int]]:
    """Serve so many requests in parts; return how many are in each, and what was held after it."""
    each = load.serve(most // MEASUREMENTS, SECONDS)
    sizes = [load.size()]
    for _ in range(MEASUREMENTS - 1):
        load.serve(each, SECONDS)
        sizes.append(load.size())
    return each, sizes


def _endless(load: _Load) -> str | None:
    """Say what of a plugin that takes its time has no end, as far as a few requests tell."""

    def serve() -> int:
        return load.serve(SOME, LONGEST)

    try:
        return endless(load.plugin.plugin, serve)
    except Exception:  # noqa: BLE001 - it may do anything with entries that are not its own
        return None


def _keeps_growing(load: _Load, most: int) -> bool:
    """Tell whether a plugin that grew still does after many more requests.

    By then it holds so much that the process is looked at, and not every object.  One that takes
    its time, as long as there is any, is given as many requests as others.
    """
    load.given.clear()
    blocks, rounds, spent = None, 0, Spent()
    enough = min(most, STRAIGHT)
    while rounds < ROUNDS or (load.served < enough and not spent.beyond(LONGEST, LONGEST)):
        rounds += 1
        served = load.serve(most, MEASUREMENTS * SECONDS)
        now = load.blocks()
        if blocks is not None and now - blocks < served * BLOCKS_PER_REQUEST:
            return False
        blocks = now
    return True


class _Load:
    """Requests for one instance, no two with the same id, unless they are alike.

    Args:
        bench: what requests are made of.
        plugin: the instance.
        answered: whether they are answered, and not only begun.
        unlike: whether each has a text of its own, if the data have any.
        alike: whether all have one id, as a client may give each of its requests.

    """

    def __init__(
        self, bench: Bench, plugin: Watched, *, answered: bool, unlike: bool, alike: bool = False
    ) -> None:
        self.which = "answered requests" if answered else "abandoned requests"
        self.case = {"answered": answered}
        if alike:
            self.which += " that all had one id"
            self.case["alike"] = True
        self.plugin = plugin
        self.served = self.left_open = 0
        self.open_files: str | None = None
        self.given: list[Given] = []
        self._bench = bench
        self._answered, self._unlike = answered, unlike
        valid = bench.stock.valid[: max(2, bench.stock.given)]
        self._templates = [(data, prepared(bench.make(), bench, data, "id-0")) for data in valid]
        # A plugin may compare what comes back with what it has sent: where that is never the same,
        # as with a nonce, no output of before will do.
        self._anew = answered and any(
            [each.prompt_token_ids for each in outputs]
            != [each.prompt_token_ids for each in prepared(bench.make(), bench, data, "id-0")]
            for data, outputs in self._templates
        )
        self._places = [_telling(bench, data) for data in valid]
        self._open, self._files = open_files(), names_of_files()
        self.blocks_before = self.blocks()

    def serve(self, most: int, seconds: float) -> int:
        """Serve so many requests, or as many as there is time for; return how many."""
        spent = Spent()
        for count in range(1, most + 1):
            with limited():
                self._serve_one()
            progressed()  # many requests take longer than anything else does
            if self.served % COUNTED == 0 and self._left() > KEPT:
                gc.collect()  # what is in cycles is closed when they are
                if (left := self._left()) > KEPT:
                    self.left_open = left
                    self.open_files = more_files(left, self._files)
                    return count
            if count >= FEWEST and spent.beyond(seconds, seconds):
                return count
        return most

    def _left(self) -> int:
        return open_files() - self._open

    def size(self) -> int:
        """Return how many bytes the plugin holds."""
        self.plugin.forget()
        return size_of(self.plugin.plugin)

    def blocks(self) -> int:
        """Return how many objects the process has, without those that the harness keeps."""
        self.given.clear()
        self.plugin.forget()
        gc.collect()
        return sys.getallocatedblocks()

    def _serve_one(self) -> None:
        bench, plugin = self._bench, self.plugin
        kind = self.served % len(self._templates)
        data, outputs = self._templates[kind]
        request_id = "id-0" if "alike" in self.case else f"id-{self.served}"
        mine, place = copy.deepcopy(data), self._places[kind] if self._unlike else None
        if place is not None:
            mine = changed(mine, place[0], f"{place[1]} {self.served}")
        self.served += 1
        if self._anew or (place is not None and self._answered):
            fresh = prepared(plugin, bench, mine, request_id)
        else:
            try:
                plugin.pre_process(prompt=parsed(plugin, bench, mine), request_id=request_id)
            except Exception:
                if "alike" in self.case:
                    return  # it refuses an id that is in use
                raise
            asks(plugin, bench)()
            fresh = [copy.copy(output) for output in outputs]
            for index, output in enumerate(fresh):
                output.request_id = f"{request_id}-{index}"
        if self._answered:
            with torch.inference_mode():
                plugin.post_process(fresh, request_id=request_id)
        if isinstance(mine, dict | list):  # a string may be anybody's
            self.given.append((mine, fresh[0]))


class _Refused(_Load):
    """Requests that are refused, none of them the same as another."""

    def __init__(self, bench: Bench, plugin: Watched, refused: list[dict[str, Any]]) -> None:
        super().__init__(bench, plugin, answered=False, unlike=True)
        self.which = "refused requests"
        self._spoilt = refused

    def _serve_one(self) -> None:
        data = self._spoilt[self.served % len(self._spoilt)]
        self.served += 1
        with suppress(Exception):
            _begun(self._bench, self.plugin, {**data, "number": f"{self.served}"})


def _refused(bench: Bench) -> list[dict[str, Any]]:
    """Return objects that are refused, with something else in them or not."""
    valid = bench.stock.valid[: bench.stock.given]
    spoilt = [
        spoil(data, place)
        for data in valid[:1]
        for place, _ in places(data)
        if place and isinstance(place[-1], str)
        for spoil in (without, lambda data, place: changed(data, place, None))
    ]
    found: list[dict[str, Any]] = []
    for data in (*spoilt, *bench.stock.invalid):
        if isinstance(data, dict):
            try:
                _begun(bench, bench.make(), {**data, "number": "0"})
            except Exception:  # noqa: BLE001 - as a plugin refuses
                found.append(data)
    return found


def _begun(bench: Bench, plugin: Watched, data: object) -> None:
    plugin.pre_process(prompt=parsed(plugin, bench, data), request_id="id-0")


def _telling(bench: Bench, data: object) -> tuple[Path, str] | None:
    """Return a text in the data that may also end in a number, or None."""
    number = max(REQUESTS.values())
    for place, value in places(data):
        if isinstance(value, str):
            plugin = bench.make()
            try:
                made = parsed(plugin, bench, changed(data, place, f"{value} {number}"))
                plugin.pre_process(prompt=made, request_id="id-0")
            except Exception:  # noqa: BLE001, S112 - it may not
                continue
            return place, value
    return None
