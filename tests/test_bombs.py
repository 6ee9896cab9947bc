# SPDX-License-Identifier: Apache-2.0
"""What is packed is told from other text, and what becomes very long is short."""

from __future__ import annotations

import base64
import bz2
import gzip
import lzma
import zlib
from typing import TYPE_CHECKING

import pytest

from conformance.inputs import bombs

if TYPE_CHECKING:
    from collections.abc import Callable

#: Characters that a client sends at the most, and bytes that a plugin reads in the test.
SENT, READ = 8_000_000, 1 << 20


@pytest.mark.parametrize("pack", [zlib.compress, gzip.compress, bz2.compress, lzma.compress])
def test_what_is_packed_becomes_gigabytes(pack: Callable[[bytes], bytes]) -> None:
    """In base64, in that of addresses without its end, and in hexadecimal digits."""
    data = pack(b'["a fox runs"]')
    texts = (base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode().rstrip("="))

    for text in (*texts, data.hex()):
        bomb = bombs.packed(text)
        assert bomb is not None
        assert len(bomb) < SENT


def test_a_stream_of_zlib_holds_what_is_said() -> None:
    """It can be read part by part, as one who has a limit reads it."""
    bomb = bombs.packed(base64.b64encode(zlib.compress(b"a")).decode())
    assert bomb is not None

    unpacking = zlib.decompressobj()
    assert len(unpacking.decompress(base64.b64decode(bomb), READ)) == READ
    assert not unpacking.eof


@pytest.mark.parametrize("text", ["", "a fox runs", "abcd", "0123", "{text}", "A" * 80])
def test_other_texts_are_not_packed(text: str) -> None:
    """Words may be base64, and numbers hexadecimal digits."""
    assert bombs.packed(text) is None


def test_templates_name_what_they_are_filled_with() -> None:
    """In each kind of template that has names, and each name once."""
    made = list(bombs.templates([*bombs.names_in("{text} of { title }"), "text"]))

    assert [text for text in made if text.startswith("{text:")] == [f"{{text:>{bombs.WIDE}}}"]
    assert f"%(title){bombs.WIDE}s" in made
