# SPDX-License-Identifier: Apache-2.0
"""What plugins hand to models: whether it is arrays, and in what two of them differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from conformance.multimodal.modality.served import Served
from conformance.watching.comparison import ABSOLUTE, RELATIVE, shortened

#: What a model can be given: booleans, integers, floats and complex numbers.
NUMBERS = "biufc"


def trouble(features: object) -> str | None:
    """Say why something is no mapping of arrays, or return None."""
    if not isinstance(features, Mapping):
        return f"preprocess returned {_kind(features)}, where a mapping of arrays must be"
    if not features:
        return "preprocess returned no arrays"
    for name, value in features.items():
        if not isinstance(name, str):
            return f"preprocess returned an array by the name {shortened(name)}, which is no text"
        if not isinstance(value, np.ndarray):
            return f"{name!r} is {_kind(value)}, where an array of NumPy's must be"
        if value.dtype.kind not in NUMBERS:
            return f"{name!r} is an array of dtype {value.dtype}, which holds no numbers"
    return None


def outline(features: Mapping[str, Any]) -> dict[str, tuple[str, int]]:
    """Return the dtype and the number of dimensions of each array."""
    return {name: (str(value.dtype), len(value.shape)) for name, value in sorted(features.items())}


def difference(got: Served, wanted: Served, *, hashes: bool = False) -> str | None:
    """Say in what one item's way differs from another's, or return None.

    Hashes are compared on request: where they are salted, a rule of their own says so.
    """
    if wanted.good != got.good:
        return got.trouble() if wanted.good else "it was taken"
    if not wanted.good:
        return None
    for name in ("estimate", "count") + ("hash",) * hashes:
        one, other = getattr(got, name), getattr(wanted, name)
        if one != other:
            return f"its {name} was {shortened(one)} instead of {shortened(other)}"
    return arrays(got.features, wanted.features)


def unlike(got: Served, wanted: Served) -> str | None:
    """Say in what one item's way differs from another's, where both are taken, or return None."""
    return difference(got, wanted) if got.good and wanted.good else None


def arrays(got: Any, wanted: Any) -> str | None:  # noqa: ANN401 - what preprocess returned
    """Say in what arrays differ, or return None."""
    if trouble(got) or trouble(wanted):
        return None  # a rule of its own is about that
    if sorted(got) != sorted(wanted):
        return f"the arrays were {', '.join(sorted(got))} instead of {', '.join(sorted(wanted))}"
    for name in sorted(wanted):
        one, other = got[name], wanted[name]
        if one.shape != other.shape:
            return f"{name!r} had shape {one.shape} instead of {other.shape}"
        if one.dtype != other.dtype:
            return f"{name!r} had dtype {one.dtype} instead of {other.dtype}"
        near = np.isclose(one, other, rtol=RELATIVE, atol=ABSOLUTE, equal_nan=True)
        if not near.all():
            place = tuple(int(at) for at in np.argwhere(~near)[0]) if one.shape else ()
            return f"{name!r} was {one[place]:.6g} instead of {other[place]:.6g} at {list(place)}"
    return None


def copied(features: Any) -> Any:  # noqa: ANN401 - what preprocess returned
    """Return arrays that nobody else can change."""
    if trouble(features):
        return features
    return {name: np.array(value) for name, value in features.items()}


def _kind(value: object) -> str:
    return f"of type {type(value).__name__}" if value is not None else "None"
