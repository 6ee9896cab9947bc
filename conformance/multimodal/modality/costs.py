# SPDX-License-Identifier: Apache-2.0
"""Checks of time and memory: what is small to send must not be large to read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.checking import checks
from conformance.findings import Finding, failed, passed
from conformance.interruption import PluginHung
from conformance.multimodal.measuring import MEBIBYTE, measured
from conformance.multimodal.modality import hostile
from conformance.multimodal.modality.calls import ask
from conformance.multimodal.modality.served import finished, parsed
from conformance.multimodal.modality.stock import Sample
from conformance.multimodal.modality.trial import Trial
from conformance.verdict import Verdict

#: What one item may take beyond what it was sent as, and the seconds of processor time.
MOST_MEMORY, MOST_SECONDS = 512 * MEBIBYTE, 10.0

#: What reading a header may take beside what was sent; items decoded take 36 MiB and more.
HEADER = 12 * MEBIBYTE


@checks("MM-56")
def bombs(trial: Trial) -> Finding:
    """Nothing that clients send takes more than it should, whether it is refused or not."""
    bench = trial.bench
    samples = (*bench.promises.invalid, *hostile.bombs(bench.modality))
    if not samples:
        return Finding(
            Verdict.NOT_APPLICABLE,
            message="nothing is known that is small to send and large to read",
        )
    plugin = bench.make()
    config = bench.config(bench.models[0])
    for sample in samples:
        # Once more: what a library's own threads take is not the same each time.
        if (what := _takes(plugin, sample.data(bench.form), config)) and (
            what := _takes(plugin, sample.data(bench.form), config)
        ):
            return failed(f"{sample}{what}")
    return passed(len(samples), len(samples))


def _takes(plugin: Any, data: Any, config: Any) -> str | None:  # noqa: ANN401 - see served.finished
    """Say what an item takes that is too much, or return None."""
    with measured() as cost:
        try:
            found = parsed(plugin, data)
            served = finished(plugin, found.item, config) if found.good else found
        except PluginHung as error:
            return f": {error}"
    if isinstance(served.error, MemoryError):
        return f": {served.step} took more memory than there is"
    if cost.memory > MOST_MEMORY + _bytes(data):
        return f" took more than {MOST_MEMORY // MEBIBYTE} MiB of memory"
    if cost.seconds > MOST_SECONDS:
        return f" took more than {MOST_SECONDS:.0f} s of processor time"
    return None


def _bytes(data: Any) -> int:  # noqa: ANN401 - what clients send
    return len(data) if isinstance(data, bytes | str) else 0


@checks("MM-57")
def headers(trial: Trial) -> Finding:
    """Parsing, validating and estimating decode nothing."""
    bench = trial.bench
    count = 0
    for sample in hostile.bulky(bench.modality):
        config = bench.config(bench.models[0])
        plugin = bench.make()
        data = sample.data(bench.form)
        room = HEADER + 3 * _bytes(data)
        with measured() as cost:
            found = parsed(plugin, data)
        if not found.good:
            continue  # it may be too large for this plugin, or of an encoding it does not know
        count += 1
        if cost.memory > room:
            return failed(_decoded("parse_input", sample))
        for step, call in _before(plugin, found.item, config):
            with measured() as cost:
                ask(step, call)
            if cost.memory > room:
                return failed(_decoded(step, sample))
    if not count:
        return Finding(
            Verdict.NOT_APPLICABLE, message="no file is known that is small and large when decoded"
        )
    return passed(count, count)


def _before(
    plugin: Any,  # noqa: ANN401 - a plugin
    item: Any,  # noqa: ANN401 - and what it parsed
    config: Any,  # noqa: ANN401 - a model's configuration
) -> list[tuple[str, Callable[[], Any]]]:
    return [
        ("validate", lambda: plugin.validate([item], plugin.limits)),
        ("estimate_tokens", lambda: plugin.estimate_tokens(item, config)),
    ]


def _decoded(step: str, sample: Sample) -> str:
    return f"{step} took more than {HEADER // MEBIBYTE} MiB for {sample}: it was decoded"
