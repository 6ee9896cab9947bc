# SPDX-License-Identifier: Apache-2.0
"""Checks of what a plugin takes, what it refuses, and the arrays that it gives to a model."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import numpy as np

from conformance.checking import checks
from conformance.findings import Finding, failed, inapplicable, passed, unjudged
from conformance.multimodal.modality import bounds, hostile, packed, shape
from conformance.multimodal.modality.bench import Bench
from conformance.multimodal.modality.calls import ask
from conformance.multimodal.modality.media import FORMS
from conformance.multimodal.modality.models import as_array
from conformance.multimodal.modality.neighbours import near, unbounded
from conformance.multimodal.modality.served import Served, finished, parsed, run_through
from conformance.multimodal.modality.stock import Sample
from conformance.multimodal.modality.trial import Trial
from conformance.multimodal.unchanged import unchanged
from conformance.search import ITEMS, smallest
from conformance.verdict import Cause
from conformance.watching.raised import said

#: How arrays and files of the same may differ, as a share of the largest number.
ROUGHLY = 0.02


@checks("MM-50")
def takes(trial: Trial) -> Finding:
    """What the profile or the limits promise is taken, and nothing ordinary breaks."""
    bench = trial.bench
    known = bench.sorted_out()
    offered = bench.offered
    usual = offered[len(bench.promises.valid) :]
    for name, served in bench.declined.items():
        sample = next(each for each in offered if each.name == name)
        if served.missing:
            continue
        if served.broken and (known or sample.promised):
            return failed(f"{name}: {served.trouble()}")
        if sample.promised:
            by = "of a form that the profile names" if sample in usual else "valid by the profile"
            return failed(f"{name}, {by}: {served.trouble()}")
    count = len(bench.good)  # raises where nothing is known
    return _unread(bench) or _unhandled(bench) or _lacking(bench) or passed(count)


def _lacking(bench: Bench) -> Finding | None:
    """Name an item that cannot be read here, because a library is not installed."""
    return unjudged(Cause("a library is missing", bench.lacks)) if bench.lacks else None


def no_files(bench: Bench, message: str) -> Finding:
    """Return what is found where a rule is about files, and the plugin takes none here."""
    return _lacking(bench) or inapplicable(message)


def _unhandled(bench: Bench) -> Finding | None:
    """Say in which form of files that the profile names a file is not taken."""
    plugin = bench.make()
    for form in bench.forms:
        for sample in bench.good if form in FORMS else ():
            found = parsed(plugin, sample.data(form))
            if sample.mime and not (found.good or found.missing):
                return failed(f"{sample} as {form}, which the profile names: {found.trouble()}")
    return None


def _unread(bench: Bench) -> Finding | None:
    """Say of which encoding that the limits name no file is taken."""
    plain = [sample for sample in bench.offered if sample.plain]
    taken = {sample.encoding for sample in bench.good if sample.plain}
    for encoding in sorted(bench.encodings().intersection(sample.encoding for sample in plain)):
        names = [sample.name for sample in plain if sample.encoding == encoding]
        served = bench.declined.get(names[0])
        if encoding not in taken and served is not None and not served.missing:
            return failed(
                f"limits.encodings names {encoding}, and no such file is taken: {names[0]}: "
                f"{served.trouble()}"
            )
    return None


@checks("MM-51", after=("MM-68", "MM-70", "MM-71"))
def forms(trial: Trial) -> Finding:
    """A file is the same item in every form in which the plugin takes it."""
    bench = trial.bench
    plugin = bench.make()
    config = bench.config(bench.models[0])
    hashes = trial.holds("MM-61")
    files = [sample for sample in bench.good if sample.mime]
    taken: set[str] = set()
    count = 0
    for sample in files:
        wanted = bench.alone(sample)
        for form in FORMS:
            if form == bench.form:
                continue
            got = run_through(plugin, sample.data(form), config)
            if got.refused and form not in taken:
                continue  # a form that this plugin does not know
            if got.missing or got.broken:
                continue  # rules of their own are about that
            taken.add(form)
            count += 1
            if what := shape.difference(got, wanted, hashes=hashes):
                return failed(f"{sample} as {form} is not what it is as {bench.form}: {what}")
    if not count:
        return no_files(bench, "files are taken in one form at the most")
    return passed(count)


@checks("MM-52", after=("MM-68", "MM-70"))
def raw(trial: Trial) -> Finding:
    """Arrays give what a file gives that holds the same."""
    bench = trial.bench
    names = {sample.name: sample for sample in bench.good}
    count = 0
    for sample in bench.good:
        if sample.same_as not in names:
            continue
        for model in bench.models:
            got, wanted = bench.alone(sample, model), bench.alone(names[sample.same_as], model)
            if not (got.good and wanted.good):
                continue
            count += 1
            if what := _roughly(got, wanted):
                return failed(
                    f"{sample} is not what {sample.same_as} of the same content is: {what}"
                )
    if not count:
        return no_files(bench, "only files are taken, or only arrays")
    return passed(count)


def _roughly(got: Served, wanted: Served) -> str | None:
    if got.count != wanted.count:
        return f"its count was {got.count} instead of {wanted.count}"
    if wanted.estimate == wanted.count and got.estimate != wanted.estimate:
        return f"its estimate was {got.estimate}, where that of the file is exact"
    if what := shape.arrays(got.features, wanted.features):
        for name in wanted.features:
            one = as_array(got.features[name])
            other = as_array(wanted.features[name])
            # What decoders round differently is no other picture.
            most = ROUGHLY * max(1.0, float(abs(other).max(initial=0)))
            if one.shape != other.shape or (abs(one - other) > most).any():
                return what
    return None


@checks("MM-53")
def client_errors(trial: Trial) -> Finding:
    """Whatever is sent, nothing is raised but the client's error."""
    bench = trial.bench
    plugin = bench.make()
    count = 0
    for sample in _everything(bench):
        served = bench.serve(plugin, sample)
        count += 1
        if what := _wrong(served):
            return failed(f"{sample}: {what}", count)
    config = bench.config(bench.models[0])
    beside = near(bench.modality, bench.good), unbounded(bench.modality, bench.good)
    odd = *hostile.changed_in_one_place(bench.good), *hostile.deep(bench.good)
    for sample in (*odd, *beside[0], *beside[1]):
        # Whatever their size, nothing is made of them by then.
        served = run_through(plugin, sample.data(), config, end="estimate_tokens")
        count += 1
        if what := _wrong(served):
            return failed(f"{sample}: {what}", count)
    items = {str(sample): parsed(plugin, sample.data(bench.form)).item for sample in bench.good}
    if what := bounds.wrong_beyond(plugin, items):
        return failed(what, count)
    files = [sample for sample in bench.good if sample.mime]

    def judge(sample: Sample) -> str | None:
        what = _wrong(bench.serve(plugin, sample))
        return f"{sample.name}: {what}" if what else None

    mutated = hostile.mutated(files)
    more, worst = smallest(mutated, judge, ITEMS, budget=trial.budget, seed=bench.seed)
    return failed(worst, count + more) if worst else passed(count + more)


def _everything(bench: Bench) -> Iterator[Sample]:
    yield from bench.promises.invalid
    yield from hostile.nonsense(bench.modality)
    yield from hostile.infinite(bench.modality)
    yield from hostile.cut(bench.good)


def _wrong(served: Served) -> str | None:
    """Say what was raised if it is nobody's fault but the plugin's."""
    # A plugin that runs out of memory is the subject of a rule of its own.
    if served.broken and not isinstance(served.error, MemoryError):
        return served.trouble()
    return None


@checks("MM-54")
def nonsense(trial: Trial) -> Finding:
    """What is no item is refused."""
    bench = trial.bench
    return _refused(bench, (*bench.promises.invalid, *hostile.nonsense(bench.modality)))


@checks("MM-55")
def cut(trial: Trial) -> Finding:
    """A file without its second half is refused."""
    bench = trial.bench
    # What a profile makes is no file that the harness knows, and may be packed.
    halves = hostile.cut([sample for sample in bench.good if sample.mime])
    halves += packed.halves([sample for sample in bench.good if not sample.mime])
    return _refused(bench, halves) if halves else no_files(bench, "no files are taken")


def _refused(bench: Bench, samples: tuple[Sample, ...]) -> Finding:
    plugin = bench.make()
    for sample in samples:
        served = bench.serve(plugin, sample)
        if served.good:
            tokens = f"{served.count} token" + "s" * (served.count != 1)
            return failed(f"{sample} was taken for an item of {tokens}")
    return passed(len(samples))


@checks("MM-59")
def own_data(trial: Trial) -> Finding:
    """What a client handed over is as it was."""
    bench = trial.bench
    plugin = bench.make()
    config = bench.config(bench.models[0])
    for sample in bench.good:
        data, was = sample.data(bench.form), sample.data(bench.form)
        run_through(plugin, data, config)
        if not unchanged(data, was):
            return failed(f"{sample} was changed in place")
    for sample in bench.good:
        if sample.mime:
            for form in ("mapping with a data URL", "mapping with base64", "bytearray"):
                data, was = sample.data(form), sample.data(form)
                run_through(plugin, data, config)
                if not unchanged(data, was):
                    return failed(f"{sample} as {form} was changed in place")
    return passed(len(bench.good))


@checks("MM-60", after=("MM-68", "MM-70"))
def own_copy(trial: Trial) -> Finding:
    """An item does not follow an array that its owner goes on to change."""
    bench = trial.bench
    config = bench.config(bench.models[0])
    count = 0
    for sample in bench.good:
        data = sample.data(bench.form)
        arrays = [
            part for part in (data if isinstance(data, tuple) else (data,)) if _writeable(part)
        ]
        if not arrays:
            continue
        plugin = bench.make()
        found = parsed(plugin, data)
        for array in arrays:
            array[...] = 0
        count += 1
        got = finished(plugin, found.item, config) if found.good else found
        if what := shape.difference(got, bench.alone(sample)):
            return failed(f"{sample} was changed by its owner after it was parsed, and {what}")
    if not count:
        return inapplicable("no arrays are taken")
    return passed(count)


def _writeable(value: object) -> bool:
    return hasattr(value, "flags") and bool(value.flags.writeable)


#: How often an item is served again.
AGAIN = 2


@checks("MM-68")
def numbers(trial: Trial) -> Finding:
    """What comes out is a mapping of arrays of numbers."""
    bench = trial.bench
    for sample in bench.good:
        for model in bench.models:
            served = bench.alone(sample, model)
            if served.good and (why := shape.trouble(served.features)):
                return failed(f"{sample}: {why}")
    return passed(len(bench.good))


@checks("MM-78", after=("MM-68",))
def alike(trial: Trial) -> Finding:
    """Every item has the same arrays, by their names, dtypes and numbers of dimensions."""
    bench = trial.bench
    for model in bench.models:
        first = None
        for sample in bench.good:
            served = bench.alone(sample, model)
            if not served.good:
                continue
            found = shape.outline(served.features)
            first = first or (sample, found)
            if found != first[1]:
                return failed(
                    f"{sample} gives {_outlined(found)}, and {first[0]} gives {_outlined(first[1])}"
                )
    return passed(len(bench.good))


def _outlined(outline: dict[str, tuple[str, int]]) -> str:
    return ", ".join(
        f"{name} {dtype} of {count} dimensions" for name, (dtype, count) in outline.items()
    )


@checks("MM-69", after=("MM-68",))
def finite(trial: Trial) -> Finding:
    """No array holds NaN or an infinity, whatever was sent."""
    bench = trial.bench
    plugin = bench.make()
    count = 0
    others = hostile.infinite(bench.modality), unbounded(bench.modality, bench.good)
    for sample in (*bench.good, *others[0], *others[1]):
        served = bench.serve(plugin, sample)
        count += 1
        if not served.good or shape.trouble(served.features):
            continue
        for name, value in served.features.items():
            array = as_array(value)
            if array.dtype.kind in "fc" and not np.isfinite(array).all():
                return failed(f"{name!r} of {sample} holds a number that is not finite")
    return passed(count)


@checks("MM-70", after=("MM-68",))
def steady(trial: Trial) -> Finding:
    """The same item gives the same arrays again."""
    bench = trial.bench
    for sample in bench.good:
        wanted = bench.alone(sample)
        plugin = bench.make()
        for _ in range(AGAIN):
            if what := shape.difference(bench.serve(plugin, sample), wanted):
                # Whether it is chance or what came before, a fresh instance tells.
                if shape.difference(bench.serve(bench.make(), sample), wanted):
                    return failed(f"{sample}, sent again, is not what it was: {what}")
                break
    return passed(len(bench.good))


def _pickled(item: object) -> object:
    """Return what is read back of an item."""
    return pickle.loads(pickle.dumps(item))  # noqa: S301 - written just before


@checks("MM-77", after=("MM-68", "MM-70", "MM-72"))
def travels(trial: Trial) -> Finding:
    """An item can be pickled, and what is read back gives the same."""
    bench = trial.bench
    config = bench.config(bench.models[0])
    for sample in bench.good:
        plugin = bench.make()
        item = bench.alone(sample).item
        found = ask("pickling", _pickled, item)
        if not found.good:
            assert found.error is not None
            return failed(
                f"the item that {sample} is parsed to cannot be pickled: {said(found.error)}"
            )
        if what := shape.difference(
            finished(plugin, found.value, config), bench.alone(sample), hashes=True
        ):
            return failed(f"{sample}, pickled after it was parsed, is another item: {what}")
    return passed(len(bench.good))
