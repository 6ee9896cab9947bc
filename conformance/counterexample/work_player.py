# SPDX-License-Identifier: Apache-2.0
"""How much work a call is, counted and not timed: the same on every machine, busy or not."""

import sys
import weakref
from collections.abc import Callable
from threading import get_ident
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


def executed(call: Callable[[], object]) -> int:
    """Return how many instructions Python executes in functions that a call calls.

    Loops in C, those of torch among them, count as one, and other threads count for nothing.
    """
    # From 3.12 on, a trace function is told of instructions only where one was asked about them
    # before, and then not in every function.
    return monitored(call) if sys.version_info >= (3, 12) else traced(call)


def monitored(call: Callable[[], object]) -> int:
    """Return how many instructions a call executes."""
    count, ours = 0, get_ident()

    def noted(_code: Any, _offset: int) -> None:
        nonlocal count
        count += get_ident() == ours

    monitoring: Any = sys.monitoring  # type: ignore[attr-defined] # from 3.12 on
    tool, event = 3, monitoring.events.INSTRUCTION  # Python reserves that number for nobody
    monitoring.use_tool_id(tool, "instructions")
    try:
        monitoring.register_callback(tool, event, noted)
        monitoring.set_events(tool, event)
        call()
    finally:
        monitoring.set_events(tool, monitoring.events.NO_EVENTS)
        monitoring.register_callback(tool, event, None)
        monitoring.free_tool_id(tool)
    return count


def traced(call: Callable[[], object]) -> int:
    """Return how many instructions a call executes."""
    count = 0

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal count
        if event == "call":
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


class Memory(TorchDispatchMode):
    """Follows the memory of the tensors that are made within a block.

    A view shares its memory with what it is a view of, and holds it as long.
    """

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0  #: bytes that were held at the same time, at the most
        self.held: dict[int, list[int]] = {}  #: bytes and holders, by address

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        leaves = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        # What was there before, and is not ours, costs nothing.
        others = {place.data_ptr() for leaf in leaves for place in self.places(leaf)}
        others -= self.held.keys()
        result = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            for place in self.places(leaf) if isinstance(leaf, torch.Tensor) else ():
                address = place.data_ptr()
                if address and address not in others:
                    self.held.setdefault(address, [place.nbytes(), 0])[1] += 1
                    weakref.finalize(leaf, self.release, address)
        self.peak = max(self.peak, sum(size for size, _ in self.held.values()))
        return result

    @staticmethod
    def places(tensor: torch.Tensor) -> list[torch.UntypedStorage]:
        """Return where a tensor has its values: those of a sparse one have no such place."""
        try:
            return [tensor.untyped_storage()]
        except NotImplementedError:
            return []

    def release(self, address: int) -> None:
        """Take note that a tensor is gone."""
        if address in self.held:
            self.held[address][1] -= 1
            if not self.held[address][1]:
                del self.held[address]


class Work(TorchDispatchMode):
    """Notes the operations on tensors as large as some logits; a view costs nothing.

    Neither does an index that selects nothing.
    """

    def __init__(self, logits: torch.Tensor) -> None:
        super().__init__()
        self.size = logits.numel()
        self.operations: list[str] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        sizes = [tensor.numel() for tensor in tensors]
        if not function.is_view and self.size in sizes and 0 not in sizes:
            self.operations.append(str(function.overloadpacket))
        return result
