# SPDX-License-Identifier: Apache-2.0
"""Calls into a plugin: named when they raise, and written down by whoever observes."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import attrs
import torch
from vllm.sampling_params import SamplingParams

from conformance.counterexample.source import encoded
from conformance.watching.interruption import in_call
from conformance.worker.limits import explained


class PluginRaised(Exception):
    """The plugin raised where the engine calls it."""

    def __init__(self, call: str, error: BaseException) -> None:
        super().__init__(f"{call} raised {explained(error)}")
        self.call = call
        self.error = error


class PluginMisshapen(Exception):
    """``apply`` returned something that is no tensor like the logits it was given."""


@attrs.define
class Observer:
    """Writes down what is done to a plugin."""

    _keywords: dict[int, tuple[Any, Mapping[str, Any]]] = attrs.field(init=False, factory=dict)
    _serving: str | None = attrs.field(init=False, default=None)

    def parameters(self, params: SamplingParams, keywords: Mapping[str, Any]) -> None:
        """Take note of what parameters were made of."""
        self._keywords[id(params)] = (params, dict(keywords))

    def made_of(self, params: SamplingParams) -> Any:  # noqa: ANN401 - JSON values
        """Return what parameters were made of, as counterexamples have it."""
        _, keywords = self._keywords.get(id(params), (None, {}))
        return encoded(keywords)

    def request(self, name: str) -> None:
        """Take note of whom the instance that is made next serves alone."""
        self._serving = name

    def note(self, event: dict[str, Any]) -> None:
        """Take note of what the host did besides calling the plugin, if that is of interest."""

    def call(self, function: Any, *arguments: Any) -> Any:  # noqa: ANN401 - a plugin's own values
        """Call a function of the plugin."""
        raise NotImplementedError


def in_full(row: torch.Tensor) -> dict[str, str]:
    """Return a row that is none of a table, number by number."""
    packed = zlib.compress(row.contiguous().numpy().tobytes(), 9)
    return {"raw": base64.b85encode(packed).decode("ascii")}


#: Who writes down what is done, if anybody does: see ``transcript``.
_observers: list[Observer] = []


@contextmanager
def observed(observer: Observer) -> Iterator[None]:
    """Have an observer see all calls and all parameters made within the block."""
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.remove(observer)


def watchers() -> int:
    """Return how many observers there are, each of which keeps what a plugin is given."""
    return len(_observers)


def call(what: str, function: Any, *arguments: Any) -> Any:  # noqa: ANN401 - a plugin's own values
    """Call into the plugin.

    Raises:
        PluginRaised: it raised; the exception is attached.
        PluginHung: it took too long; see ``watching.interruption``.

    """
    try:
        with in_call(what):
            if _observers:
                return _observers[-1].call(function, *arguments)
            return function(*arguments)
    except (Exception, SystemExit) as error:
        raise PluginRaised(what, error) from error


def serving(name: str) -> None:
    """Tell whoever observes that the instance that is made next serves a request alone."""
    for observer in _observers:
        observer.request(name)


def misshapen(result: object, logits: torch.Tensor, shape: torch.Size) -> str | None:
    """Say in what a value that ``apply`` returned differs from the logits it was given."""
    if not isinstance(result, torch.Tensor):
        return f"apply returned {type(result).__name__}, not a tensor"
    for what, wanted in (("shape", shape), ("dtype", logits.dtype), ("device", logits.device)):
        got = getattr(result, what)
        if got != wanted:
            if what == "shape":
                return f"apply returned a tensor of shape {list(got)}, not {list(shape)}"
            return f"apply returned a tensor of {what} {got}, not {wanted}"
    if any(size > 1 and not step for size, step in zip(shape, result.stride(), strict=True)):
        return "apply returned an expanded tensor, whose rows are one: the sampler writes to each"
    return None


def note(do: str, states: object, **event: object) -> None:
    """Tell whoever observes what the host did with its states."""
    for observer in _observers:
        observer.note({"do": do, "of": id(states), **event})


def made(params: SamplingParams, keywords: Mapping[str, Any]) -> None:
    """Tell whoever observes what parameters were made of."""
    for observer in _observers:
        observer.parameters(params, keywords)
