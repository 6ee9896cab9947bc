# SPDX-License-Identifier: Apache-2.0
"""Checks of the arrays that a model is given."""

from __future__ import annotations

import pickle

import numpy as np

from conformance.checking import checks
from conformance.findings import Finding, failed, passed
from conformance.multimodal.modality import hostile, shape
from conformance.multimodal.modality.calls import ask
from conformance.multimodal.modality.models import as_array
from conformance.multimodal.modality.trial import Trial
from conformance.raised import said

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
    return passed(len(bench.good), len(bench.good))


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
    return passed(len(bench.good), len(bench.good))


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
    for sample in (*bench.good, *hostile.infinite(bench.modality)):
        served = bench.serve(plugin, sample)
        count += 1
        if not served.good or shape.trouble(served.features):
            continue
        for name, value in served.features.items():
            array = as_array(value)
            if array.dtype.kind in "fc" and not np.isfinite(array).all():
                return failed(f"{name!r} of {sample} holds a number that is not finite")
    return passed(count, count)


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
    return passed(len(bench.good), len(bench.good))


@checks("MM-77", after=("MM-68", "MM-70", "MM-72"))
def travels(trial: Trial) -> Finding:
    """An item can be pickled, and what is read back gives the same."""
    bench = trial.bench
    config = bench.config(bench.models[0])
    for sample in bench.good:
        plugin = bench.make()
        item = bench.alone(sample).item
        found = ask("pickling", lambda: pickle.loads(pickle.dumps(item)))  # noqa: B023, S301
        if not found.good:
            assert found.error is not None
            return failed(
                f"the item that {sample} is parsed to cannot be pickled: {said(found.error)}"
            )
        if what := shape.difference(
            trial.finish_item(plugin, found.value, config), bench.alone(sample), hashes=True
        ):
            return failed(f"{sample}, pickled after it was parsed, is another item: {what}")
    return passed(len(bench.good), len(bench.good))
