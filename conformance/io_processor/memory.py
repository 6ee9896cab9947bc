# SPDX-License-Identifier: Apache-2.0
"""Ten thousand requests through one instance, answered and abandoned, and what is left of them.

Of a plugin that takes its time there are fewer, and of one that holds the same all the time.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import attrs

from conformance.checking import checks
from conformance.findings import Finding, failed, passed, unjudged, waiting
from conformance.io_processor.bench import Bench
from conformance.io_processor.loads import KEPT, Load, Refused, optional, refused
from conformance.io_processor.trial import ENDURES, Trial
from conformance.io_processor.watched import Watched
from conformance.settings import Budget
from conformance.verdict import Verdict
from conformance.watching import raised
from conformance.watching.endless import endless, ends, taking
from conformance.watching.interruption import PluginExited, PluginHung
from conformance.watching.later import ahead
from conformance.watching.leaks import (
    BYTES_PER_REQUEST,
    FLAT,
    LONGEST,
    STRAIGHT,
    Spent,
    flat,
    growing,
    kept,
)

REQUESTS = {Budget.QUICK: FLAT, Budget.STANDARD: 10_000, Budget.DEEP: 10_000}

#: Of those that are refused, fewer tell: they leave nothing, or something each.
REFUSED = 2_000

#: Seconds of work, and of waiting, that the requests of one measurement may take.
SECONDS = 1.0

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

NAMES = ("data", "output")


@checks("IO-35")
def forgets(trial: Trial) -> Finding:
    """Nothing of answered requests is held, nor of their texts where each has its own."""
    found = _look(trial, answered=True)
    if found.verdict is not Verdict.PASS:
        return found
    for more in dict.fromkeys((None, trial.once(optional))):
        load = Load(trial.bench, trial.bench.make(), answered=True, unlike=True, optional=more)
        sizes: list[int] = []
        for _ in range(MEASUREMENTS):
            load.serve(UNLIKE, SECONDS)
            sizes.append(load.size())
        if growing(sizes, UNLIKE) is None or (what := _endless(load)) is None:
            continue
        if trial.find("IO-36").verdict is Verdict.FAIL:
            return waiting("IO-36")  # it is kept whether they are answered or not
        said = f"after {load.served} {load.which}, each with a text of its own, {what}"
        return failed(said, load.served, case={**load.case, "unlike": True})
    return found


@checks("IO-36")
def abandons(trial: Trial) -> Finding:
    """What is held of requests that never came to ``post_process`` is bounded."""
    found = _look(trial, answered=False)
    # What is kept by their ids may be bounded, and what is kept of one id not.
    found = _also(trial, found, partial(Load, answered=False, unlike=True, alike=True))
    if more := trial.once(optional):
        found = _also(trial, found, partial(Load, answered=False, unlike=True, optional=more))
    if found.verdict is not Verdict.PASS:
        return found
    if trial.find(ENDURES).verdict is Verdict.FAIL:
        return waiting(ENDURES)  # what is refused may end this process
    spoilt = refused(trial.bench)
    return _also(trial, found, partial(Refused, refused=spoilt)) if spoilt else found


def _also(trial: Trial, found: Finding, load: Callable[[Bench, Watched], Load]) -> Finding:
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
    return passed(count)


def _look(trial: Trial, *, answered: bool) -> Finding:
    load = Load(trial.bench, trial.bench.make(), answered=answered, unlike=not answered)
    most = REQUESTS[trial.budget]
    return _judged(load, most=most, first=most if trial.budget is Budget.DEEP else FLAT)


def _judged(load: Load, *, most: int, first: int) -> Finding:
    """Judge what is left of requests, or that no more are taken after so many."""
    try:
        return _measured(load, most=most, first=first)
    except (PluginHung, PluginExited):
        raise
    except Exception as error:
        if load.case["answered"] or not load.taken_anew():
            raise
        before = load.served - 1
        if _taken_later(load):
            return passed(before)
        which, why = load.which.replace(" that", ", which"), raised.said(error, load.bench.path)
        return failed(
            f"after {before} {which}, a valid request with an id of its own raised {why}; a new "
            "instance takes it",
            before,
            case={**load.case, "room": before},
        )


def _taken_later(load: Load) -> bool:
    """Tell whether an instance that takes no more requests does so after a time."""
    with ahead(load.plugin.plugin) as clock:
        for seconds in LATER:
            clock.seconds += seconds
            with suppress(Exception):
                load.serve(1, SECONDS)
                return True
    return False


def _measured(load: Load, *, most: int, first: int) -> Finding:
    each, sizes = _sizes(load, first)
    if first < most and load.served >= first and not flat(sizes):
        each, sizes = _sizes(load, most)
    served = load.served
    found = load.open_files
    if found is None and load.case["answered"]:
        found = kept(load.given, NAMES, KEPT)
    grew = None if found else growing(sizes, each)
    if grew:
        enough = min(most, STRAIGHT)
        if each < enough // MEASUREMENTS and (what := _endless(load)):
            said = f"after {served} {load.which} {grew}: {what}"
            return failed(said, load.served, case=load.case)
        if not _keeps_growing(load, most):
            return passed(load.served)
        found = grew
        if load.served < enough:
            why = f"after {load.served} requests {found}; there was no time for {enough}"
            return unjudged(why, load.served, load.served)
    if not found:
        return passed(load.served)
    said = f"after {served} {load.which} {found}"
    # Afterwards: what fills a container stays in its copies.
    if (finding := _in_time(load, said)) or (
        grew and ends(load.plugin.plugin, partial(_few, load))
    ):
        return finding or passed(load.served)
    if load.left_open <= KEPT:
        said += taking(load.plugin.plugin, partial(load.serve, SOME, LONGEST), SOME)
    return failed(said, load.served, case=load.case)


def _in_time(load: Load, said: str) -> Finding | None:
    """Return the finding that what is held is gone after a time, or None where it stays."""
    if load.left_open > KEPT or not (seconds := _forgotten_after(load)):
        return None
    said += (
        f"; they are forgotten within {LATER[seconds]}, and not before: at {BUSY} requests "
        f"a second that is what {BUSY * seconds} of them leave"
    )
    return attrs.evolve(passed(load.served), message=said, case=load.case)


def _forgotten_after(load: Load) -> int | None:
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


def _sizes(load: Load, most: int) -> tuple[int, list[int]]:
    """Serve so many requests in parts; return how many are in each, and what was held after it."""
    each = load.serve(most // MEASUREMENTS, SECONDS)
    sizes = [load.size()]
    for _ in range(MEASUREMENTS - 1):
        load.serve(each, SECONDS)
        sizes.append(load.size())
    return each, sizes


def _endless(load: Load) -> str | None:
    """Say what of a plugin that takes its time has no end, as far as a few requests tell."""
    return endless(load.plugin.plugin, partial(_few, load))


def _few(load: Load) -> int:
    """Serve a few requests; return how many."""
    return load.serve(SOME, LONGEST)


def _keeps_growing(load: Load, most: int) -> bool:
    """Tell whether a plugin that grew still does after many more requests.

    By then it holds so much that the process is looked at, and not every object.  One that takes
    its time, as long as there is any, is given as many requests as others.
    """
    load.given.clear()
    blocks, size, rounds, spent = None, 0, 0, Spent()
    enough = min(most, STRAIGHT)
    while rounds < ROUNDS or (load.served < enough and not spent.beyond(LONGEST, LONGEST)):
        rounds += 1
        served = load.serve(most, MEASUREMENTS * SECONDS)
        now, held = load.blocks(), load.size()
        if (
            blocks is not None
            and now - blocks < served * BLOCKS_PER_REQUEST
            and held - size < served * BYTES_PER_REQUEST  # a buffer is one object
        ):
            return False
        blocks, size = now, held
    return True
