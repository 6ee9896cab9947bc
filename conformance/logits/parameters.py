# SPDX-License-Identifier: Apache-2.0
"""Parameters that switch a plugin on and off: from the profile, or found by watching the plugin.

Without a profile, the plugin is given parameters that note what it reads,
and then values of likely types for what it read; those that change a row switch it on.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import torch
from hypothesis.strategies import SearchStrategy

from conformance.inputs.history import Choice, label
from conformance.interface import placeholders
from conformance.logits.calls import PluginRaised
from conformance.logits.configuration import LONGEST_SAID
from conformance.logits.guesses import LIKELY, MOST_FOUND, Guessed, guess
from conformance.logits.keywords import sampling_params
from conformance.logits.meaning import Meaning
from conformance.logits.neighbours import neighbours
from conformance.logits.requests import Stock
from conformance.logits.tried import UNRELATED, Keywords, Tried
from conformance.logits.waiting import NOTHING, Found
from conformance.logits.watching import Read, attributes, names
from conformance.plugin import missing
from conformance.plugin.expectation import OracleFailed
from conformance.search import examples
from conformance.settings import UsageError
from conformance.watching.interruption import PluginHung

#: How many parameter sets a strategy of a Python profile contributes.
DRAWN = 12

#: Why rules about requests that a plugin acts on say nothing about one that acts on none.
INERT = "the profile says that nothing switches it on"

#: Keys of a profile that say which model and which engine it is about.
DEPLOYED = ("tokenizer", "config", "additional_config")

#: What a plugin asks its configuration for, and the key of a profile that says it.
_WORDS = {"tokenizer": "tokenizer", "hf_config": "config", "additional_config": "additional_config"}

#: The profile of a plugin that acts on every request, once certain tokens are said.
_FOR_ALL = "[logits-processor]\non = [{}]\noff = []\noutputs = [[67, 5, 11]]\n"

#: Rows of a request that the author's function is asked for before anything is played.
ASKED = 3


@attrs.frozen
class Parameters:
    """The parameter sets that a plugin is tried with."""

    origin: str  #: where they come from, for reports
    declared: bool  #: whether the author said so, or the harness found them
    on: tuple[Keywords, ...]
    off: tuple[Keywords, ...]
    invalid: tuple[Keywords, ...]
    keys: tuple[str, ...] = ()  #: ``extra_args`` keys that the plugin read
    tables: Mapping[str, Sequence[str]] = attrs.field(factory=dict)  #: keys of a table under one
    fields: tuple[str, ...] = ()  #: fields of ``SamplingParams`` that it read
    waits: Found = NOTHING  #: tokens that it may be waiting for
    near: tuple[Keywords, ...] = ()  #: derived from ``on``: other numbers and lists
    meaning: Meaning | None = None  #: what the author says that it does to a row
    refused: str | None = None  #: what it said as it refused a guess, where none switched it on
    #: Whether the author says that nothing switches it on, and nothing that was tried did.
    inert: bool = False
    #: What the profile says of the deployment: the model, its configuration, names of variables.
    deployment: Mapping[str, Any] = attrs.field(factory=dict)

    def unknown_switch(self, plugin: type) -> str:
        """Say that no known request switches the plugin on, and what to write."""
        keys = ", ".join(self.keys)
        if not keys and (unset := missing.unset(plugin)):
            variables = "\n".join(f'{name} = "..."' for name in unset)
            return (
                f"nothing switched the plugin on; it asks for {', '.join(unset)}, which the "
                "environment has not: set it in a profile, such as\n[logits-processor]\non = [{}]\n"
                f"off = []\n[logits-processor.environment]\n{variables}"
            )
        refused = f"; {self.refused}" if self.refused else ""
        if not keys:
            return (
                "nothing switched the plugin on (it reads no extra_args, and changed no row of a "
                f"request with up to {LONGEST_SAID} outputs{refused}); give a profile with the "
                f"parameters, or the outputs, behind which it acts{self._asked(plugin)}, such as\n"
                f"{_FOR_ALL}"
            )
        tried = f"none of {', '.join(map(repr, LIKELY))} did"
        return (
            f"nothing switched the plugin on (it reads extra_args {keys}; {tried}{refused}); give "
            f"a profile with values that it knows{self._asked(plugin)}, such as\n"
            + starter(self.keys, self.tables, demanded={} not in self.off)
        )

    def _asked(self, plugin: type) -> str:
        """Say which of a deployment's settings the plugin speaks of, and the profile does not."""
        words = {*attributes(plugin), *names(plugin)}
        asked = [key for word, key in _WORDS.items() if word in words]
        asked = [key for key in asked if key not in self.deployment]
        return f", and the {' and '.join(asked)} that it asks for" if asked else ""

    def document(self) -> dict[str, Any]:
        """Return the effective profile, as certificates show it."""
        folder = self.deployment.get("tokenizer")
        return {
            "origin": self.origin,
            "on": list(self.on),
            "off": list(self.off),
            "near": list(self.near),
            "invalid": list(self.invalid),
            "keys": list(self.keys),
            "tables": {key: list(inner) for key, inner in self.tables.items()},
            "waits": self.waits.document(),
            "expected": self.meaning.document() if self.meaning else None,
            **self.deployment,
            **({"tokenizer": Path(folder).name} if folder else {}),
        }

    def choices(self) -> dict[Choice, Keywords]:
        """Return ``on`` and ``off`` under the names that histories use."""
        return _choices(self.on, self.off)

    def simulated(self) -> dict[Choice, Keywords]:
        """Return what the simulator plays: ``near`` as well, which costs engines too much."""
        return _choices(self.on, self.off, self.near)


def _choices(
    on: Sequence[Keywords], off: Sequence[Keywords], near: Sequence[Keywords] = ()
) -> dict[Choice, Keywords]:
    named: dict[Choice, Keywords] = {("on", index): k for index, k in enumerate(on)}
    named |= {("off", index): k for index, k in enumerate(off)}
    return named | {("near", index): k for index, k in enumerate(near)}


def find(section: Mapping[str, Any], *, origin: str | None, seed: int, tried: Tried) -> Parameters:
    """Return the parameters a plugin is tried with, whatever the plugin does meanwhile.

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
    meaning = Meaning.of(section)
    on = _drawn(section.get("on", ()), seed)
    off = _drawn(section.get("off", ()), seed)
    invalid = _drawn(section.get("invalid", ()), seed)
    for name, entries in (("on", on), ("off", off)):
        for index, keywords in enumerate(entries):
            sampling_params(keywords, f"{name}[{index}]")
    waits = tried.named_by(section)
    tried = attrs.evolve(tried, waits=waits)
    said = bool(on)
    read = tried.watch(UNRELATED)
    for keywords in on:
        if arguments := keywords.get("extra_args"):
            read = read.and_(tried.watch(arguments))
    if read.whole and set(read.keys) <= {*UNRELATED}:
        read = read.and_(Read(tuple(tried.named(LIKELY)), ()))
    read = attrs.evolve(read, keys=tuple(key for key in read.keys if key not in UNRELATED))
    tried = attrs.evolve(tried, waits=tried.waiting([*on[:MOST_FOUND], {}]))
    guessed = Guessed(tuple(on), {}, read.keys, tried)
    if not on:
        guessed = guess(read, tried)
        on, tried = [*guessed.on], guessed.tried
    else:
        tried = attrs.evolve(tried, waits=tried.branching(on[:MOST_FOUND]))
    if "off" not in section:
        # What acts late, or seldom, was not seen to, and is on all the same.
        off = [each for each in tried.left_alone(guessed.keys, LIKELY) if each not in on]
    near = neighbours(on, tried.serves)
    if meaning:
        _ask(meaning, tried.bench(_choices(on, off, near), tried.waits))
    return Parameters(
        origin=origin or "found by watching the plugin",
        declared=said,
        on=tuple(on),
        off=tuple(off),
        invalid=tuple(invalid),
        keys=guessed.keys,
        tables=guessed.tables,
        fields=read.fields,
        waits=tried.waits,
        near=near,
        meaning=meaning,
        refused=guessed.refused,
        # `on = []` alone may be a profile that nobody has filled in.
        inert="on" in section and bool({"off", "invalid"} & section.keys() and off and not on),
        deployment=_deployment(section),
    )


def _deployment(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a profile says of the deployment; values of variables may be secret."""
    said = {key: section[key] for key in DEPLOYED if key in section}
    variables = section.get("environment")
    return {**said, "environment": sorted(variables)} if variables else said


def _ask(meaning: Meaning, bench: Stock) -> None:
    """Ask the author's function for rows of each request that is tried, twice.

    Raises:
        UsageError: it raises, returns no row, or another row the second time.

    """
    for choice in bench.parameters:
        whose = label(choice)
        for count in range(bench.behind(ASKED, choice)):
            asked = partial(
                meaning.row,
                bench.params(choice),
                bench.prompt,
                [bench.words.said(number) for number in range(count)],
                bench.given(count)[0],
            )
            try:
                first, again = asked(), asked()
            except OracleFailed as error:
                raise UsageError(f"{error}, for {whose}.") from None
            if not torch.equal(first, again):
                raise UsageError(
                    f"{meaning.expected} of the profile returns another row when it is asked "
                    f"again, for {whose}."
                )


def starter(
    keys: Sequence[str], tables: Mapping[str, Sequence[str]], *, demanded: bool = False
) -> str:
    """Return a profile to start from, for a plugin that reads these ``extra_args`` keys.

    Args:
        keys: what it reads.
        tables: those that it reads of a table under one of them.
        demanded: whether it refuses a request without any.

    """
    arguments = placeholders(keys, tables)
    off = "[]" if demanded else "[{}]"
    return f"[logits-processor]\non = [{{ extra_args = {{ {arguments} }} }}]\noff = {off}\n"


def _drawn(entries: Any, seed: int) -> list[Keywords]:  # noqa: ANN401 - a profile's value
    """Return the entries of a profile; a strategy gives a dozen of its examples."""
    if not isinstance(entries, SearchStrategy):
        return [dict(entry) if hasattr(entry, "items") else entry for entry in entries]
    return [*map(dict, examples(entries, DRAWN, random.Random(seed).getrandbits(32)))]
