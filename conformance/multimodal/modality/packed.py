# SPDX-License-Identifier: Apache-2.0
"""Valid items that are compressed, with far more in them than they say, or cut off."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice

import attrs

from conformance.inputs import places
from conformance.inputs.bombs import LARGE, PART, Packed, bomb, halved
from conformance.multimodal.measuring import MEBIBYTE
from conformance.multimodal.modality.stock import Sample

#: Places in each item that are looked at.
PLACES = 12


def bombs(samples: Sequence[Sample]) -> tuple[Sample, ...]:
    """Return what is made of compressed items: one of each kind, and of each way it is sent."""
    said = f"with {LARGE * PART // MEBIBYTE} MiB of zeros behind it"
    return _changed(samples, partial(bomb, parts=LARGE), said)


def halves(samples: Sequence[Sample]) -> tuple[Sample, ...]:
    """Return compressed items of which the second half is missing, of the same kinds."""
    return _changed(samples, halved, "cut in half")


def _changed(
    samples: Sequence[Sample], change: Callable[[str | bytes], Packed | None], said: str
) -> tuple[Sample, ...]:
    kinds: dict[tuple[str, bool], Sample] = {}
    for sample in samples:
        made = sample.make()
        for place, value in islice(places.places(made), PLACES):
            if isinstance(value, str | bytes) and (found := change(value)):
                name = f"{sample}, its {found.name} {said}"
                make = partial(places.changed, made, place, found.value)
                kind = found.name, isinstance(value, str)
                kinds.setdefault(kind, attrs.evolve(sample, name=name, make=make))
    return tuple(kinds.values())
