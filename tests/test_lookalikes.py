# SPDX-License-Identifier: Apache-2.0
"""Pairs that are easily taken for one another, and what is seen to be looked for."""

from __future__ import annotations

import copy
import zlib

import numpy as np
import pytest

from conformance.inputs import lookalikes

TEXT = "The Fox has 12 cubs."


def test_a_text_has_others_that_differ_in_little() -> None:
    """In case, order, digits, spaces or width; long ones that begin alike; and of checksums."""
    *short, (one, other), _, _ = lookalikes.of_text(TEXT)

    assert [second for _, second in short] == [
        "tHE fOX HAS 12 CUBS.",
        "cubs. 12 has Fox The",
        "The Fox has 45 cubs.",
        "TheFoxhas12cubs.",
        "".join(chr(ord(c) + 0xFEE0) if c != " " else c for c in TEXT),
    ]
    assert {first for first, _ in short} == {TEXT}
    assert one != other
    assert one[: lookalikes.LONG] == other[: lookalikes.LONG]


def test_texts_with_one_checksum() -> None:
    """One pair has one CRC-32, and the other one Adler-32."""
    crc, adler = lookalikes.CHECKSUMS

    assert len({zlib.crc32(text.encode()) for text in crc}) == 1
    assert len({zlib.adler32(text.encode()) for text in adler}) == 1


@pytest.mark.parametrize("around", [(), (3.5, -1.0)])
def test_numbers_with_one_checksum(around: tuple[float, ...]) -> None:
    """Of 32 bits and of 64, alone and among others."""
    for kind, pair in zip(("<f4", "<f8"), lookalikes.NUMBERS, strict=True):
        one, other = (np.array([*around, *each, *around], kind).tobytes() for each in pair)
        assert one != other
        assert zlib.crc32(one) == zlib.crc32(other)


def test_a_long_pair_may_end_alike() -> None:
    """Keys may be cut at either end."""
    one, other = lookalikes.long_pair("neither here nor there", "a", "b", ends=False)

    assert (one[0], other[0]) == ("a", "b")
    assert one[-lookalikes.LONG :] == other[-lookalikes.LONG :]


def test_a_number_has_others_of_its_type() -> None:
    """A truth has the other one."""
    assert list(lookalikes.of_number(number=True)) == [(True, False)]
    assert list(lookalikes.of_number(3)) == [(3, 4), (3, 2)]
    assert list(lookalikes.of_number(0.5)) == [(0.5, 0.25)]


def test_the_code_of_a_class_has_names() -> None:
    """What methods compare keys with is among them, and their sentences are not."""

    class Reads:
        def take(self, fields: dict[str, str]) -> list[str]:
            """Take what is wanted."""
            return [value for key, value in fields.items() if key in ("tenant", "limit")]

    found = lookalikes.names_in(Reads)

    assert {"tenant", "limit"} <= set(found)
    assert all(map(str.isidentifier, found))


def test_watched_data_tell_what_is_looked_for() -> None:
    """Every way to look for a key is noted, also on copies."""
    keys: list[str] = []
    data = copy.deepcopy(lookalikes.Watching({"text": "a"}, keys))

    assert data["text"] == "a"
    assert data.get("window", 8) == 8
    assert "language" not in data
    assert keys == ["text", "window", "language"]


def test_watched_data_may_have_a_value_for_everything() -> None:
    """What is looked for only where something else was found is looked for then."""
    keys: list[str] = []
    data = lookalikes.Watching({"text": "a"}, keys, "x")

    assert "tenant" in data
    assert data.get("tenant") == data["region"] == "x"
    assert data["text"] == "a"
    assert keys == ["tenant", "region", "text"]
