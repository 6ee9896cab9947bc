# SPDX-License-Identifier: Apache-2.0
"""How much work a call is, counted and not timed: the same on every machine, busy or not."""

from __future__ import annotations

import sys
import weakref
from contextlib import AbstractContextManager, contextmanager
from threading import get_ident
from typing import TYPE_CHECKING, Any

import attrs
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType, FrameType


@attrs.define
class Instructions:
    """Instructions of Python that were executed within a block."""

    count: int = 0


def instructions() -> AbstractContextManager[Instructions]:
    """Count the instructions that Python executes in functions that the block calls.

    Loops in C, those of torch among them, count as one, and other threads count for nothing.
    """
    return _counting()


# From 3.12 on, a trace function is told of instructions only where one was asked about them
# before, and then not in every function.
if sys.version_info >= (3, 12):
    _TOOL = 3  #: a number that Python reserves for nobody

    @contextmanager
    def _counting() -> Iterator[Instructions]:
        counted, ours = Instructions(), get_ident()

        def count(_code: CodeType, _offset: int) -> None:
            if get_ident() == ours:
                counted.count += 1

        monitoring, event = sys.monitoring, sys.monitoring.events.INSTRUCTION
        monitoring.use_tool_id(_TOOL, __name__)
        try:
            monitoring.register_callback(_TOOL, event, count)
            monitoring.set_events(_TOOL, event)
            yield counted
        finally:
            monitoring.set_events(_TOOL, monitoring.events.NO_EVENTS)
            monitoring.register_callback(_TOOL, event, None)
            monitoring.free_tool_id(_TOOL)

else:

    @contextmanager
    def _counting() -> Iterator[Instructions]:
        counted = Instructions()

        def trace(frame: FrameType, event: str, _: Any) -> Any:  # noqa: ANN401 - as sys.settrace has it
            if event == "call":
                frame.f_trace_opcodes, frame.f_trace_lines = True, False
            elif event == "opcode":
                counted.count += 1
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            yield counted
        finally:
            sys.settrace(before)


class Memory(TorchDispatchMode):
    """Follows the memory of the tensors that are made within a block.

    A view shares its memory with what it is a view of, and holds it as long.
    """

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0  #: bytes that were held at the same time, at the most
        self._held: dict[int, list[int]] = {}  #: bytes and holders, by address

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN204 - torch's signature
        given = {
            leaf.untyped_storage().data_ptr()
            for leaf in tree_leaves((args, kwargs))
            if isinstance(leaf, torch.Tensor)
        }
        result = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                storage = leaf.untyped_storage()
                address = storage.data_ptr()
                # What was there before, and is not ours, costs nothing.
                if address in self._held or (address not in given and address):
                    self._hold(leaf, address, storage.nbytes())
        self.peak = max(self.peak, sum(size for size, _ in self._held.values()))
        return result

    def _hold(self, tensor: torch.Tensor, address: int, size: int) -> None:
        self._held.setdefault(address, [size, 0])[1] += 1
        weakref.finalize(tensor, self._release, address)

    def _release(self, address: int) -> None:
        if address in self._held:
            self._held[address][1] -= 1
            if not self._held[address][1]:
                del self._held[address]
