# SPDX-License-Identifier: Apache-2.0
"""Equal things have one hash, and different things never do."""

from __future__ import annotations

from pathlib import PurePosixPath

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference_plugins.modality import FixedResolution
from reference_plugins.modality.fingerprints import fingerprint

GOLDEN = "507e79192191031a2d70f7d6f88de6286c9385ee5e8202d3a1b1f2459900429d"

LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


def spelled(value: object) -> str:
    """Return a value as text that differs wherever the value does, types and signs included."""
    if isinstance(value, dict):
        return f"dict{sorted((spelled(key), spelled(each)) for key, each in value.items())}"
    if isinstance(value, tuple):
        return f"tuple{[spelled(each) for each in value]}"
    if isinstance(value, float):
        return f"float {np.float64(value).tobytes().hex()}"
    return f"{type(value).__name__} {value!r}"


@given(VALUES, VALUES)
def test_two_values_share_a_hash_only_if_they_are_one(first: object, second: object) -> None:
    """Whatever they are made of."""
    assert (fingerprint(first) == fingerprint(second)) == (spelled(first) == spelled(second))


SAMPLE = np.arange(6, dtype=np.uint8)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(SAMPLE.reshape(2, 3), SAMPLE.reshape(3, 2), id="shape"),
        pytest.param(SAMPLE, SAMPLE.reshape(1, 6), id="dimensions"),
        pytest.param(SAMPLE, SAMPLE.view(np.int8), id="dtype"),
        pytest.param(SAMPLE.view("<u2"), SAMPLE.view(">u2"), id="byte order"),
        pytest.param(SAMPLE, SAMPLE.tobytes(), id="array and bytes"),
        pytest.param(("ab", "c"), ("a", "bc"), id="where one ends"),
        pytest.param((("a",), "b"), ("a", ("b",)), id="what is in what"),
        pytest.param(1, True, id="one and true"),
        pytest.param(1, 1.0, id="int and float"),
        pytest.param("a", b"a", id="text and bytes"),
        pytest.param("a", PurePosixPath("a"), id="text and path"),
        pytest.param({}, (), id="nothing in two kinds"),
        pytest.param(FixedResolution(336), FixedResolution(448), id="an option of a recipe"),
    ],
)
def test_what_differs_in_one_respect_has_another_hash(first: object, second: object) -> None:
    """Each of these pairs has shared a hash somewhere."""
    assert fingerprint(first) != fingerprint(second)


def test_two_classes_with_one_field_differ() -> None:
    """Recipes of two models may well have the same options."""

    @attrs.frozen
    class Wide:
        side: int

    @attrs.frozen
    class High:
        side: int

    assert fingerprint(Wide(5)) != fingerprint(High(5))


def test_how_an_array_lies_in_memory_does_not_count() -> None:
    """Its content does: a transposed view and a copy of it are one."""
    view = SAMPLE.reshape(2, 3).T

    assert fingerprint(view) == fingerprint(view.copy())


def test_the_order_of_a_mapping_does_not_count() -> None:
    """Nor does that of a set."""
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    assert fingerprint({"a", "b", "c"}) == fingerprint({"c", "b", "a"})


def test_a_hash_is_the_same_everywhere() -> None:
    """Written down once: caches are shared between processes, machines and restarts."""
    assert fingerprint("image", SAMPLE.reshape(2, 3), {"side": 336, "crop": None}) == GOLDEN


@pytest.mark.parametrize("value", [object(), np.array([object()]), 1j, lambda: None])
def test_what_has_no_content_is_refused(value: object) -> None:
    """Rather than hashed by where it lies in memory."""
    with pytest.raises(TypeError, match="no content that can be hashed"):
        fingerprint(value)
