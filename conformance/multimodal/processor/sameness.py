# SPDX-License-Identifier: Apache-2.0
"""Whether two things that a processor or an encoder made are the same, or what differs."""

from __future__ import annotations

from typing import Any

import torch

from conformance.watching.comparison import plain, same_rows, shortened


def outline(value: object) -> Any:  # noqa: ANN401 - a number of placeholders, or data
    """Return what tells data from others: all of their numbers take too long to compare."""
    if not isinstance(value, torch.Tensor):
        return plain(value)
    return [list(value.shape), float(value.double().sum())]


def same_data(one: object, other: object) -> bool:
    """Tell whether what a processor made of an item is the same as another time."""
    if one is other:
        return True
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        if one.dtype != other.dtype or one.shape != other.shape:
            return False
        return (
            same_rows(one.float(), other.float()) if one.is_floating_point() else one.equal(other)
        )
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same_data(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same_data, one, other))
    return bool(one == other)


def told_apart(one: Any, other: Any) -> tuple[str, str]:  # noqa: ANN401 - whatever processors return
    """Say of two values by what they differ: their type, shape, device, or the first number."""
    for said_of in (_type, _shape, _device):
        left, right = said_of(one), said_of(other)
        if left != right:
            return left, right
    if isinstance(one, torch.Tensor):
        flat, rest = one.detach().cpu().flatten(), other.detach().cpu().flatten()
        # The first of those that differ most: some may differ by how torch adds up.
        place = int((flat.double() - rest.double()).abs().nan_to_num(torch.inf).argmax())
        return f"{flat[place].item():.6g} at {place}", f"{rest[place].item():.6g} at {place}"
    if isinstance(one, dict | list | tuple):
        entries = one.keys() | other.keys() if isinstance(one, dict) else range(len(one))
        for key in sorted(entries, key=str):
            if isinstance(one, dict) and not (key in one and key in other):
                return tuple(f"with{'' if key in each else 'out'} {key!r}" for each in (one, other))  # type: ignore[return-value] # two
            if not same_data(one[key], other[key]):
                left, right = told_apart(one[key], other[key])
                return f"{left} in [{key!r}]", f"{right} in [{key!r}]"
    return shortened(one), shortened(other)


def _type(value: object) -> str:
    dtype = getattr(value, "dtype", None)
    return f"of type {type(value).__name__ if dtype is None else dtype}"


def _shape(value: object) -> str:
    if isinstance(value, list | tuple):
        return f"of length {len(value)}"
    return f"of shape {tuple(getattr(value, 'shape', ()))}"


def _device(value: object) -> str:
    return f"on {getattr(value, 'device', None)}"
