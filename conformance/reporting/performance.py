# SPDX-License-Identifier: Apache-2.0
"""What a plugin costs, as data: a document of ours, and one that pytest-benchmark reads."""

from __future__ import annotations

import json
import statistics
from typing import TYPE_CHECKING, Any

from conformance import __version__
from conformance.benchmark import growth, loads
from conformance.benchmark.figures import PER_ITEM, PER_TOKEN
from conformance.reporting.certificate import write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from conformance.benchmark.figures import Cost, Overhead
    from conformance.benchmark.intervals import Interval
    from conformance.benchmark.session import Measured
    from conformance.settings import Settings

FILE_NAME = "performance.json"
PYTEST_FILE_NAME = "benchmark.json"

#: How the note in a certificate begins.
_ABOUT = "What it costs, measured on"

#: Figures that are said in sentences; the others are in the table and the plots.
_SAID = (
    "seconds per token",
    "processor seconds per token",
    "seconds per request",
    PER_ITEM,
    "latency",
    "latency, 99th percentile",
)

#: The release of pytest-benchmark whose files ours look like.
_PYTEST_BENCHMARK = "5.0.0"


def build(
    measured: Measured, *, settings: Settings, finished: str, seconds: float, command: str
) -> dict[str, Any]:
    """Return the document of one plugin."""
    plugin = measured.plugin
    return {
        "schema": 1,
        "plugin": {
            "target": plugin.target,
            "generation": plugin.generation,
            "version": plugin.version,
            "digest": plugin.digest,
        },
        "against": measured.other,
        "environment": dict(measured.environment),
        "harness": __version__,
        "run": {
            "budget": settings.budget.value,
            "seed": settings.seed,
            "finished": finished,
            "seconds": round(seconds, 1),
            "command": command,
        },
        "growth": _growth(measured.costs),
        "steps": [_cost(cost) for cost in measured.costs],
        "throughput": [_overhead(overhead) for overhead in measured.overheads],
        "failures": list(measured.failures),
    }


def _growth(costs: Sequence[Cost]) -> dict[str, Any] | None:
    """Return how the cost grows, where enough was measured."""
    chosen = loads.growing([cost.load for cost in costs])
    cells = [
        (cost.load.requests, cost.load.vocabulary, cost.added.median)
        for cost in costs
        # What is within the noise of nothing has no growth of its own.
        if cost.load in chosen and cost.added.low > 0
    ]
    if len(cells) < len(chosen) or len(cells) <= len(growth.TERMS) // 2:
        return {"name": "constant"} if chosen and not cells else None
    found = growth.fit(cells)
    return {
        "name": found.name,
        "constant_seconds": found.constant,
        "slope_seconds": found.slope,
        "error": found.error,
    }


def _cost(cost: Cost) -> dict[str, Any]:
    load = cost.load
    return {
        "name": load.name,
        "requests": load.requests,
        "vocabulary": load.vocabulary,
        "share": load.share,
        "churning": load.churning,
        "rounds": cost.rounds,
        "step_seconds": _bounds(cost.step),
        "added_seconds": _bounds(cost.added),
        "floor": cost.floor,
        "against": None if cost.against is None else _bounds(cost.against),
        "against_differs": cost.against is not None and cost.against.beyond(cost.floor),
        "waits": cost.waits,
    }


def _overhead(found: Overhead) -> dict[str, Any]:
    return {
        "where": found.where,
        "crowd": found.crowd,
        "figure": found.figure,
        "without_seconds": found.without,
        "overhead": _bounds(found.interval),
        "added_seconds": [found.without * part for part in _bounds(found.interval)],
        "floor": found.floor,
        "measurable": found.measurable,
        "rounds": len(found.samples),
    }


def _bounds(interval: Interval) -> list[float]:
    return [interval.low, interval.median, interval.high]


def write(document: Mapping[str, Any], measured: Measured, folder: Path) -> None:
    """Write both documents into the folder of a plugin."""
    for name, content in (
        (FILE_NAME, document),
        (PYTEST_FILE_NAME, for_pytest(document, measured)),
    ):
        write_whole(folder / name, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def for_pytest(document: Mapping[str, Any], measured: Measured) -> dict[str, Any]:
    """Return the figures as pytest-benchmark saves its own.

    ``pytest-benchmark compare`` reads them, and so does ``--benchmark-compare``.
    """
    environment = document["environment"]
    named = [(f"steps: {cost.load.name}", cost.samples) for cost in measured.costs] + [
        (f"{found.where}, {found.crowd} at once: {found.figure}", found.samples)
        for found in measured.overheads
    ]
    return {
        "machine_info": {
            "node": "",
            "processor": environment["processor"],
            "machine": environment["platform"],
            "python_version": environment["python"],
            "python_implementation": "CPython",
            "system": environment["platform"].partition(" ")[0],
            "cpu": {"brand_raw": environment["processor"], "count": environment["cores"]},
            **{key: environment[key] for key in ("vllm", "torch", "device", "gpu")},
        },
        "commit_info": {"id": document["plugin"]["digest"], "dirty": False},
        "benchmarks": [
            {
                "group": name.partition(":")[0],
                "name": name,
                "fullname": f"{document['plugin']['target']}::{name}",
                "params": None,
                "param": None,
                "extra_info": {},
                "options": {},
                "stats": _statistics(samples),
            }
            for name, samples in named
        ],
        "datetime": document["run"]["finished"],
        "version": _PYTEST_BENCHMARK,
    }


def _statistics(samples: Sequence[float]) -> dict[str, Any]:
    """Return what pytest-benchmark tells of a series, in seconds."""
    first, _, third = statistics.quantiles(samples, n=4)
    mean, deviation = statistics.fmean(samples), statistics.stdev(samples)
    low = [value for value in samples if value < first - 1.5 * (third - first)]
    high = [value for value in samples if value > third + 1.5 * (third - first)]
    steady = sum(abs(value - mean) <= deviation for value in samples)
    return {
        "min": min(samples),
        "max": max(samples),
        "mean": mean,
        "stddev": deviation,
        "rounds": len(samples),
        "median": statistics.median(samples),
        "iqr": third - first,
        "q1": first,
        "q3": third,
        "iqr_outliers": len(low) + len(high),
        "stddev_outliers": len(samples) - steady,
        "outliers": f"{len(samples) - steady};{len(low) + len(high)}",
        "ld15iqr": min(samples),
        "hd15iqr": max(samples),
        "ops": 1 / mean,
        "total": sum(samples),
        "iterations": 1,
        "data": list(samples),
    }


def read(folder: Path, digest: str | None) -> dict[str, Any] | None:
    """Return the document in the folder of a plugin, if it is about the same source."""
    try:
        document: dict[str, Any] = json.loads((folder / FILE_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return document if digest and document["plugin"]["digest"] == digest else None


def noted(certificate: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return a certificate with what the figures in its folder say, in the place of older ones."""
    notes = [note for note in certificate["notes"] if not note["about"].startswith(_ABOUT)]
    if document := read(folder, certificate["plugin"]["digest"]):
        notes.append({"about": f"{_ABOUT} {machine(document)}", "says": sentences(document)})
    return {**certificate, "notes": notes}


def machine(document: Mapping[str, Any]) -> str:
    """Return where and when the figures were taken."""
    known = document["environment"]
    where = known["gpu"] or f"{known['processor']}, {known['cores']} cores"
    date = document["run"]["finished"].partition("T")[0]
    return f"{where}; vLLM {known['vllm']}, PyTorch {known['torch']}; {date}"


def sentences(document: Mapping[str, Any]) -> list[str]:
    """Return what the figures say, each with what the run could not have seen."""
    said = []
    if found := document["growth"]:
        said.append(f"A step's cost grows: {found['name']}.")
    for cost in document["steps"]:
        if cost["requests"] == loads.REQUESTS and cost["vocabulary"] == loads.VOCABULARY:
            low, middle, high = (1e6 * value for value in cost["added_seconds"])
            said.append(
                f"A step ({cost['name']}) takes {middle:.1f} us longer than one without a "
                f"processor ({low:.1f} to {high:.1f})."
            )
            if waits := cost.get("waits"):  # files of older releases have no such figure
                times = "once" if waits == 1 else f"{waits} times"
                said.append(f"In a step ({cost['name']}) the host waits for the GPU {times}.")
    said += [_said(found) for found in document["throughput"] if found["figure"] in _SAID]
    for where, found in by_length(document).items():
        said += [_said_of_token(where, each) for each in found]
        if (growing := _times(found)) is not None:
            said.append(f"{where.capitalize()}, {growing}.")
    return said


def by_length(document: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
    """Return what the next token costs, the shortest answer first, by what is long in it."""
    every: dict[str, list[Mapping[str, Any]]] = {}
    for found in document["throughput"]:
        if found["figure"] == PER_TOKEN:
            every.setdefault(found["where"], []).append(found)
    return every


def _said_of_token(where: str, found: Mapping[str, Any]) -> str:
    told = f"{where.capitalize()} of {found['crowd']:,} tokens, the next one"
    low, middle, high = (1e6 * value for value in found["added_seconds"])
    least = 1e6 * found["floor"] * found["without_seconds"]
    if not found["measurable"]:
        return f"{told}: not measurable; {least:.1f} us would have been."
    return (
        f"{told} takes {middle:+.1f} us beside a parser that does nothing ({low:+.1f} to "
        f"{high:+.1f}; noise {least:.1f})."
    )


def _times(found: Sequence[Mapping[str, Any]]) -> str | None:
    """Say how many times what a token costs behind few it costs behind many, where both is known.

    Each end of the interval is that of the one against the other end of the other.
    """
    first, last = found[0], found[-1]
    low, middle, high = first["added_seconds"]
    longer, longest, most = last["added_seconds"]
    if len(found) == 1 or low <= 0 or not first["measurable"]:
        return None
    return (
        f"a token costs {longest / middle:.1f} times as much behind {last['crowd']:,} as behind "
        f"{first['crowd']:,} ({longer / high:.1f} to {most / low:.1f})"
    )


def _said(found: Mapping[str, Any]) -> str:
    things = "items" if found["figure"] == PER_ITEM else "requests"
    where = f"{found['where']}, {found['crowd']} {things} at once, {found['figure']}"
    low, middle, high = found["overhead"]
    if not found["measurable"]:
        return f"{where}: not measurable; {found['floor']:.1%} would have been."
    added = 1e3 * found["added_seconds"][1]
    return (
        f"{where}: {middle:+.1%} ({low:+.1%} to {high:+.1%}; noise {found['floor']:.1%}), "
        f"which is {added:+.2f} ms."
    )
