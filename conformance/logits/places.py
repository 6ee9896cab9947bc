# SPDX-License-Identifier: Apache-2.0
"""Where tensors count as being, on a machine on which all of them are on the CPU."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import attrs
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_leaves


class Place(StrEnum):
    """Where a tensor is; of those that are in no place nobody knows."""

    DEVICE = "device"
    HOST = "host"


@attrs.frozen
class _Kept:
    """What is known of a storage."""

    storage: Any  #: a weak reference, so that no other storage gets the same address
    place: Place
    made: str | None = None  #: file and line, for those of the host


@attrs.define
class Places:
    """Where tensors are, by their storages: views are where the whole is."""

    _known: dict[int, _Kept] = attrs.field(factory=dict)

    def of(self, tensor: torch.Tensor) -> Place | None:
        """Return where a tensor is, or None where nobody knows."""
        kept = self._kept(tensor)
        return None if kept is None else kept.place

    def made(self, tensor: torch.Tensor) -> str | None:
        """Return where in the plugin's source a tensor of the host was made."""
        kept = self._kept(tensor)
        return None if kept is None else kept.made

    def put(self, tensor: torch.Tensor, place: Place | None, made: str | None = None) -> None:
        """Say where a tensor is."""
        storage, key = _storage(tensor), address(tensor)
        if key is None:
            return
        if place is None:
            self._known.pop(key, None)
        else:
            self._known[key] = _Kept(StorageWeakRef(storage), place, made)

    def _kept(self, tensor: torch.Tensor) -> _Kept | None:
        key = address(tensor)
        return None if key is None else self._known.get(key)


def address(tensor: torch.Tensor) -> int | None:
    """Return what tells the storage of a tensor from others; None for kinds that have none."""
    storage = _storage(tensor)
    return None if storage is None else int(storage._cdata)  # noqa: SLF001 - torch's own key


def addresses(values: object) -> set[int | None]:
    """Return the storages of all tensors among values."""
    return {address(tensor) for tensor in tensors(values)}


def tensors(values: object) -> list[torch.Tensor]:
    """Return the tensors among values, however they are nested."""
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def extended(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor has dimensions and values; those without may mix."""
    return bool(tensor.dim() > 0 and tensor.numel() > 0)


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """Return the storage of a tensor; None for the few kinds that have none."""
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None
