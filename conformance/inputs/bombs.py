# SPDX-License-Identifier: Apache-2.0
"""Short texts that become very long where a plugin fills in a template, or unpacks what is packed.

A template of a client may say how wide a value is to be, or how often something is repeated.  What
is packed, as gzip in base64, says nothing of how much it holds, and a few megabytes hold gigabytes.
"""

from __future__ import annotations

import base64
import bz2
import io
import lzma
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache, partial
from typing import Any

import attrs

#: Characters that a template asks for.
WIDE = 10**10

#: Zeros of one part of what is packed; so many parts are gigabytes, and so many are much.
PART, PARTS, LARGE = 16 << 20, 192, 40

#: Bytes that end what is deflated, but for its checksum.
_LAST = b"\x01\x00\x00\xff\xff"

#: Bytes that are deflated at the least: words can be read as a few.
_LEAST = 8

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


@attrs.frozen
class _Packing:
    """One way to pack bytes."""

    name: str
    magic: tuple[bytes, ...]  #: with which it begins
    unpack: Callable[[bytes], bytes]
    pack: Callable[[bytes, int], bytes]  #: bytes, and so many parts of zeros behind them


def _inflated(bits: int, data: bytes) -> bytes:
    """Return what is deflated, or nothing where more than that follows, or less is there."""
    reader = zlib.decompressobj(bits)
    found = reader.decompress(data)
    least = _LEAST if bits < 0 else 1
    return found if reader.eof and not reader.unused_data and len(found) >= least else b""


def _deflated(bits: int, content: bytes, parts: int) -> bytes:
    zeros, packing = bytes(PART), zlib.compressobj(9, zlib.DEFLATED, bits)
    head = packing.compress(content) + packing.flush(zlib.Z_FULL_FLUSH)
    part = packing.compress(zeros) + packing.flush(zlib.Z_FULL_FLUSH)
    if bits < 0:
        return head + part * parts + _LAST
    gzip = bits > zlib.MAX_WBITS
    add = zlib.crc32 if gzip else zlib.adler32
    total = add(content)
    for _ in range(parts):
        total = add(zeros, total)
    end = total.to_bytes(4, "little" if gzip else "big")
    if gzip:
        end += (len(content) + parts * PART & 0xFFFFFFFF).to_bytes(4, "little")
    return head + part * parts + _LAST + end


def _streams(compressor: Callable[[], Any], content: bytes, parts: int) -> bytes:
    """Return a long stream, and others: compressing is slow, and some who unpack read only one."""
    zeros = bytes(PART)

    def stream(parts: Iterable[bytes]) -> bytes:
        packing = compressor()
        return b"".join([*map(packing.compress, parts), packing.flush()])

    first = stream([content, *[zeros] * min(parts, LARGE)])
    return first + stream([zeros]) * max(0, parts - LARGE)


def _archive(data: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return data if archive.infolist() else b""


def _archived(content: bytes, parts: int) -> bytes:
    """Return an archive whose largest file has zeros behind what it has; an array is as large."""
    made = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(content)) as old,
        zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        largest = max(old.infolist(), key=lambda entry: entry.file_size)
        for entry in old.infolist():
            with new.open(entry.filename, "w", force_zip64=True) as file:
                if entry is not largest:
                    file.write(old.read(entry))
                    continue
                file.write(_longer_array(old.read(entry), parts * PART))
                for _ in range(parts):
                    file.write(bytes(PART))
    return made.getvalue()


def _longer_array(content: bytes, more: int) -> bytes:
    """Return a file of NumPy that says it has so many bytes more; others as they are."""
    if not content.startswith(b"\x93NUMPY\x01"):
        return content
    from numpy.lib import format as files  # few ask for it

    file, made = io.BytesIO(content), io.BytesIO()
    files.read_magic(file)
    shape, fortran, kind = files.read_array_header_1_0(file)
    data = file.read()
    if not shape or not data or kind.hasobject:
        return content
    rows = shape[0] + more // (len(data) // shape[0])
    said = {"descr": files.dtype_to_descr(kind), "fortran_order": fortran}
    files.write_array_header_1_0(made, {**said, "shape": (rows, *shape[1:])})
    return made.getvalue() + data


#: What begins with nothing of its own.
_HEADLESS = "deflate"

_PACKINGS = (
    *(
        _Packing(name, magic, partial(_inflated, bits), partial(_deflated, bits))
        for name, magic, bits in (
            ("gzip", (b"\x1f\x8b",), 31),
            ("zlib", (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda"), 15),
        )
    ),
    _Packing("bzip2", (b"BZh",), bz2.decompress, partial(_streams, bz2.BZ2Compressor)),
    _Packing(
        "xz",
        (b"\xfd7zXZ\x00",),
        lzma.decompress,
        partial(_streams, partial(lzma.LZMACompressor, preset=0)),
    ),
    _Packing("zip", (b"PK",), _archive, _archived),
    _Packing(_HEADLESS, (b"",), partial(_inflated, -15), partial(_deflated, -15)),
)

#: What reading and unpacking raise for what is not written or packed so.
_UNREADABLE = (
    *(ValueError, LookupError, EOFError, OSError),
    RuntimeError,  # of zipfile, for what is encrypted or packed in a way that it does not know
    *(zlib.error, lzma.LZMAError, zipfile.BadZipFile),
)

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


@attrs.frozen
class Packed:
    """What a value becomes that is packed."""

    name: str  #: how it is packed
    value: str | bytes


@cache
def bomb(value: str | bytes, parts: int) -> Packed | None:
    """Return a value that is packed as this one is, with far more in it, or None."""
    return _changed(value, partial(_enlarged, parts))


def halved(value: str | bytes) -> Packed | None:
    """Return a value that is packed without its second half, and cannot be whole, or None."""
    found = _changed(value, lambda _, data: data[: len(data) // 2])
    return None if found and found.name == _HEADLESS else found  # it may be other text after all


def _changed(value: str | bytes, change: Callable[[_Packing, bytes], bytes]) -> Packed | None:
    """Return a value in which what is packed is changed, written as it is."""
    if isinstance(value, bytes):
        packing = _packing(value)
        return Packed(packing.name, change(packing, value)) if packing else None
    for read, write in _WRITTEN:
        with suppress(ValueError):
            data = read(value)
            if packing := _packing(data):
                return Packed(packing.name, write(change(packing, data)))
    return None


@cache
def _enlarged(parts: int, packing: _Packing, data: bytes) -> bytes:
    return packing.pack(packing.unpack(data), parts)


def _packing(data: bytes) -> _Packing | None:
    for packing in _PACKINGS:
        if data.startswith(packing.magic):
            with suppress(*_UNREADABLE):
                if packing.unpack(data):
                    return packing
    return None
