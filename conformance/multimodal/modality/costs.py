# SPDX-License-Identifier: Apache-2.0
"""Checks of time and memory: what is small to send must not be large to read."""

from __future__ import annotations

import ctypes
import gc
import resource
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from conformance.findings import Finding, failed, passed
from conformance.interruption import PluginHung
from conformance.multimodal.modality import hostile
from conformance.multimodal.modality.calls import ask
from conformance.multimodal.modality.served import finished, parsed
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conformance.multimodal.modality.stock import Sample
    from conformance.multimodal.modality.trial import Trial

MEBIBYTE = 2**20

#: What one item may take beyond what it was sent as, and the seconds of processor time.
MOST_MEMORY, MOST_SECONDS = 512 * MEBIBYTE, 10.0

#: Beyond this there is no memory at all while an item is read, lest the machine suffers.
ROOM = 3 * 2**30

#: What reading a header may take beside what was sent; items decoded take 36 MiB and more.
HEADER = 12 * MEBIBYTE


@attrs.define
class Cost:
    """What a call took."""

    memory: int = 0  #: bytes by which the process grew at its peak
    seconds: float = 0.0  #: of processor time


@contextmanager
def measured() -> Iterator[Cost]:
    """Measure what the block takes; there is little memory beyond what may be taken."""
    cost = Cost()
    gc.collect()
    with suppress(AttributeError, OSError):  # memory that is free already would hide what is taken
        ctypes.CDLL(None).malloc_trim(0)
    _forget_peak()
    before, started = _memory(), time.process_time()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    size = _status("VmSize")
    if size:
        most = size + ROOM
        soft = min(most, limits[1]) if limits[1] != resource.RLIM_INFINITY else most
        resource.setrlimit(resource.RLIMIT_AS, (soft, limits[1]))
    try:
        yield cost
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
        cost.seconds = time.process_time() - started
        cost.memory = max(0, _peak() - before)


def _status(field: str) -> int:
    """Return a field of this process's status in bytes, 0 where there is none."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return int(status.split(f"{field}:")[1].split()[0]) * 1024
    except (OSError, IndexError, ValueError):
        return 0


def _forget_peak() -> None:
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _memory() -> int:
    return _status("VmRSS") or _peak()


def _peak() -> int:
    # Where the peak cannot be forgotten it only grows, and less is seen of what calls take.
    return _status("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


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
        data = sample.data(bench.form)
        with measured() as cost:
            try:
                found = parsed(plugin, data)
                served = finished(plugin, found.item, config) if found.good else found
            except PluginHung as error:
                return failed(f"{sample}: {error}")
        if isinstance(served.error, MemoryError):
            return failed(f"{sample}: {served.step} took more memory than there is")
        if cost.memory > MOST_MEMORY + _bytes(data):
            return failed(f"{sample} took more than {MOST_MEMORY // MEBIBYTE} MiB of memory")
        if cost.seconds > MOST_SECONDS:
            return failed(f"{sample} took more than {MOST_SECONDS:.0f} s of processor time")
        del found, served, data
    return passed(len(samples), len(samples))


def _bytes(data: Any) -> int:  # noqa: ANN401 - what clients send
    return len(data) if isinstance(data, bytes | str) else 0


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
