# SPDX-License-Identifier: Apache-2.0
"""Arrays that nobody can change, taken from clients without trusting them."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from reference_plugins.modality.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    #: what a model is given for one item, by the name of the model's argument
    Features = Mapping[str, npt.NDArray[Any]]


def frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a copy of an array that cannot be made writable again, of the same shape and dtype.

    A flag alone would not do: whoever holds an array may set `writeable` again.
    An array that came from here is returned as it is.
    """
    if isinstance(_memory(array), bytes):
        return array
    if array.size == 0:
        empty = np.empty(array.shape, array.dtype)
        empty.flags.writeable = False
        return empty
    return np.frombuffer(array.tobytes(), dtype=array.dtype).reshape(array.shape)


def _memory(array: npt.NDArray[Any]) -> object:
    """Return the object that holds the values of an array, or None where it holds them itself."""
    owner: object = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    return owner


def frozen_features(features: Mapping[str, npt.NDArray[Any]]) -> Features:
    """Return the arrays of one item as a mapping that cannot be changed, arrays included."""
    return MappingProxyType({name: frozen(array) for name, array in features.items()})


def as_array(value: object, what: str, *, max_values: int) -> npt.NDArray[Any]:
    """Return a client's array or tensor as NumPy sees it, before a value of it is looked at.

    Anything with `__array__` will do, so tensors need no import of their library.
    The size is judged by the shape: a broadcast array may take no memory and promise terabytes.

    Raises:
        InputError: it holds no numbers, none at all, or more than `max_values`.

    """
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and math.prod(shape) > max_values:
        raise InputError(f"{what} holds {math.prod(shape)} values, of which {max_values} may be")
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        # RuntimeError: a tensor that requires a gradient, or one on a device.
        raise InputError(f"{what} cannot be read as an array: {str(error)[:200]}") from error
    if array.dtype.kind not in "uif":
        raise InputError(f"{what} must hold integers or floats (got dtype {array.dtype})")
    if array.size == 0:
        raise InputError(f"{what} is empty: its shape is {array.shape}")
    if array.size > max_values:
        raise InputError(f"{what} holds {array.size} values, of which {max_values} may be")
    return array


def require_finite(array: npt.NDArray[Any], what: str) -> None:
    """Refuse NaN and infinities: one of them spreads over every token that attends to it.

    Raises:
        InputError: some value is not finite; the message says where the first one is.

    """
    if array.dtype.kind != "f":
        return
    wrong = ~np.isfinite(array)
    if wrong.any():
        first = tuple(int(i) for i in np.unravel_index(int(wrong.argmax()), array.shape))
        raise InputError(f"{what} is {array[first]} at {first}, where a finite number must be")


def bytes_to_unit(array: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Return bytes as floats from 0 to 1, of the same shape."""
    return array.astype(np.float32) / np.float32(255)
