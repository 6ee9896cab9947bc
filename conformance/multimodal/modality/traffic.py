# SPDX-License-Identifier: Apache-2.0
"""Checks of many items: each must come out as it does alone."""

from __future__ import annotations

import inspect
import sys
import threading
import time
from contextlib import suppress
from types import FrameType
from typing import Any

import attrs
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from conformance.checking import checks
from conformance.findings import Finding, failed, passed
from conformance.multimodal.modality import hostile, shape
from conformance.multimodal.modality.bench import Bench
from conformance.multimodal.modality.calls import answered
from conformance.multimodal.modality.models import Model
from conformance.multimodal.modality.orders import turned
from conformance.multimodal.modality.served import Served, finished, parsed, run_through
from conformance.multimodal.modality.stock import Sample
from conformance.multimodal.modality.trial import Trial, table
from conformance.search import ITEMS, smallest
from conformance.verdict import Verdict
from conformance.watching.interruption import PluginHung

#: Items of a history.
LONGEST = 5

#: Threads, items of each, and seconds for all of them.
THREADS, EACH, SECONDS = 8, 12, 60.0

#: Seconds after which another thread may go on.
SWITCH = 1e-5


@attrs.frozen(eq=False)
class History:
    """Items one after the other, some of which are the client's mistakes."""

    samples: tuple[Sample, ...]
    order: tuple[int, ...]  #: in which they are preprocessed where all are parsed first
    model: Model


def _histories(bench: Bench, *, mistakes: bool) -> SearchStrategy[History]:
    samples = list(bench.good)
    if mistakes:
        samples += [*bench.promises.invalid, *hostile.nonsense(bench.modality)[-4:]]

    def ordered(chosen: list[Sample]) -> SearchStrategy[History]:
        return st.builds(
            History,
            st.just(tuple(chosen)),
            st.permutations(range(len(chosen))).map(tuple),
            st.sampled_from(bench.models),
        )

    return st.lists(st.sampled_from(samples), min_size=2, max_size=LONGEST).flatmap(ordered)


@checks("MM-71", after=("MM-68", "MM-70"))
def sequence(trial: Trial) -> Finding:
    """Items after items are what they are alone."""
    bench = trial.bench

    def judge(history: History) -> tuple[int, str] | None:
        plugin = bench.make()
        for index, sample in enumerate(history.samples):
            got = _kept(bench.serve(plugin, sample, history.model))
            if what := _different(bench, got, sample, history.model, hashes=trial.holds("MM-61")):
                return index, what
        return None

    def told(history: History, index: int, what: str) -> Finding:
        before = ", ".join(str(sample) for sample in history.samples[:index])
        rows = [
            (str(number), str(sample), _outcome(bench, sample, history.model))
            for number, sample in enumerate(history.samples[: index + 1])
        ]
        return failed(
            f"{history.samples[index]}, after {before or 'nothing'}, is not what it is alone: "
            f"{what}",
            case=table(("item", "what", "alone"), rows),
        )

    finding = _searched(trial, judge, told, mistakes=True)
    # Where a hash leaves something out, what is kept under it is mixed up as well.
    if finding.verdict is Verdict.PASS and trial.holds("MM-62"):
        return turned(bench) or finding
    return finding


@checks("MM-72", after=("MM-71",))
def together(trial: Trial) -> Finding:
    """Items of which several are parsed before any is preprocessed are what they are alone."""
    bench = trial.bench

    def judge(history: History) -> tuple[int, str] | None:
        plugin = bench.make()
        config = bench.config(history.model)
        found = [parsed(plugin, sample.data(bench.form)) for sample in history.samples]
        for index in history.order:
            if not found[index].good:
                continue
            got = _kept(finished(plugin, found[index].item, config))
            sample = history.samples[index]
            if what := _different(bench, got, sample, history.model, hashes=trial.holds("MM-61")):
                return index, what
        return None

    def told(history: History, index: int, what: str) -> Finding:
        others = ", ".join(
            str(sample) for number, sample in enumerate(history.samples) if number != index
        )
        until = history.order[: history.order.index(index) + 1]
        rows = [(str(n), str(sample), "parse_input") for n, sample in enumerate(history.samples)]
        rows += [(str(n), str(history.samples[n]), "validate to count_tokens") for n in until]
        return failed(
            f"{history.samples[index]}, parsed in one request with {others}, is not what it is "
            f"alone: {what}",
            case=table(("item", "what", "then"), rows),
        )

    return _searched(trial, judge, told, mistakes=False)


def _outcome(bench: Bench, sample: Sample, model: Model) -> str:
    served = bench.alone(sample, model)
    return f"{served.count} tokens" if served.good else "refused"


def _searched(trial: Trial, judge: Any, told: Any, *, mistakes: bool) -> Finding:  # noqa: ANN401 - as the trial's checks are
    def look(history: History) -> tuple[History, int, str] | None:
        found = judge(history)
        return (history, *found) if found else None

    histories = _histories(trial.bench, mistakes=mistakes)
    count, worst = smallest(histories, look, ITEMS, budget=trial.budget, seed=trial.bench.seed)
    if worst:
        finding: Finding = told(*worst)
        return attrs.evolve(finding, examples=count, acted=count)
    return passed(count)


def _different(
    bench: Bench, got: Served, sample: Sample, model: Model, *, hashes: bool
) -> str | None:
    """Say in what an item differs from itself alone, or return None."""
    wanted = bench.alone(sample, model)
    if not wanted.good:
        return None  # whether it is refused, other rules ask
    return shape.difference(got, wanted, hashes=hashes)


def _kept(served: Served) -> Served:
    """Return what came of an item as it is now: later items may write over it."""
    return attrs.evolve(served, features=shape.copied(served.features)) if served.good else served


@checks("MM-73", after=("MM-71", "MM-72", "MM-74"))
def threads(trial: Trial) -> Finding:
    """Items on several threads are what they are alone."""
    bench = trial.bench
    model = bench.models[0]
    hashes = trial.holds("MM-61")
    for sample in bench.good:
        bench.alone(sample, model)
    wrong = [
        (str(sample), what)
        for sample, got in _on_threads(bench, model)
        if (what := _different(bench, got, sample, model, hashes=hashes))
    ]
    count = THREADS * EACH
    if wrong:
        rows = [(str(index), *each) for index, each in enumerate(sorted(set(wrong))[:LONGEST])]
        # Which items were mixed up, and in what, is chance.
        return failed(
            f"of {count} items that were served on {THREADS} threads, some are not what they are "
            "alone",
            count,
            case=table(("item", "what", "then"), rows),
        )
    return passed(count)


def _on_threads(bench: Bench, model: Model) -> list[tuple[Sample, Served]]:
    """Return what comes of items that one instance serves on several threads.

    Raises:
        PluginExited: it raised ``SystemExit``.
        PluginHung: it did not return.

    """
    plugin, config = bench.make(), bench.config(model)
    tracer = _giving_way(bench.cls)
    served: list[tuple[Sample, Served]] = []
    raised: list[BaseException] = []
    begin = threading.Barrier(THREADS)

    def work(number: int) -> None:
        begin.wait()
        sys.settrace(tracer)
        try:
            for turn in range(EACH):
                sample = bench.good[(number + turn) % len(bench.good)]
                got = run_through(plugin, sample.data(bench.form), config, answered)
                served.append((sample, _kept(got)))
        except BaseException as error:  # noqa: BLE001 - handed to the main thread
            raised.append(error)
        finally:
            sys.settrace(None)

    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH)
    workers = [
        threading.Thread(target=work, args=(number,), daemon=True) for number in range(THREADS)
    ]
    try:
        for worker in workers:
            worker.start()
        until = time.monotonic() + SECONDS
        for worker in workers:
            worker.join(max(0.0, until - time.monotonic()))
    finally:
        sys.setswitchinterval(before)
    if any(worker.is_alive() for worker in workers):
        raise PluginHung(f"serving {THREADS * EACH} items on {THREADS} threads", SECONDS)
    if raised:
        raise raised[0]
    return served


def _giving_way(cls: type[Any]) -> Any:  # noqa: ANN401 - a trace function
    """Return a trace function that lets other threads go on after every line of the plugin's own.

    Python changes threads where it likes, which may be nowhere that matters in a short call.
    """
    own = set()
    for each in cls.__mro__:
        with suppress(TypeError, OSError):  # built-in classes have no file
            own.add(inspect.getfile(each))

    def line(_: FrameType, event: str, __: object) -> object:
        if event == "line":
            time.sleep(0)
        return line

    def called(frame: FrameType, *_: object) -> Any:  # noqa: ANN401 - as sys.settrace has it
        return line if frame.f_code.co_filename in own else None

    return called


@checks("MM-74", after=("MM-68", "MM-71"))
def own_arrays(trial: Trial) -> Finding:
    """Arrays that were handed over are not changed by later items."""
    bench = trial.bench
    for model in bench.models:
        plugin = bench.make()
        returned = []
        for sample in (*bench.good, *bench.good[:2]):
            served = bench.serve(plugin, sample, model)
            if served.good and not shape.trouble(served.features):
                returned.append((sample, served.features, shape.copied(served.features)))
        for sample, features, was in returned:
            if what := shape.arrays(features, was):
                return failed(f"the arrays of {sample} were changed by later items: {what}")
    return passed(len(bench.good))
