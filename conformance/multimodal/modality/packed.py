# SPDX-License-Identifier: Apache-2.0
"""Valid items that are compressed, with far more in them than they say: small to send."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice

import attrs

from conformance.inputs import places
from conformance.inputs.bombs import LARGE, PART, bomb
from conformance.multimodal.measuring import MEBIBYTE
from conformance.multimodal.modality.stock import Sample

#: Places in each item that are looked at.
PLACES = 12


def bombs(samples: Sequence[Sample]) -> tuple[Sample, ...]:
    """Return what is made of compressed items: one of each kind, and of each way it is sent."""
    found: dict[tuple[str, bool], Sample] = {}
    for sample in samples:
        for kind, made in _of(sample):
            found.setdefault(kind, made)
    return tuple(found.values())


def _of(sample: Sample) -> Iterator[tuple[tuple[str, bool], Sample]]:
    made = sample.make()
    for place, value in islice(places.places(made), PLACES):
        if isinstance(value, str | bytes) and (found := bomb(value, LARGE)):
            size = LARGE * PART // MEBIBYTE
            yield (
                (found.name, isinstance(value, str)),
                attrs.evolve(
                    sample,
                    name=f"{sample}, its {found.name} with {size} MiB of zeros behind it",
                    make=partial(places.changed, made, place, found.value),
                ),
            )
