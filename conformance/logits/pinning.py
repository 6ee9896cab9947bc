# SPDX-License-Identifier: Apache-2.0
"""Memory that torch pins on a machine with a GPU, and what it refuses to pin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from conformance.logits.operations import DeviceError

#: What plugins are told that they run on.
DEVICE = torch.device("cuda:0")

#: Functions that make tensors, on the CPU unless a device is given.  No mode sees ``from_numpy``.
MAKING = frozenset(
    (
        torch.tensor,
        torch.as_tensor,
        torch.asarray,
        torch.zeros,
        torch.ones,
        torch.empty,
        torch.full,
        torch.arange,
        torch.linspace,
        torch.eye,
        torch.rand,
        torch.randn,
        torch.randint,
    )
)

#: What torch says of other memory.
REFUSED = "only dense CPU tensors can be pinned"


def check(func: object, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Raise where torch pins nothing.

    ``torch.tensor`` copies arrays and tensors to memory that is not pinned, and refuses to; with a
    device of its own it pins what it copies from, where other functions make the result there.

    Raises:
        DeviceError: torch raises here on a machine with a GPU.

    """
    if func is torch.tensor:
        data = args[0] if args else kwargs.get("data")
        for kind, what, name in (
            (np.ndarray, "an array", "numpy"),
            (torch.Tensor, "a tensor", "a variable"),
        ):
            if isinstance(data, kind):
                does = f"tensor() is to pin what it makes of {what}"
                says = f"Can't pin tensor constructed from {name}"
                raise DeviceError(does, None, says, everywhere=True)
        return
    where = kwargs.get("device")
    if func in MAKING and where is not None and device_of(where).type == "cuda":
        name = getattr(func, "__name__", "")
        raise DeviceError(f"{name}() is to pin what it makes on the GPU", None, REFUSED)


def device_of(value: object) -> torch.device:
    """Return the device that is meant; a number is one of a GPU."""
    return DEVICE if isinstance(value, int) else torch.device(value)
