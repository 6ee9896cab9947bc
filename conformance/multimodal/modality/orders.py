# SPDX-License-Identifier: Apache-2.0
"""Items in an order of their own, in a module that has seen none: what is kept of the first shows.

A cache of the module is warm from whatever else was checked in this process, for an instance
alone as well. So its file is run once more, and its items come the other way around.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any

import attrs

from conformance.findings import Finding, failed
from conformance.multimodal.modality import shape
from conformance.multimodal.modality.bench import Bench
from conformance.multimodal.modality.neighbours import near
from conformance.multimodal.modality.served import Served
from conformance.multimodal.modality.stock import Sample, kin
from conformance.plugin.loader import without_byte_code


def turned(bench: Bench) -> Finding | None:
    """Say which item is another one where those like it come before it, or return None."""
    known = {str(sample): sample for sample in (*bench.good, *_like(bench))}
    forth = list(known.values())
    wanted = {str(sample): bench.alone(sample) for sample in forth}
    for name, got in _served(bench, forth[::-1]):
        # What is refused in a module that stands beside its own, such as what is pickled, is no
        # sign of anything.
        if shape.unlike(got, wanted[name]) is None:
            continue
        first, again = (dict(_served(bench, [known[name]])).get(name) for _ in range(2))
        # A module may draw something as it is made, or know the time: that is no matter of order.
        if first is None or again is None or shape.unlike(first, again):
            return None
        what = shape.unlike(got, first) or shape.unlike(wanted[name], first)
        if what:
            return failed(f"{name}, after items like it, is not what it is before them: {what}")
    return None


def _like(bench: Bench) -> Iterator[Sample]:
    for sample in (*kin(bench.modality), *near(bench.modality, bench.good)):
        if bench.alone(sample).good:
            yield sample


def _served(bench: Bench, samples: Sequence[Sample]) -> Iterator[tuple[str, Served]]:
    """Yield items that one instance serves, one after the other, of a class made anew."""
    if (cls := _anew(bench.cls)) is None:
        return
    plugin = attrs.evolve(bench, cls=cls).make()
    for sample in samples:
        yield str(sample), bench.serve(plugin, sample)


def _anew(cls: type[Any]) -> type[Any] | None:
    """Return the same class of a module that is run once more, or None where it cannot be had."""
    module = sys.modules.get(cls.__module__)
    if module is None or not getattr(module, "__file__", None):
        return None
    spec = importlib.util.spec_from_file_location(cls.__module__, str(module.__file__))
    if spec is None or spec.loader is None:
        return None
    fresh = importlib.util.module_from_spec(spec)
    try:
        with without_byte_code():
            spec.loader.exec_module(fresh)
        found: Any = reduce(getattr, cls.__qualname__.split("."), fresh)
    except Exception:  # noqa: BLE001 - it may register what can be registered once
        return None
    return found if isinstance(found, type) else None
