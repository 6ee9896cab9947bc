# SPDX-License-Identifier: Apache-2.0
"""What a plugin is tried out on: its class, its parameters, the logits, and watched calls."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from functools import cached_property, partial

import attrs
import torch
from vllm.sampling_params import SamplingParams
from vllm.v1.sample.logits_processor import (
    BUILTIN_LOGITS_PROCESSORS,
    BatchUpdate,
    LogitBiasLogitsProcessor,
    LogitsProcessor,
    MinPLogitsProcessor,
    MinTokensLogitsProcessor,
)

from conformance.inputs.history import Choice
from conformance.logits.calls import PluginMisshapen, PluginRaised, call, misshapen
from conformance.logits.configuration import vllm_config
from conformance.logits.construction import Construction
from conformance.logits.requests import Stock
from conformance.logits_batch import host
from conformance.watching.interruption import PluginHung, limited

#: What switches each of vLLM's own processors on.
_SWITCHES = {
    LogitBiasLogitsProcessor: "logit_bias",
    MinPLogitsProcessor: "min_p",
    MinTokensLogitsProcessor: "min_tokens",
}


class Call(StrEnum):
    """What hosts call, as sentences name it."""

    CONSTRUCTOR = "__init__"
    CLAIM = "is_argmax_invariant()"
    UPDATE = "update_state(batch_update)"
    NO_UPDATE = "update_state(None)"
    APPLY = "apply(logits)"


class Watched(LogitsProcessor):
    """A plugin as the batch sees it: every call goes through :func:`call`.

    Engines run their steps under ``torch.inference_mode``.
    """

    def __init__(self, plugin: LogitsProcessor, *, inference: bool = True) -> None:
        self.plugin = plugin
        self._mode = torch.inference_mode(inference)

    def is_argmax_invariant(self) -> bool:
        """Return the plugin's claim."""
        return call(Call.CLAIM, self.plugin.is_argmax_invariant)  # type: ignore[no-any-return] # a plugin may answer anything, and that is judged

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Pass a batch update on."""
        name = Call.NO_UPDATE if batch_update is None else Call.UPDATE
        with self._mode:
            call(name, self.plugin.update_state, batch_update)

    def begin(self, params: SamplingParams, prompt: list[int] | None, outputs: list[int]) -> None:
        """Add a request to the empty batch; ``outputs`` is its live list."""
        self.update_state(BatchUpdate(1, [], [(0, params, prompt, outputs)], []))

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Pass logits ``[rows, vocabulary]`` on.

        Raises:
            PluginMisshapen: what came back has another shape, dtype or device.

        """
        shape = logits.shape  # the plugin may change the tensor that it was given
        with self._mode:
            result = call(Call.APPLY, self.plugin.apply, logits)
        if problem := misshapen(result, logits, shape):
            raise PluginMisshapen(problem)
        return result


@attrs.define
class Bench(Stock):
    """One plugin class with everything it needs to be tried out."""

    #: Tokens that a grammar masked last, besides every seventh one.
    masked: tuple[int, ...] = attrs.field(init=False, default=())
    _idle: list[Watched] = attrs.field(init=False, factory=list)
    _construction: Construction = attrs.field(init=False, factory=Construction)

    @cached_property
    def invariant(self) -> bool:
        """Whether the plugin claims argmax invariance; False where it cannot be asked."""
        try:
            with limited():
                return bool(self.new().is_argmax_invariant())
        except (PluginRaised, PluginHung):
            return False

    def new(self) -> Watched:
        """Return an idle instance: fresh, or used before where building one takes long."""
        if self._idle:
            return self._idle.pop()
        instance = self._construction.make(partial(call, Call.CONSTRUCTOR, self.construct))
        return Watched(instance)

    def construct(self) -> LogitsProcessor:
        """Make an instance as ``build_logitsprocs`` does."""
        return self.plugin(vllm_config(self.model), host.CPU, False)  # noqa: FBT003 - as vLLM calls it

    def others(self) -> list[LogitsProcessor]:
        """Make the processors of vLLM that stand before the plugin, as ``build_logitsprocs``."""
        config = vllm_config(self.model)
        # One that does what the plugin does would leave it nothing to do.
        switches = {
            key for choice, own in self.parameters.items() if choice[0] == "on" for key in own
        }
        classes = (c for c in BUILTIN_LOGITS_PROCESSORS if _SWITCHES.get(c) not in switches)
        return [each(config, host.CPU, False) for each in classes]  # noqa: FBT003 - as vLLM

    def retire(self, instance: Watched, rows: int) -> None:
        """Take back an instance after an example, with all of its requests finished."""
        if self._construction.slow:
            instance.update_state(all_leave(rows) if rows else None)
            self._idle.append(instance)


def all_join(bench: Bench, choices: Sequence[Choice]) -> tuple[BatchUpdate, list[list[int]]]:
    """Return how an empty batch gets a request for each choice, and their output lists."""
    lists = [list[int]() for _ in choices]
    added = [
        (row, bench.params(choice), bench.prompt, lists[row]) for row, choice in enumerate(choices)
    ]
    return BatchUpdate(len(choices), [], added, []), lists


def all_leave(rows: int) -> BatchUpdate:
    """Return how a batch of so many rows becomes empty."""
    return BatchUpdate(0, list(range(rows - 1, -1, -1)), [], [])
