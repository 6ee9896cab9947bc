# SPDX-License-Identifier: Apache-2.0
"""Short texts that become very long where a plugin fills in a template, or unpacks what is packed.

A template of a client may say how wide a value is to be, or how often something is repeated.  What
is packed, as gzip in base64, says nothing of how much it holds, and a few megabytes hold gigabytes.
"""

from __future__ import annotations

import base64
import bz2
import gzip
import lzma
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache

#: Characters that a template asks for.
WIDE = 10**10

#: Bytes of one part of what is packed, and how many parts there are: three gigabytes.
PART, PARTS = 16 << 20, 192

#: Bytes that end a stream of zlib, but for its checksum.
_LAST = b"\x01\x00\x00\xff\xff"

_NAMES = re.compile(r"\{\s*(\w+)")


def names_in(text: str) -> list[str]:
    """Return the names in braces of a text, as a template has them."""
    return _NAMES.findall(text)


def templates(names: Iterable[str]) -> Iterator[str]:
    """Yield templates of several kinds that ask for very much, with names of values."""
    names = list(dict.fromkeys(names))
    for name in (*names, "", "0"):
        yield f"{{{name}:>{WIDE}}}"
    for name in names:
        yield f"%({name}){WIDE}s"
    yield f"%{WIDE}s"
    yield f'{{{{ "a" * {WIDE} }}}}'
    yield f"{{% for _ in range({WIDE}) %}}{{% endfor %}}"


def _zlib() -> bytes:
    packing = zlib.compressobj(9)
    head = packing.flush(zlib.Z_FULL_FLUSH)
    part = packing.compress(bytes(PART)) + packing.flush(zlib.Z_FULL_FLUSH)
    return head + part * PARTS + _LAST


#: What unpacks bytes, and what makes those that become very many.
_PACKED: tuple[tuple[Callable[[bytes], bytes], Callable[[], bytes]], ...] = (
    (zlib.decompress, _zlib),
    (gzip.decompress, lambda: gzip.compress(bytes(PART)) * PARTS),
    (bz2.decompress, lambda: bz2.compress(bytes(PART)) * PARTS),
    (lzma.decompress, lambda: lzma.compress(bytes(PART)) * PARTS),
)

#: What reading and unpacking raise for what is not written or packed so.
UNREADABLE = (ValueError, EOFError, OSError, zlib.error, lzma.LZMAError)

#: How bytes stand in a text: what reads it, and what writes it.
_WRITTEN: tuple[tuple[Callable[[str], bytes], Callable[[bytes], str]], ...] = (
    (
        lambda text: base64.b64decode(text, validate=True),
        lambda data: base64.b64encode(data).decode(),
    ),
    (
        lambda text: base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True),
        lambda data: base64.urlsafe_b64encode(data).decode(),
    ),
    (bytes.fromhex, bytes.hex),
)


@cache
def packed(text: str) -> str | None:
    """Return a text that unpacks to gigabytes as this one does to little, or None."""
    for read, write in _WRITTEN:
        for unpack, make in _PACKED:
            with suppress(*UNREADABLE):
                if unpack(read(text)):
                    return write(make())
    return None
