# SPDX-License-Identifier: Apache-2.0
"""Recording what a live engine sends a plugin, and playing the same orders in the simulator."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

import attrs
import torch
from vllm.sampling_params import SamplingParams
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, MoveDirectionality

from conformance.engine.offline import Order
from conformance.logits_batch.host import Host, Joining

T = TypeVar("T")

#: One call of ``update_state`` in a form that two hosts can be compared by: removed indices,
#: (index, prompt, outputs) of added requests, and moves.
Call = tuple[
    tuple[int, ...],
    tuple[tuple[int, tuple[int, ...] | None, tuple[int, ...]], ...],
    tuple[tuple[int, int, str], ...],
]


@attrs.define
class Rows(Generic[T]):
    """What is in which row, kept from batch updates alone, as the document describes them."""

    at: dict[int, T] = attrs.field(factory=dict)

    def update(
        self,
        batch_update: BatchUpdate,
        enter: Callable[[int, SamplingParams, list[int] | None, list[int], T | None], T],
        moved: Callable[[T], None] = lambda _: None,
    ) -> None:
        """Apply removes, adds and moves; ``enter`` makes what an added row holds.

        ``enter`` is also given what the row held before, if anything.
        """
        for index in batch_update.removed:
            self.at.pop(index, None)
        for index, params, prompt, outputs in batch_update.added:
            self.at[index] = enter(index, params, prompt, outputs, self.at.get(index))
        for source, target, way in batch_update.moved:
            a, b = self.at.pop(source, None), self.at.pop(target, None)
            if a is not None:
                self.at[target] = a
                moved(a)
            if b is not None and way is MoveDirectionality.SWAP:
                self.at[source] = b
                moved(b)


@attrs.frozen
class Applied:
    """One call of ``apply`` in a live engine."""

    before: torch.Tensor
    after: object  #: whatever the plugin returned
    discarded: frozenset[int]  #: rows of unfinished prefills
    contiguous: bool = True  #: whether the plugin was handed rows without padding between them


@attrs.frozen
class Recorded:
    """One step of a live engine as the plugin saw it."""

    update: BatchUpdate | None
    call: Call | None
    #: Output tokens by row, as they were when ``apply`` was called, or ``update_state`` where
    #: ``apply`` was skipped.
    outputs: dict[int, tuple[int, ...]]
    applied: Applied | None
    params: tuple[SamplingParams, ...] = ()  #: copies for ``added``, made before the plugin ran


class Recording(LogitsProcessor):
    """Stands in for a plugin in a live engine and writes down what it is sent."""

    def __init__(self, plugin: LogitsProcessor, runner: Any) -> None:  # noqa: ANN401 - vLLM's
        self.plugin = plugin
        self.steps: list[Recorded] = []
        self._runner = runner
        self._rows: Rows[list[int]] = Rows()

    @classmethod
    def insert(cls, runner: Any, plugin: type) -> Recording:  # noqa: ANN401 - a model runner
        """Put a recording around the instance of a plugin that a model runner holds.

        Raises:
            LookupError: the runner holds no instance of the class.

        """
        processors = runner.input_batch.logitsprocs
        for group in (processors.argmax_invariant, processors.non_argmax_invariant):
            # A built-in that is also loaded as a plugin is there twice; the plugin comes last.
            for index in reversed(range(len(group))):
                if type(group[index]) is plugin:
                    group[index] = recording = cls(group[index], runner)
                    return recording
        raise LookupError(f"the engine holds no instance of {plugin.__name__}")

    def remove(self) -> None:
        """Take the plugin out of the engine: what follows runs without it."""
        processors = self._runner.input_batch.logitsprocs
        for group in (processors.argmax_invariant, processors.non_argmax_invariant):
            if self in group:
                group.remove(self)

    def is_argmax_invariant(self) -> bool:
        """Return the plugin's claim."""
        claim: bool = self.plugin.is_argmax_invariant()
        return claim

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Write the update down and pass it on."""
        added = batch_update.added if batch_update is not None else ()
        params = tuple(copy.deepcopy(params) for _, params, _, _ in added)
        self.steps.append(Recorded(batch_update, call_of(batch_update), {}, None, params))
        if batch_update is not None:
            self._rows.update(batch_update, lambda _i, _p, _q, outputs, _o: outputs)
        self.steps[-1] = attrs.evolve(self.steps[-1], outputs=self._outputs())
        self.plugin.update_state(batch_update)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Write logits down before and after the plugin."""
        before, contiguous = logits.clone(), logits.is_contiguous()
        after = self.plugin.apply(logits)
        kept = after.clone() if isinstance(after, torch.Tensor) else after
        mask = self._runner.discard_request_mask.np[: len(before)]
        discarded = frozenset(row for row, flag in enumerate(mask) if flag)
        applied = Applied(before, kept, discarded, contiguous)
        self.steps[-1] = attrs.evolve(self.steps[-1], outputs=self._outputs(), applied=applied)
        return after

    def _outputs(self) -> dict[int, tuple[int, ...]]:
        return {row: tuple(tokens) for row, tokens in self._rows.at.items()}


class _Calls(LogitsProcessor):
    """Does nothing but write down the calls of ``update_state``."""

    def __init__(self) -> None:
        self.calls: list[Call | None] = []

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        self.calls.append(call_of(batch_update))

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        return logits


def call_of(update: BatchUpdate | None) -> Call | None:
    """Return an update in comparable form, with outputs as they are now."""
    if update is None:
        return None
    return (
        tuple(sorted(update.removed)),
        tuple(
            (index, None if prompt is None else tuple(prompt), tuple(outputs))
            for index, _, prompt, outputs in update.added
        ),
        tuple((a, b, way.name) for a, b, way in update.moved),
    )


def replay(
    orders: Sequence[Order],
    outputs: Mapping[str, Sequence[int]],
    *,
    vocabulary: int,
    reorder: bool,
    asynchronous: bool,
) -> list[Call | None]:
    """Play a live engine's orders in the simulator and return the calls a plugin gets."""
    calls = _Calls()
    host = Host(calls, vocabulary, reorder=reorder, asynchronous=asynchronous)
    for order in orders:
        host.schedule(
            finish=order.finished,
            join=[Joining(name, list(prompt), params) for name, prompt, params in order.new],
            scheduled=order.scheduled,
            computed=order.computed,
        )
        if not order.scheduled:
            continue
        host.batch.update_async_output_token_ids()
        names = list(host.batch.req_ids)
        host.complete(partial(_next, host, outputs, names))
    return calls.calls


def _next(host: Host, outputs: Mapping[str, Sequence[int]], names: Sequence[str], row: int) -> int:
    name = names[row]
    position = len(host.outputs[name])
    tokens = outputs[name]
    # A stop token ends the outputs that a user sees; the engine may have sampled one more.
    return tokens[position] if position < len(tokens) else 0
