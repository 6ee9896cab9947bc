# SPDX-License-Identifier: Apache-2.0
"""Checks of the hash under which embeddings are kept for later."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

from conformance.checking import checks
from conformance.findings import Finding, failed, passed
from conformance.multimodal.modality import shape
from conformance.multimodal.modality.bench import Bench
from conformance.multimodal.modality.neighbours import near
from conformance.multimodal.modality.stock import Sample, kin
from conformance.multimodal.modality.trial import Trial
from conformance.watching.comparison import shortened

#: Parses what it is sent and prints the hash; nothing of the harness is needed for that.
_PROGRAM = """\
import pickle, pkgutil, sys
path, name, data = pickle.load(sys.stdin.buffer)
sys.path[:0] = path
cls = pkgutil.resolve_name(name)
from reference_plugins.modality.completion import completed
sys.stdout.write("hash:" + str(completed(cls()).parse_input(data).content_hash))
"""

SECONDS = 60


@checks("MM-61")
def steady(trial: Trial) -> Finding:
    """Equal items have one hash, in every instance and every process."""
    bench = trial.bench
    plugin = bench.make()
    for sample in bench.good:
        first = bench.alone(sample)
        if not isinstance(first.hash, str) or not first.hash:
            return failed(f"content_hash of {sample} is {shortened(first.hash)}, not a text")
        for _ in range(2):
            served = bench.serve(plugin, sample)
            if served.good and served.hash != first.hash:
                what = f"{sample}, sent again to the same instance,"
                return failed(f"{what} has another content_hash")
    sample = next((each for each in bench.good if each.mime), bench.good[0])
    elsewhere = _elsewhere(bench, sample)
    if elsewhere is not None and elsewhere != bench.alone(sample).hash:
        return failed(f"{sample} has another content_hash in another process")
    return passed(len(bench.good))


def _elsewhere(bench: Bench, sample: Sample) -> str | None:
    """Return the hash of an item in a process with other hashes of texts; None where it fails."""
    cls = bench.cls
    try:
        name = f"{cls.__module__}:{cls.__qualname__}"
        sent = pickle.dumps((sys.path, name, sample.data(bench.form)))
    except Exception:  # noqa: BLE001 - objects of a profile need not travel
        return None
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    try:
        run = subprocess.run(
            [sys.executable, "-c", _PROGRAM],
            input=sent,
            capture_output=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
            timeout=SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    _, found, value = run.stdout.decode(errors="replace").rpartition("hash:")
    return value if found and run.returncode == 0 else None


@checks("MM-62", after=("MM-61", "MM-68", "MM-70"))
def covers(trial: Trial) -> Finding:
    """Items with one hash give the same arrays and the same numbers."""
    bench = trial.bench
    first: dict[str, Sample] = {}
    every = (*bench.good, *kin(bench.modality), *near(bench.modality, bench.good))
    count = 0
    for sample in every:
        served = bench.alone(sample)
        if not served.good:
            continue
        count += 1
        other = first.setdefault(str(served.hash), sample)
        for model in bench.models:
            if what := shape.unlike(bench.alone(sample, model), bench.alone(other, model)):
                return failed(
                    f"{sample} and {other} have one content_hash, and of the former {what}",
                    count,
                )
    return passed(len(every), count)
