# SPDX-License-Identifier: Apache-2.0
"""Trying a plugin with parameters: what it reads of a request, and what it does with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum, auto
from itertools import cycle, islice
from typing import Any

import attrs
import torch
from vllm.exceptions import VLLMValidationError
from vllm.sampling_params import SamplingParams

from conformance.inputs.history import Choice
from conformance.inputs.words import Words
from conformance.logits.branches import OUTPUTS, constants, told
from conformance.logits.calls import PluginMisshapen, PluginRaised, call
from conformance.logits.configuration import LONGEST_SAID, ROOM
from conformance.logits.requests import LAST_SPECIAL, integers
from conformance.logits.rows import RowsAlone
from conformance.logits.waiting import NOTHING, Found, Observed, declared, found_in
from conformance.logits.watching import WHOLE, Read, names, noting, watching
from conformance.plugin.files import source_of
from conformance.settings import UsageError
from conformance.watching.interruption import PluginHung, limited

Keywords = dict[str, Any]

#: How often it is said to a plugin what was found, for it to look for more.
ROUNDS = 3

#: Seconds that one try may take; whether the plugin hangs is for the rules to say.
WATCH_LIMIT = 5.0

#: Steps in which what is like a request of the profile must not raise, as long as histories are.
STEPS = 8

#: Seconds in which every token is said to a plugin that does nothing.
SWEEP_LIMIT = 20.0

#: Outputs in which a plugin may notice that they repeat themselves.
_REPEATING = 16

#: A key that no plugin reads, so that none takes empty arguments for no arguments.
UNRELATED: Keywords = {"unrelated": 1}

#: Another such key.
_UNKNOWN = "unknown"

#: How often a plugin is watched reading a table under a key.
MOST_INNER = 4

#: Names in a source that are tried as keys.
MOST_NAMES = 16


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
                more = more.and_(found_in(observed, set(ids).difference(own), bench.vocabulary))
            if more == found:
                break
            found = more
        return found

    def branching(self, sets: Sequence[Keywords]) -> Found:
        """Return what the plugin waits for, with what makes it go another way.

        That is how many outputs there are, in which order they repeat themselves, or one of the
        tokens.  It is looked for with each parameter set that is admitted and changes no row.
        """
        path = source_of(self.plugin)
        choice: Choice = ("on", 0)
        for keywords in sets:
            if self.reaction(keywords) is not Reaction.NOTHING:
                continue
            bench = self.bench({choice: keywords}, self.waits)
            if phrase := self._late(bench, choice) or self._repeated(bench, choice):
                return self.waits.and_(Found(phrases=(phrase,)))
            if path is None or not self.waits.reads:
                continue
            ids = range(LAST_SPECIAL + 1, bench.vocabulary)
            known = constants(self.plugin, path)
            likely = [each for each in known if isinstance(each, int) and each in ids]

            def rows(outputs: Sequence[int], bench: object = bench) -> Iterator[tuple[Any, Any]]:
                return self.rows_alone(bench, choice, len(outputs) + 1, outputs)

            with suppress(PluginHung, PluginRaised), limited(SWEEP_LIMIT):
                script = bench.words.script[:OUTPUTS]
                if found := told(rows, script, dict.fromkeys((*likely, *ids)), path):
                    return self.waits.and_(Found(found))
        return self.waits

    def _late(self, bench: Any, choice: Choice) -> tuple[int, ...]:  # noqa: ANN401 - of a generation
        """Return as many outputs as it takes until a row is changed; none where none ever is."""
        with suppress(PluginHung, PluginRaised, PluginMisshapen), limited(WATCH_LIMIT):
            return self._until(bench, choice, tuple(islice(cycle(bench.tokens), LONGEST_SAID)))
        return ()

    def _repeated(self, bench: Any, choice: Choice) -> tuple[int, ...]:  # noqa: ANN401 - as above
        """Return the outputs that repeat themselves in such an order that a row is changed."""
        with suppress(PluginHung, PluginRaised, PluginMisshapen), limited(WATCH_LIMIT):
            for order in bench.words.repeating:
                outputs = tuple(islice(cycle(order), _REPEATING))
                if phrase := self._until(bench, choice, outputs):
                    return phrase
        return ()

    def _until(
        self,
        bench: Any,  # noqa: ANN401 - as above
        choice: Choice,
        outputs: tuple[int, ...],
    ) -> tuple[int, ...]:
        """Return the first outputs after which a row is changed; none where none ever is."""
        rows = self.rows_alone(bench, choice, len(outputs) + 1, outputs)
        for said, (before, after) in enumerate(rows):
            if not torch.equal(before, after):
                return outputs[:said]
        return ()

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

    def named(self, values: Sequence[Any]) -> list[str]:
        """Return keys that the plugin's source names, and that it takes notice of.

        One that copies its arguments, or hands them on, cannot be watched reading them.
        """
        unknown = [self.reaction({"extra_args": {_UNKNOWN: value}}) for value in values]
        return [
            name
            for name in islice(names(self.plugin), MOST_NAMES)
            if any(
                self.reaction({"extra_args": {name: value}}) is not expected
                for value, expected in zip(values, unknown, strict=True)
            )
        ]

    def refusal(self, keywords: Keywords) -> str | None:
        """Return what the plugin says as it refuses a request; None where it does not."""
        error = self._raised(keywords)
        return None if error is None else str(error)

    def raises(self, keywords: Keywords) -> str | None:
        """Return what the plugin raises for a request, alone; None where it does not."""
        try:
            self.changes(keywords)
        except PluginRaised as error:
            return str(error)
        except (PluginHung, PluginMisshapen, UsageError):
            return None
        return None

    def refuses(self, keywords: Keywords) -> bool:
        """Tell whether the plugin refuses a request in the way that clients are told of.

        Whoever demands its arguments of every request does so of one without any.
        """
        error = self._raised(keywords)
        return error is not None and isinstance(error.error, ValueError | VLLMValidationError)

    def left_alone(self, keys: Sequence[str], values: Sequence[Any]) -> list[Keywords]:
        """Return a request that the plugin admits and does nothing for; none where none is found.

        It is one without arguments, or with a value of a likely type where that is refused.
        """
        if not self.refuses({}):
            return [] if self.acts({}) else [{}]
        likely = ({"extra_args": {key: value}} for key in keys for value in (*values, {}))
        return [*islice((one for one in likely if self.reaction(one) is Reaction.NOTHING), 1)]

    def _raised(self, keywords: Keywords) -> PluginRaised | None:
        """Return what ``validate_params`` raises for a request."""
        choice: Choice = ("on", 0)
        try:
            params = self.bench({choice: keywords}, self.waits).params(choice)
            with limited(WATCH_LIMIT):
                call("validate_params", self.plugin.validate_params, params)
        except PluginRaised as error:
            return error
        except (PluginHung, UsageError):
            return None
        return None

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
        with limited(WATCH_LIMIT):
            call("validate_params", self.plugin.validate_params, bench.params(choice))
            return any(
                not torch.equal(before, after)
                for rows in (self.rows_alone, *self.rows_beside)
                for prompt, piece in self._said(bench.words)
                for before, after in rows(bench, choice, len(piece) + 1, piece, prompt=prompt)
            )

    def serves(self, keywords: Keywords) -> bool:
        """Tell whether a request with these parameters gets a changed row, and raises in no step.

        Raises:
            PluginRaised: the plugin refuses it, or raises, in whatever step.
            PluginHung, PluginMisshapen, UsageError: as :meth:`changes`.

        """
        choice: Choice = ("on", 0)
        if not self.changes(keywords):
            return False
        bench = self.bench({choice: keywords}, self.waits)
        with limited(WATCH_LIMIT):
            for _ in self.rows_alone(bench, choice, bench.behind(STEPS, choice)):
                pass
        return True

    def _said(self, words: Words) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Yield the prompts, empty ones for that of the bench, and outputs of requests to try."""
        yield from (((), piece) for piece in words.pieces(LONGEST_SAID))
        if self.waits.reads:
            pieces = words.pieces(ROOM)
            yield from ((prompt, p) for p in pieces for prompt in (p, *self.waits.prompts))
