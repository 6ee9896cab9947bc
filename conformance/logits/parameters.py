# SPDX-License-Identifier: Apache-2.0
"""Parameters that switch a plugin on and off: from the profile, or found by watching the plugin.

Without a profile, the plugin is given parameters that note what it reads,
and then values of likely types for what it read; those that change a row switch it on.
"""

from __future__ import annotations

import random
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import attrs
import torch
from hypothesis.strategies import SearchStrategy
from vllm.sampling_params import SamplingParams

from conformance.interruption import PluginHung, limited
from conformance.logits.calls import PluginMisshapen, PluginRaised, call
from conformance.logits.requests import sampling_params
from conformance.settings import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from conformance.history import Choice
    from conformance.logits.trial import RowsAlone

Keywords = dict[str, Any]

#: Steps for which a request runs alone while it is watched for an effect.
WATCHED_STEPS = 10

#: Parameter sets that are enough, when they have to be found out.
MOST_FOUND = 3

#: Seconds that one try may take; whether the plugin hangs is for the rules to say.
WATCH_LIMIT = 5.0

#: How many parameter sets a strategy of a Python profile contributes.
DRAWN = 12

#: Values of likely types for an ``extra_args`` key whose meaning is unknown.
LIKELY: tuple[Any, ...] = (67, 5, 1, 0.5, 2.0, True, "a", [5, 67], [[5, 67]])

#: Values for fields of ``SamplingParams`` that a plugin may use as its switch.
LIKELY_FIELDS: Mapping[str, tuple[Keywords, ...]] = {
    "min_p": ({"min_p": 0.5}, {"min_p": 0.1}),
    "logit_bias": ({"logit_bias": {5: 30.0}}, {"logit_bias": {67: -30.0, 7: 2.5}}),
    "min_tokens": (
        {"min_tokens": 4, "stop_token_ids": [7]},
        {"min_tokens": 2, "stop_token_ids": [11, 5]},
    ),
    "all_stop_token_ids": ({"min_tokens": 4, "stop_token_ids": [7]},),
    "stop_token_ids": ({"stop_token_ids": [7]},),
    "allowed_token_ids": ({"allowed_token_ids": [5, 7, 67]},),
    "temperature": ({"temperature": 0.5}, {"temperature": 2.0}),
    "top_k": ({"top_k": 3},),
    "top_p": ({"top_p": 0.5},),
    "seed": ({"seed": 5}, {"seed": 67}),
    "presence_penalty": ({"presence_penalty": 1.5},),
    "frequency_penalty": ({"frequency_penalty": 1.5},),
    "repetition_penalty": ({"repetition_penalty": 1.5},),
    "max_tokens": ({"max_tokens": 4},),
    "priority": ({"priority": 1},),
    "thinking_token_budget": ({"thinking_token_budget": 2},),
}


@attrs.frozen
class Parameters:
    """The parameter sets that a plugin is tried with."""

    origin: str  #: where they come from, for reports
    declared: bool  #: whether the author said so, or the harness found them
    on: tuple[Keywords, ...]
    off: tuple[Keywords, ...]
    invalid: tuple[Keywords, ...]
    keys: tuple[str, ...] = ()  #: ``extra_args`` keys that the plugin read

    def document(self) -> dict[str, Any]:
        """Return the effective profile, as certificates show it."""
        return {
            "origin": self.origin,
            "on": list(self.on),
            "off": list(self.off),
            "invalid": list(self.invalid),
            "keys": list(self.keys),
        }

    def choices(self) -> dict[Choice, Keywords]:
        """Return ``on`` and ``off`` under the names that histories use."""
        named: dict[Choice, Keywords] = {("on", index): k for index, k in enumerate(self.on)}
        return named | {("off", index): k for index, k in enumerate(self.off)}


@attrs.frozen
class Tried:
    """How a plugin is tried while it is found out what switches it on."""

    plugin: type[Any]
    bench: Callable[[Mapping[Choice, Keywords]], Any]  #: of the generation, for parameter sets
    begin: Callable[[Any, SamplingParams], object]  #: gives a request to an instance
    rows_alone: RowsAlone

    def watch(self) -> Read:
        """Return what the plugin reads of a request."""
        bench = self.bench({("off", 0): {}})
        read = Read((), ())
        with suppress(PluginRaised, PluginHung, PluginMisshapen), limited():
            instance = bench.new()
            with watching() as watched:
                try:
                    with suppress(PluginRaised):
                        call("validate_params", self.plugin.validate_params, watched.params)
                    self.begin(instance, watched.params)
                finally:
                    read = watched.read()
        return read

    def acts(self, keywords: Keywords) -> bool:
        """Tell whether a request with these parameters, alone, ever gets a changed row."""
        choice: Choice = ("on", 0)
        try:
            bench = self.bench({choice: keywords})
            with limited(WATCH_LIMIT):
                call("validate_params", self.plugin.validate_params, bench.params(choice))
                return any(
                    not torch.equal(before, after)
                    for before, after in self.rows_alone(bench, choice, WATCHED_STEPS)
                )
        except (PluginHung, PluginMisshapen):
            return True  # a request that the plugin hangs or answers wrongly for has switched it on
        except (PluginRaised, UsageError):
            return False


def find(section: Mapping[str, Any], *, origin: str | None, seed: int, tried: Tried) -> Parameters:
    """Return the parameters a plugin is tried with, whatever the plugin does meanwhile.

    Args:
        section: the plugin's part of its profile.
        origin: where the profile is.
        seed: of what strategies give.
        tried: how the plugin is tried.

    Raises:
        UsageError: the profile's keywords are not those of ``SamplingParams``.

    """
    try:
        return _find(section, origin, seed, tried)
    except (PluginRaised, PluginHung):
        # The rules will say so; here it means only that nothing could be found out.
        on, off = section.get("on", []), section.get("off", [{}])
        return Parameters(
            origin or "none", bool(on), tuple(on), tuple(off), tuple(section.get("invalid", ()))
        )


def _find(section: Mapping[str, Any], origin: str | None, seed: int, tried: Tried) -> Parameters:
    on = _drawn(section.get("on", ()), seed)
    off = _drawn(section.get("off", ()), seed)
    invalid = _drawn(section.get("invalid", ()), seed)
    for name, entries in (("on", on), ("off", off)):
        for index, keywords in enumerate(entries):
            sampling_params(keywords, f"{name}[{index}]")
    keys: tuple[str, ...] = ()
    declared = bool(on)
    if not on:
        read = tried.watch()
        keys, on = read.keys, _discover(read, tried.acts)
    if "off" not in section and not tried.acts({}):
        off = [{}]
    return Parameters(
        origin=origin or "found by watching the plugin",
        declared=declared,
        on=tuple(on),
        off=tuple(off),
        invalid=tuple(invalid),
        keys=keys,
    )


def starter(keys: Sequence[str]) -> str:
    """Return a profile to start from, for a plugin that reads these ``extra_args`` keys."""
    arguments = ", ".join(f"{key} = 1" for key in keys) or "your_key = 1"
    return f"[logits-processor]\non = [{{ extra_args = {{ {arguments} }} }}]\noff = [{{}}]\n"


@attrs.frozen
class Read:
    """What a plugin read of a request."""

    keys: tuple[str, ...]  #: ``extra_args`` keys
    fields: tuple[str, ...]  #: fields of ``SamplingParams`` that may switch it on


@attrs.define
class Watching:
    """A request that notes what is read of it."""

    params: SamplingParams
    _keys: set[str]
    _fields: set[str]

    def read(self) -> Read:
        """Return what was read so far."""
        fields = tuple(field for field in LIKELY_FIELDS if field in self._fields)
        return Read(tuple(sorted(self._keys)), fields)


@contextmanager
def watching() -> Iterator[Watching]:
    """Make a request that notes, within the block, which of its keys and fields are read."""
    global _fields_read  # noqa: PLW0603 - see where it is defined
    keys: set[str] = set()
    fields: set[str] = set()
    # A key that nobody reads, so that a plugin does not take empty arguments for none.
    params = _WatchedParams(extra_args=_WatchedArguments({"unrelated": 1}, keys))
    _fields_read = fields
    try:
        yield Watching(params, keys, fields)
    finally:
        _fields_read = None


class _WatchedArguments(dict[str, Any]):
    """``extra_args`` that note which keys are read."""

    def __init__(self, values: Keywords, read: set[str]) -> None:
        super().__init__(values)
        self._read = read

    def __getitem__(self, key: str) -> Any:  # noqa: ANN401 - any value
        self._read.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:  # noqa: ANN401 - any value
        self._read.add(key)
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        self._read.add(str(key))
        return super().__contains__(key)

    def __deepcopy__(self, memo: object) -> _WatchedArguments:
        return self


class _WatchedParams(SamplingParams):
    """Parameters that note which fields are read."""

    def __getattribute__(self, name: str) -> Any:  # noqa: ANN401 - any value
        if _fields_read is not None:
            _fields_read.add(name)
        return super().__getattribute__(name)


#: Where :class:`_WatchedParams` notes reads; a module variable because a struct has no room.
_fields_read: set[str] | None = None


def _discover(read: Read, acts: Callable[[Keywords], bool]) -> list[Keywords]:
    """Return parameters that switch a plugin on, made of what it reads."""
    if acts({}):
        return [{}]
    candidates = [entry for field in read.fields for entry in LIKELY_FIELDS.get(field, ())]
    candidates += [{"extra_args": {key: value}} for key in read.keys for value in LIKELY]
    if len(read.keys) > 1:
        candidates += [{"extra_args": dict.fromkeys(read.keys, value)} for value in LIKELY]
    found: list[Keywords] = []
    for keywords in candidates:
        if acts(keywords):
            found.append(keywords)
            if len(found) == MOST_FOUND:
                break
    return found


def _drawn(entries: Any, seed: int) -> list[Keywords]:  # noqa: ANN401 - a profile's value
    """Return the entries of a profile; a strategy gives a dozen of its examples."""
    if not isinstance(entries, SearchStrategy):
        return [dict(entry) if hasattr(entry, "items") else entry for entry in entries]
    import hypothesis

    found: list[Keywords] = []

    @hypothesis.seed(random.Random(seed).getrandbits(32))
    @hypothesis.settings(
        max_examples=DRAWN,
        database=None,
        phases=[hypothesis.Phase.generate],
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(entries)
    def draw(keywords: Keywords) -> None:
        found.append(dict(keywords))

    draw()
    return found
