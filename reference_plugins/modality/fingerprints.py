# SPDX-License-Identifier: Apache-2.0
"""One hash for everything that decides what an item becomes.

Two items that share a hash share their embeddings, also across requests and users: what is left
out of the hash is served from somebody else's item. So every value is preceded by what it is
and how long, and `("ab", "c")`, `("a", "bc")`, a 30 x 150 and a 150 x 30 array all differ.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator


def fingerprint(*values: object) -> str:
    """Return the SHA-256 of some values, in hex: the same in every process and on every machine.

    Values are None, booleans, numbers, text, bytes, paths, arrays, sequences, sets and mappings
    of these, and instances of attrs classes, which count by their name and their fields.

    Raises:
        TypeError: a value of another kind, whose content nobody could know.

    """
    digest = hashlib.sha256()
    for chunk in _chunks(values):
        digest.update(chunk)
    return digest.hexdigest()


def _chunks(value: object) -> Iterator[bytes | memoryview]:
    """Yield the bytes of a value so that no other value has the same."""
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise TypeError(f"an array of dtype {value.dtype} has no content that can be hashed")
        yield from _framed(b"array", value.dtype.str.encode())
        yield from _chunks(value.shape)
        yield from _framed(b"data", np.ascontiguousarray(value).tobytes())
    elif isinstance(value, Mapping):
        yield from _framed(b"mapping", struct.pack("<q", len(value)))
        # By the hash of the key: keys need have no order of their own.
        for key in sorted(value, key=fingerprint):
            yield from _chunks(key)
            yield from _chunks(value[key])
    elif isinstance(value, AbstractSet):
        yield from _framed(b"set", struct.pack("<q", len(value)))
        for member in sorted(fingerprint(member) for member in value):
            yield from _chunks(member)
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
        yield from _framed(b"sequence", struct.pack("<q", len(value)))
        for member in value:
            yield from _chunks(member)
    elif attrs.has(type(value)):
        yield from _framed(b"object", f"{type(value).__module__}.{type(value).__qualname__}")
        yield from _chunks({field.name: getattr(value, field.name) for field in _fields(value)})
    else:
        yield from _framed(*_leaf(value))


def _fields(value: object) -> Iterator[attrs.Attribute[object]]:
    """Yield the fields that tell two instances apart; one with `eq=False` does not count."""
    kind: Any = type(value)  # of attrs, as the caller knows and mypy does not
    return (field for field in attrs.fields(kind) if field.eq)


def _leaf(value: object) -> tuple[bytes, bytes | str]:
    """Return what a value without parts is, and its content.

    True and 1 are equal in Python, and mean different options here.
    """
    match value:
        case None:
            leaf: tuple[bytes, bytes | str] = b"none", b""
        case bool():
            leaf = b"bool", bytes([value])
        case int() | np.integer():
            leaf = b"int", str(int(value))
        case float() | np.floating():
            leaf = b"float", struct.pack("<d", float(value))
        case str():
            leaf = b"str", value.encode("utf-8", "surrogatepass")
        case bytes() | bytearray():
            leaf = b"bytes", bytes(value)
        case PurePath():
            leaf = b"path", value.as_posix()
        case _:
            raise TypeError(f"{type(value).__qualname__} has no content that can be hashed")
    return leaf


def _framed(kind: bytes, content: bytes | str) -> Iterator[bytes]:
    """Yield a kind and a content, each preceded by its length."""
    content = content.encode() if isinstance(content, str) else content
    yield struct.pack("<qq", len(kind), len(content))
    yield kind
    yield content
