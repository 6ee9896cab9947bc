# SPDX-License-Identifier: Apache-2.0
"""Operations of torch, and which of them a GPU's tensor and one of the CPU cannot share.

Those that are here are checked by ``TensorIterator``, or by the wrapper that torch generates from
``native_functions.yaml``; what neither refuses is allowed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from conformance.logits.places import Place, Places, address, addresses, extended, tensors

#: Operations by ``TensorIterator``: one device for all, but for tensors of the CPU without
#: dimensions.
ITERATED = frozenset(
    (
        "add",
        "sub",
        "mul",
        "div",
        "maximum",
        "minimum",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "logical_and",
        "logical_or",
        "logical_xor",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
        "pow",
        "fmod",
        "remainder",
        "where",
        "lerp",
        "addcmul",
        "addcdiv",
        "masked_fill",  # its kernel looks at the mask before
        "index_fill",
    )
)

#: Operations whose wrapper for CUDA compares the devices of all arguments.
COMPARED = frozenset(
    (
        "gather",
        "scatter",
        "scatter_add",
        "scatter_reduce",
        "index_select",
        "index_add",
        "index_copy",
        "masked_select",
        "masked_scatter",
        "take",
        "cat",
        "mm",
        "bmm",
        "addmm",
        "mv",
    )
)

#: Operations whose result is where their first argument is, whatever the others.
_OF_FIRST = frozenset(("index", "index_put", "select_scatter", "slice_scatter"))

_SAME = (
    "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
)
_INDICES = "indices should be either on cpu or on the same device as the indexed tensor (cpu)"


class DeviceError(RuntimeError):
    """Torch would raise on a GPU: a tensor is not where it is used, or cannot be pinned."""

    def __init__(self, does: str, made: str | None, says: str, *, everywhere: bool = False) -> None:
        #: Whether torch raises without a GPU, too: what else the plugin does on one is no matter.
        self.everywhere = everywhere
        of = f", made in {made}" if made else ""
        super().__init__(f"{does}{of}: {says}")


class Operations(TorchDispatchMode):
    """Follows the operations that torch dispatches."""

    def __init__(self, places: Places) -> None:
        super().__init__()
        self.places = places
        #: The call of the plugin's own code that is under way, if one is.
        self.caller: str | None = None

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401 - as torch declares it
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        del types
        kwargs = kwargs or {}
        with torch._C.DisableTorchFunction():  # noqa: SLF001 - there is no public one
            given = tensors((args, kwargs))
            base = func.overloadpacket.__name__.rstrip("_")
            if self.caller is not None and (culprit := self._culprit(base, args, given)):
                host, says = culprit
                does = f"{self.caller} takes a tensor of the CPU (shape {list(host.shape)})"
                raise DeviceError(does, self.places.made(host), says)
            had = addresses(given)
            result = func(*args, **kwargs)
            # Operations of others may well leave on the host what they made of something else.
            if func.namespace == "aten":
                self._follow(base, given, had, result)
        return result

    def _culprit(
        self, base: str, args: tuple[Any, ...], given: Sequence[torch.Tensor]
    ) -> tuple[torch.Tensor, str] | None:
        """Return the tensor of the host that torch would refuse, and what it would say."""
        on_device = [each for each in given if self.places.of(each) is Place.DEVICE]
        on_host = [each for each in given if self.places.of(each) is Place.HOST and extended(each)]
        if not on_device or not on_host:
            return None
        if base in ITERATED or base in COMPARED:
            return on_host[0], _SAME
        if base == "index":
            # Indices may be on the host, what they look up may not.
            taken = any(extended(each) for each in on_device)
            return (given[0], _INDICES) if given[0] is on_host[0] and taken else None
        if base == "index_put":
            # Indices go where they are needed. A value goes with one element, of the host or not.
            into, value = args[0], args[2]
            both = {self.places.of(into), self.places.of(value)} == {*Place}
            host = into if self.places.of(into) is Place.HOST else value
            return (host, _SAME) if both and value.numel() > 1 and extended(value) else None
        return None

    def _follow(
        self, base: str, given: Sequence[torch.Tensor], had: set[int | None], result: object
    ) -> None:
        """Say where the result of an operation is."""
        if not given:
            return
        first = given[:1] if base in _OF_FIRST else given
        places = {self.places.of(each) for each in first}
        place = None
        if Place.DEVICE in places:
            place = Place.DEVICE
        elif places == {Place.HOST}:
            place = Place.HOST
        made = next((m for each in first if (m := self.places.made(each))), None)
        for tensor in tensors(result):
            if address(tensor) not in had:
                self.places.put(tensor, place, made if place is Place.HOST else None)
