# SPDX-License-Identifier: Apache-2.0
"""Parameters that switch a plugin on and off: from the profile, or found by watching the plugin.

Without a profile, the plugin is given parameters that note what it reads,
and then values of likely types for what it read; those that change a row switch it on.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum, auto
from functools import partial
from itertools import chain, islice
from typing import Any

import attrs
import torch
from hypothesis.strategies import SearchStrategy
from vllm.sampling_params import SamplingParams

from conformance.expectation import OracleFailed
from conformance.history import Choice
from conformance.interface import placeholders
from conformance.interruption import PluginHung, limited
from conformance.logits.branches import OUTPUTS, constants, told
from conformance.logits.calls import PluginMisshapen, PluginRaised, call
from conformance.logits.meaning import Meaning
from conformance.logits.neighbours import neighbours
from conformance.logits.requests import LAST_SPECIAL, Stock, integers, sampling_params
from conformance.logits.rows import RowsAlone
from conformance.logits.waiting import NOTHING, Found, Observed, declared, found_in
from conformance.logits.watching import LIKELY_FIELDS, WHOLE, Read, names, noting, watching
from conformance.search import examples
from conformance.settings import UsageError

Keywords = dict[str, Any]

#: Parameter sets that are enough, when they have to be found out.
MOST_FOUND = 3

#: How often it is said to a plugin what was found, for it to look for more.
ROUNDS = 3

#: Seconds that one try may take; whether the plugin hangs is for the rules to say.
WATCH_LIMIT = 5.0

#: Seconds in which every token is said to a plugin that does nothing.
SWEEP_LIMIT = 20.0

#: How many parameter sets a strategy of a Python profile contributes.
DRAWN = 12

#: A key that no plugin reads, so that none takes empty arguments for no arguments.
UNRELATED: Keywords = {"unrelated": 1}

#: Another such key.
_UNKNOWN = "unknown"

#: Rows of a request that the author's function is asked for before anything is played.
ASKED = 3

#: How often a plugin is watched reading a table under a key.
MOST_INNER = 4

#: Names in a source that are tried as keys.
MOST_NAMES = 16

#: Values of likely types for an ``extra_args`` key whose meaning is unknown.
LIKELY: tuple[Any, ...] = (67, 5, 1, 0.5, 2.0, True, "a", [5, 67], [[5, 67]])


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

    def document(self) -> dict[str, Any]:
        """Return the effective profile, as certificates show it."""
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


class Reaction(Enum):
    """What a plugin does with a request."""

    NOTHING = auto()
    ACTS = auto()
    RAISES = auto()


@attrs.frozen
class Tried:
    """How a plugin is tried while it is found out what switches it on."""

    plugin: type[Any]
    #: Makes the bench of the generation, for parameter sets and what the plugin waits for.
    bench: Callable[[Mapping[Choice, Keywords], Found], Any]
    begin: Callable[[Any, SamplingParams], object]  #: gives a request to an instance
    rows_alone: RowsAlone
    #: Serves a request with a parameter set alone, whose prompt and outputs hold what was found.
    observe: Callable[[Any, Choice], Observed]
    rows_beside: tuple[RowsAlone, ...] = ()  #: those of a request that is not alone
    waits: Found = NOTHING

    def watch(self, arguments: Keywords) -> Read:
        """Return what the plugin reads of a request with these ``extra_args``."""
        bench = self.bench({("off", 0): {}}, self.waits)
        read = Read((), ())
        with suppress(PluginRaised, PluginHung, PluginMisshapen), limited(WATCH_LIMIT):
            instance = bench.new()
            with watching(arguments) as watched:
                try:
                    with suppress(PluginRaised):
                        call("validate_params", self.plugin.validate_params, watched.params)
                    self.begin(instance, watched.params)
                finally:
                    read = watched.read()
        return read

    def named_by(self, section: Mapping[str, Any]) -> Found:
        """Return the tokens that a profile names.

        Raises:
            UsageError: they are none of the model's.

        """
        if not {"tokens", "outputs", "prompts"} & section.keys():
            return NOTHING
        bench = self.bench({}, NOTHING)

        def encode(text: str) -> list[int]:
            try:
                from vllm.tokenizers import get_tokenizer
            except ImportError:  # before vLLM 0.29
                from vllm.transformers_utils.tokenizer import get_tokenizer

            tokenizer = get_tokenizer(bench.model)
            return [int(token) for token in tokenizer.encode(text, add_special_tokens=False)]

        return declared(section, range(bench.vocabulary), encode)

    def waiting(self, sets: Sequence[Keywords]) -> Found:
        """Return what the plugin waits for when requests have these parameters.

        What is found is said to it, until it looks for nothing new.
        """
        found = self.waits
        # What requests name is among their tokens, where it is not too much.
        said = self.bench({("on", n): keywords for n, keywords in enumerate(sets)}, found).tokens
        for _ in range(ROUNDS):
            more = found
            for keywords in sets:
                choice: Choice = ("on", 0)
                try:
                    bench = self.bench({choice: keywords}, more)
                    with limited(WATCH_LIMIT):
                        observed = self.observe(bench, choice)
                except PluginHung:
                    return more  # once is enough to wait for
                except (PluginRaised, PluginMisshapen, UsageError):
                    continue
                ids = range(LAST_SPECIAL + 1, bench.vocabulary)
                own = {*integers(keywords)}.intersection(said)
                more = more.and_(found_in(observed, set(ids).difference(own)))
            if more == found:
                break
            found = more
        return found

    def branching(self, sets: Sequence[Keywords]) -> Found:
        """Return what the plugin waits for, with tokens at which it goes another way.

        Those are looked for with each parameter set that is admitted and changes no row.
        """
        path = getattr(sys.modules.get(self.plugin.__module__), "__file__", None)
        if path is None or not self.waits.reads:
            return self.waits
        choice: Choice = ("on", 0)
        for keywords in sets:
            if self.reaction(keywords) is not Reaction.NOTHING:
                continue
            bench = self.bench({choice: keywords}, self.waits)
            ids = range(LAST_SPECIAL + 1, bench.vocabulary)
            known = constants(self.plugin, path)
            likely = [each for each in known if isinstance(each, int) and each in ids]

            def rows(outputs: Sequence[int], bench: Any = bench) -> Iterator[tuple[Any, Any]]:  # noqa: ANN401 - of a generation
                return self.rows_alone(bench, choice, len(outputs) + 1, outputs)

            with suppress(PluginHung, PluginRaised), limited(SWEEP_LIMIT):
                script = bench.words.script[:OUTPUTS]
                if found := told(rows, script, dict.fromkeys((*likely, *ids)), path):
                    return self.waits.and_(Found(found))
        return self.waits

    def within(self, key: str) -> list[str]:
        """Return the keys that the plugin reads of a table under a key."""
        table = dict(UNRELATED)
        for _ in range(MOST_INNER):
            # Where a key is missing the plugin may raise, and read the next one another time.
            inner: set[str] = set()
            self.watch({key: noting(table, inner)})
            if not (new := inner - table.keys() - {WHOLE}):
                break
            table |= dict.fromkeys(sorted(new), 1)
        return [key for key in table if key not in UNRELATED]

    def named(self) -> list[str]:
        """Return keys that the plugin's source names, and that it takes notice of.

        One that copies its arguments, or hands them on, cannot be watched reading them.
        """
        unknown = [self.reaction({"extra_args": {_UNKNOWN: value}}) for value in LIKELY]
        return [
            name
            for name in islice(names(self.plugin), MOST_NAMES)
            if any(
                self.reaction({"extra_args": {name: value}}) is not expected
                for value, expected in zip(LIKELY, unknown, strict=True)
            )
        ]

    def acts(self, keywords: Keywords) -> bool:
        """Tell whether a request with these parameters, alone, ever gets a changed row."""
        return self.reaction(keywords) is Reaction.ACTS

    def reaction(self, keywords: Keywords) -> Reaction:
        """Return what the plugin does with a request with these parameters, alone."""
        try:
            return Reaction.ACTS if self.changes(keywords) else Reaction.NOTHING
        except (PluginHung, PluginMisshapen):
            # A request that the plugin hangs or answers wrongly for has switched it on.
            return Reaction.ACTS
        except (PluginRaised, UsageError):
            return Reaction.RAISES

    def changes(self, keywords: Keywords) -> bool:
        """Tell whether a request with these parameters is admitted and gets a changed row.

        Raises:
            PluginRaised: the plugin refuses it, or raises.
            PluginHung: a call does not return.
            PluginMisshapen: what ``apply`` returns is no such tensor.
            UsageError: vLLM refuses it.

        """
        choice: Choice = ("on", 0)
        bench = self.bench({choice: keywords}, self.waits)
        script = bench.words.script
        prompts = [(), script, *self.waits.prompts] if self.waits.reads else [()]
        with limited(WATCH_LIMIT):
            call("validate_params", self.plugin.validate_params, bench.params(choice))
            return any(
                not torch.equal(before, after)
                for rows in (self.rows_alone, *self.rows_beside)
                for prompt in prompts
                for before, after in rows(bench, choice, len(script) + 1, script, prompt=prompt)
            )


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
        read = read.and_(Read(tuple(tried.named()), ()))
    read = attrs.evolve(read, keys=tuple(key for key in read.keys if key not in UNRELATED))
    tried = attrs.evolve(tried, waits=tried.waiting([*on[:MOST_FOUND], {}]))
    tables: dict[str, list[str]] = {}
    if not on:
        on, tables, tried = _found_out(read, tried)
    else:
        tried = attrs.evolve(tried, waits=tried.branching(on[:MOST_FOUND]))
    if "off" not in section and not tried.acts({}):
        off = [{}]
    near = neighbours(on, tried.changes)
    if meaning:
        _ask(meaning, tried.bench(_choices(on, off, near), tried.waits))
    return Parameters(
        origin=origin or "found by watching the plugin",
        declared=said,
        on=tuple(on),
        off=tuple(off),
        invalid=tuple(invalid),
        keys=read.keys,
        tables=tables,
        fields=read.fields,
        waits=tried.waits,
        near=near,
        meaning=meaning,
    )


def _ask(meaning: Meaning, bench: Stock) -> None:
    """Ask the author's function for rows of each request that is tried, twice.

    Raises:
        UsageError: it raises, returns no row, or another row the second time.

    """
    for choice in bench.parameters:
        whose = f"{choice[0]}[{choice[1]}]"
        for count in range(bench.lasting(ASKED, choice)):
            asked = partial(
                meaning.row,
                bench.params(choice),
                bench.prompt,
                [bench.words.said(number) for number in range(count)],
                bench.table[count],
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


def starter(keys: Sequence[str], tables: Mapping[str, Sequence[str]]) -> str:
    """Return a profile to start from, for a plugin that reads these ``extra_args`` keys.

    ``tables`` has those that it reads of a table under one of them.
    """
    arguments = placeholders(keys or ["your_key"], tables)
    return f"[logits-processor]\non = [{{ extra_args = {{ {arguments} }} }}]\noff = [{{}}]\n"


def _discover(read: Read, tried: Tried) -> tuple[list[Keywords], dict[str, list[str]]]:
    """Return parameters that switch a plugin on, made of what it reads, and its tables.

    Those are the keys that it reads of a table under a key; the first few parameters suffice, and
    nobody looks for tables then.
    """
    if tried.acts({}):
        return [{}], {}
    candidates = [entry for field in read.fields for entry in LIKELY_FIELDS.get(field, ())]
    candidates += [{"extra_args": {key: value}} for key in read.keys for value in LIKELY]
    if len(read.keys) > 1:
        candidates += [{"extra_args": dict.fromkeys(read.keys, value)} for value in LIKELY]
    found = [*islice(filter(tried.acts, candidates), MOST_FOUND)]
    if len(found) == MOST_FOUND:
        return found, {}
    tables = {key: inner for key in read.keys if (inner := tried.within(key))}
    within = (
        {"extra_args": {key: dict.fromkeys(inner, value)}}
        for key, inner in tables.items()
        for value in LIKELY
    )
    return [*islice(chain(found, filter(tried.acts, within)), MOST_FOUND)], tables


def _found_out(read: Read, tried: Tried) -> tuple[list[Keywords], dict[str, list[str]], Tried]:
    """Return what switches a plugin on, its tables, and how it is tried by then."""
    on, tables = _discover(read, tried)
    before = tried.waits.tokens
    tried = attrs.evolve(tried, waits=tried.waiting(on or _unknown(read)))
    if not on:
        tried = attrs.evolve(tried, waits=tried.branching(_unknown(read)))
        if tried.waits.tokens != before:
            on, tables = _discover(read, tried)
    return on, tables, tried


def _unknown(read: Read) -> list[Keywords]:
    """Return parameters for what a plugin reads, where nobody knows any that switch it on."""
    keys = [dict.fromkeys(read.keys, value) for value in LIKELY[:MOST_FOUND]] if read.keys else []
    return [{}, *({"extra_args": arguments} for arguments in keys)]


def _drawn(entries: Any, seed: int) -> list[Keywords]:  # noqa: ANN401 - a profile's value
    """Return the entries of a profile; a strategy gives a dozen of its examples."""
    if not isinstance(entries, SearchStrategy):
        return [dict(entry) if hasattr(entry, "items") else entry for entry in entries]
    return [*map(dict, examples(entries, DRAWN, random.Random(seed).getrandbits(32)))]
