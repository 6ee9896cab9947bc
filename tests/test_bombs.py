# SPDX-License-Identifier: Apache-2.0
"""What is packed is told from other text, and what becomes very long is short."""

from __future__ import annotations

import base64
import bz2
import gzip
import io
import lzma
import zipfile
import zlib
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pytest

from conformance.inputs import bombs

if TYPE_CHECKING:
    from collections.abc import Callable

#: Characters that a client sends at the most, and bytes that a plugin reads in the test.
SENT, READ = 8_000_000, 1 << 20


TEXT = b'["a fox runs"]'


def _deflated(data: bytes) -> bytes:
    packing = zlib.compressobj(wbits=-15)
    return packing.compress(data) + packing.flush()


def _zipped(data: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("small", b"1")
        archive.writestr("large", data)
    return made.getvalue()


PACKS = [zlib.compress, gzip.compress, bz2.compress, lzma.compress, _deflated, _zipped]


@pytest.mark.parametrize("pack", PACKS)
def test_what_is_packed_becomes_very_much(pack: Callable[[bytes], bytes]) -> None:
    """In base64, in that of addresses without its end, and in hexadecimal digits."""
    data = pack(TEXT)
    texts = (base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode().rstrip("="))

    for text in (*texts, data.hex()):
        bomb = bombs.bomb(text, 4)
        assert bomb is not None
        assert len(bomb.value) < SENT * 4 / bombs.PARTS
    packed = bombs.bomb(data, 2)
    assert packed is not None
    assert isinstance(packed.value, bytes)
    assert _unpacked(packed.name, packed.value) == TEXT + bytes(2 * bombs.PART)


def _unpacked(name: str, data: bytes) -> bytes:
    """Return what is in it, read to its end and with its checksum."""
    if name == "zip":
        return zipfile.ZipFile(io.BytesIO(data)).read("large")
    reads: dict[str, Callable[[bytes], bytes]] = {
        "bzip2": bz2.decompress,
        "gzip": gzip.decompress,
        "xz": lzma.decompress,
        "zlib": zlib.decompress,
        "deflate": partial(zlib.decompress, wbits=-15),
    }
    return reads[name](data)


@pytest.mark.parametrize("pack", PACKS)
def test_half_of_what_is_packed_is_written_in_the_same_way(pack: Callable[[bytes], bytes]) -> None:
    """But not of what begins with nothing of its own: it may be other text."""
    data = pack(TEXT)
    half = None if pack is _deflated else data[: len(data) // 2].hex()

    found = bombs.halved(data.hex())
    assert (found and found.value) == half


def test_what_others_unpack_at_the_most_is_gigabytes() -> None:
    """It can be read part by part, as one who has a limit reads it."""
    bomb = bombs.bomb(base64.b64encode(zlib.compress(b"a")).decode(), bombs.PARTS)
    assert bomb is not None

    unpacking = zlib.decompressobj()
    assert len(unpacking.decompress(base64.b64decode(bomb.value), READ)) == READ
    assert not unpacking.eof
    assert len(bomb.value) < SENT


def test_an_archive_of_arrays_has_a_large_one() -> None:
    """What NumPy reads of it is what stands in its header."""
    made = io.BytesIO()
    np.savez(made, rows=np.ones((4, 8), np.float16), names=np.arange(2))
    bomb = bombs.bomb(made.getvalue(), 1)
    assert bomb is not None
    assert isinstance(bomb.value, bytes)

    with np.load(io.BytesIO(bomb.value)) as arrays:
        assert arrays["names"].tolist() == [0, 1]
        assert arrays["rows"].nbytes == bombs.PART + 4 * 8 * 2
        assert arrays["rows"].shape[1] == 8
        assert arrays["rows"].sum() == 4 * 8


@pytest.mark.parametrize(
    "text", ["", "a fox runs", "abcd", "0123", "{text}", "A" * 80, "words" * 9, "3" * 64]
)
def test_other_texts_are_not_packed(text: str) -> None:
    """Words may be base64, and numbers hexadecimal digits."""
    assert bombs.bomb(text, 1) is None


def test_templates_name_what_they_are_filled_with() -> None:
    """In each kind of template that has names, and each name once."""
    made = list(bombs.templates([*bombs.names_in("{text} of { title }"), "text"]))

    assert [text for text in made if text.startswith("{text:")] == [f"{{text:>{bombs.WIDE}}}"]
    assert f"%(title){bombs.WIDE}s" in made
