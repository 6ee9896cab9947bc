# SPDX-License-Identifier: Apache-2.0
"""Valid items that are compressed, with far more in them than they say: small to send."""

from __future__ import annotations

import base64
import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import islice
from typing import Any

import attrs

from conformance.inputs import places
from conformance.inputs.bombs import UNREADABLE
from conformance.multimodal.measuring import MEBIBYTE
from conformance.multimodal.modality.stock import Sample

#: What a bomb is decompressed to: zeros behind what a valid item has.
LARGE = 640

#: Places in each item that are looked at.
PLACES = 12


@attrs.frozen
class Packing:
    """One way to compress."""

    name: str
    magic: tuple[bytes, ...]
    unpack: Callable[[bytes], bytes]
    compressor: Callable[[], Any]


PACKINGS = (
    Packing(
        "gzip",
        (b"\x1f\x8b",),
        partial(zlib.decompress, wbits=31),
        partial(zlib.compressobj, 9, zlib.DEFLATED, 31),
    ),
    Packing(
        "zlib",
        (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda"),
        zlib.decompress,
        partial(zlib.compressobj, 9),
    ),
    Packing("bzip2", (b"BZh",), bz2.decompress, bz2.BZ2Compressor),
    Packing("xz", (b"\xfd7zXZ\x00",), lzma.decompress, partial(lzma.LZMACompressor, preset=0)),
)


def bombs(samples: Sequence[Sample]) -> tuple[Sample, ...]:
    """Return what is made of compressed items: one of each kind, and of each way it is sent."""
    found: dict[tuple[str, bool], Sample] = {}
    for sample in samples:
        for kind, bomb in _of(sample):
            found.setdefault(kind, bomb)
    return tuple(found.values())


def _of(sample: Sample) -> Iterator[tuple[tuple[str, bool], Sample]]:
    made = sample.make()
    for place, value in islice(places.places(made), PLACES):
        if not isinstance(value, str | bytes):
            continue
        for packing in PACKINGS:
            if (inner := _unpacked(packing, value)) is not None:
                written = isinstance(value, str)
                yield (
                    (packing.name, written),
                    attrs.evolve(
                        sample,
                        name=f"{sample}, its {packing.name} with {LARGE} MiB of zeros behind it",
                        make=partial(_made, made, place, packing, inner, written=written),
                    ),
                )


def _made(
    made: object, place: places.Path, packing: Packing, inner: bytes, *, written: bool
) -> object:
    bomb = _packed(packing, inner)
    return places.changed(made, place, base64.b64encode(bomb).decode() if written else bomb)


@cache
def _packed(packing: Packing, inner: bytes) -> bytes:
    compressor = packing.compressor()
    zeros = bytes(MEBIBYTE)
    parts = [compressor.compress(inner), *(compressor.compress(zeros) for _ in range(LARGE))]
    return b"".join([*parts, compressor.flush()])


def _unpacked(packing: Packing, value: str | bytes) -> bytes | None:
    """Return what is packed in bytes, or in base64 of them; None where nothing is."""
    with suppress(*UNREADABLE):
        content = base64.b64decode(value, validate=True) if isinstance(value, str) else value
        if content.startswith(packing.magic):
            return packing.unpack(content)
    return None
