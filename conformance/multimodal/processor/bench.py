# SPDX-License-Identifier: Apache-2.0
"""A model class with what it is tried on: prompts that it processes, and items that are alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import attrs

from conformance.multimodal.processor import deployment
from conformance.multimodal.processor.answers import Answer, CannotBuild, answer
from conformance.multimodal.processor.host import Host
from conformance.multimodal.processor.processed import Processed, ranges_of
from conformance.multimodal.processor.prompts import Prompt, alone, side_by_side
from conformance.multimodal.processor.sameness import outline
from conformance.multimodal.processor.stock import (
    Item,
    Stock,
    alike,
    mixed,
    offered,
    promised,
    unusual,
)
from conformance.multimodal.processor.texts import Texts
from conformance.oracle import asked
from conformance.plugin.expectation import Expected, OracleFailed
from conformance.watching.comparison import plain, shortened
from conformance.watching.raised import said

#: What an author's function calls the number of placeholders, where it says more than that.
COUNT = "placeholders"


@attrs.define(eq=False)
class Bench:
    """A model class, its host, and what it processes."""

    host: Host
    stock: Stock
    texts: Texts
    checkpoint: str  #: as the profile names it, or the tiny model that was found by the class
    origin: str | None  #: of the profile
    seed: int
    limits: Mapping[str, int] = attrs.field(factory=dict)  #: items of a modality in a prompt
    supported: Mapping[str, int | None] = attrs.field(factory=dict)
    #: Items that are not taken, with what was said of them.
    refused: dict[Item, str] = attrs.field(factory=dict)
    #: Whether one of these was not taken for want of something on this machine.
    lacks: bool = False
    #: Items of unusual sizes and in all forms, many of which are refused.
    unusual: tuple[Item, ...] = ()
    #: Prompts whose items differ from each other in size and in form.
    mixed: tuple[Prompt, ...] = ()
    failing: dict[Item, str] = attrs.field(factory=dict)
    #: Whether films must say how many frames they have in a second.
    dates_films: bool = False
    #: Why there is no processor, and why its modalities are unknown.
    broken: str | None = None
    undeclared: str | None = None
    #: Items that the profile promises, by their descriptions or their forms.
    promised: tuple[Item, ...] = ()
    expected: Expected | None = None  #: the author's function, which counts placeholders
    #: What it said of items, with which options.
    told: dict[tuple[Item, int], int] = attrs.field(factory=dict)
    #: And what is to be in its data, by name.
    told_data: dict[tuple[Item, int], Mapping[str, Any]] = attrs.field(factory=dict)
    #: Arguments of the engine that the profile names.
    engine: Mapping[str, Any] = attrs.field(factory=dict)
    _worn: Any = None
    _processed: dict[Prompt, Answer] = attrs.field(factory=dict)
    _rows: dict[tuple[Item, int], Answer] = attrs.field(factory=dict)
    _encoded: dict[Prompt, Answer] = attrs.field(factory=dict)

    @classmethod
    def open(
        cls,
        model: type[Any],
        folder: Path,
        name: str,
        section: Mapping[str, Any],
        *,
        origin: str | None,
        seed: int,
    ) -> Bench:
        """Prepare for a model class.

        Raises:
            CannotBuild: vLLM refuses the class, or its checkpoint.
            UsageError: the profile's items, options or arguments of the engine are wrong.

        """
        named = tuple(section.get("items", {}))
        engine = deployment.arguments(section, origin)
        try:
            host = Host.open(model, folder, named, engine)
        except Exception as error:
            raise CannotBuild(said(error)) from error
        # That the profile is well-formed is to be known before anything is judged.
        offered(section, (), origin)
        expected = section.get("expected")
        if isinstance(expected, Expected):
            expected.load()
        else:
            expected = None
        texts = Texts(host, {})
        return cls(host, Stock({}), texts, name, origin, seed, expected=expected, engine=engine)

    def prepare(self, section: Mapping[str, Any]) -> None:
        """Ask the processor what it supports, and find out which items are taken.

        Raises:
            PluginHung: it did not return.

        """
        made = answer(self.host.processor)
        if not made.good:
            self.broken = f"making the processor {made.describe()}"
            return
        info = made.value.info
        found = answer(lambda: (dict(info.supported_mm_limits), dict(info.allowed_mm_limits)))
        if not found.good:
            self.undeclared = f"get_supported_mm_limits {found.describe()}"
            return
        self.supported, self.limits = found.value
        stock = offered(section, tuple(map(str, self.supported)), self.origin)
        # What the model does not support, it is not asked for.
        self.stock = attrs.evolve(stock, items={name: stock.items[name] for name in self.supported})
        self.texts = Texts(self.host, self.stock.items)
        self.promised = tuple(promised(section, self.stock.items, self.origin))
        self._sort_out()
        self.unusual = tuple(map(self.as_taken, unusual(self.stock.items)))
        self.mixed = tuple(self._mixed())

    def _mixed(self) -> Iterator[Prompt]:
        """Yield prompts with as many items as are allowed, each of another size and form."""
        for modality, named in self.stock.items.items():
            for items in (*mixed(modality), *chain.from_iterable(map(alike, named))):
                taken = [item for item in map(self.as_taken, items) if self.alone(item).good]
                several = taken[: self.limits[modality]]
                if len(several) > 1:
                    yield side_by_side(several)

    def _sort_out(self) -> None:
        """Keep the items apart that are not taken."""
        taken: dict[str, tuple[Item, ...]] = {}
        for modality, items in self.stock.items.items():
            allowed = items if self.limits.get(modality) else ()
            good = self._taken(allowed)
            dated = tuple(item.dated() for item in allowed)
            if not good and dated != allowed and all(item in self.refused for item in allowed):
                good = self._taken(dated)
                self.dates_films = bool(good)
            if good:
                taken[modality] = good
        self.stock = attrs.evolve(self.stock, items=taken)

    def _taken(self, items: Sequence[Item]) -> tuple[Item, ...]:
        """Return those items that are processed, and note what is said of the others."""
        good = []
        for item in items:
            found = self.processed(alone(item))
            if found.good:
                good.append(item)
            elif found.refused:
                self.refused[item] = found.describe()
            elif found.wants(self.host.cls.__module__) is not None:
                self.lacks = True
                self.refused[item] = found.describe()
            else:
                self.failing[item] = found.describe()
        return tuple(good)

    def as_taken(self, item: Item) -> Item:
        """Return an item in the form in which the processor takes those of its modality."""
        return item.dated() if self.dates_films else item

    def processor(self) -> Any:  # noqa: ANN401 - the plugin's processor
        """Make a processor.

        Raises:
            CannotBuild: the plugin raised.

        """
        made = answer(self.host.processor)
        if not made.good:
            raise CannotBuild(f"making the processor {made.describe()}") from made.error
        return made.value

    def worn(self, *, anew: bool = False) -> object:
        """Return a processor that has processed items of all kinds, with all options."""
        if self._worn is None or anew:
            self._worn = self.processor()
            for item in (*self.stock.everything, *self.unusual):
                for options in range(len(self.stock.options)):
                    self.process(alone(item, options), self._worn)
        return self._worn

    def tokens(self, prompt: Prompt) -> list[int]:
        """Return a prompt as tokens, before it is processed."""
        tokenizer = self.host.tokenizer()
        found: list[int] = []
        places = iter(prompt.places())
        for place, part in enumerate(prompt.parts):
            if isinstance(part, int):
                found += self.texts.text(place, part)
            else:
                modality, index = next(places)
                text = self.texts.placeholder(modality, index + 1) or ""
                found += tokenizer.encode(text, add_special_tokens=False)
        return found

    def handed_over(
        self,
        tokens: list[int],
        data: Mapping[str, Any],
        options: Mapping[str, Any] | None = None,
        *,
        names: Mapping[str, Sequence[str]] | None = None,
    ) -> Answer:
        """Return what a new processor makes of tokens, and of items that may have ids."""
        return answer(
            lambda: self.host.process(self.processor(), tokens, data, options or {}, names=names)
        )

    def process(
        self,
        prompt: Prompt,
        processor: object = None,
        cache: object = None,
    ) -> Answer:
        """Process a prompt, with a new processor if none is given."""
        processor = self.processor() if processor is None else processor
        options = self.stock.chosen(prompt.options)
        return answer(
            lambda: self.host.process(processor, self.tokens(prompt), prompt.data(), options, cache)
        )

    def processed(self, prompt: Prompt) -> Answer:
        """Return what a new processor makes of a prompt, asked once."""
        if prompt not in self._processed:
            self._processed[prompt] = self.process(prompt)
        return self._processed[prompt]

    def alone(self, item: Item, options: int = 0) -> Answer:
        """Return what a new processor makes of an item alone."""
        return self.processed(alone(item, options))

    def rows(self, item: Item, options: int = 0) -> Answer:
        """Return the rows of an item that is encoded alone."""
        key = (item, options)
        if key not in self._rows:
            found = self.alone(item, options)
            self._rows[key] = found if not found.good else self.encoded(found.value, item.modality)
        return self._rows[key]

    def encoded(self, processed: Processed, modality: str) -> Answer:
        """Encode the first item of a modality."""
        return answer(lambda: self.host.encode([(modality, processed.data[modality][0])])[0])

    def encode(self, prompt: Prompt) -> Answer:
        """Return the rows of a prompt's items, encoded together, asked once."""
        if prompt not in self._encoded:
            found = self.processed(prompt)
            self._encoded[prompt] = self.encode_again(prompt) if found.good else found
        return self._encoded[prompt]

    def encode_again(self, prompt: Prompt) -> Answer:
        """Encode the items of a prompt that is processed; rows come in the order of the prompt."""
        data = self.processed(prompt).value.data
        # The data of an item may be missing, as MM-10 says.
        return answer(
            lambda: self.host.encode([(name, data[name][index]) for name, index in prompt.places()])
        )

    def dummy(self, counts: Mapping[str, int]) -> Answer:
        """Return what vLLM profiles the model with, for so many items of each modality."""
        return answer(lambda: self.host.dummy(self.processor(), counts))

    def ready(self, prompt: Prompt) -> bool:
        """Tell whether a prompt is processed, and each of its items alone."""
        return self.usable(prompt) and self.processed(prompt).good

    def usable(self, prompt: Prompt) -> bool:
        """Tell whether each item of a prompt is taken alone, with the prompt's options."""
        return all(self.alone(item, prompt.options).good for item in prompt.items)

    def counts(self, prompt: Prompt) -> list[int]:
        """Return the number of tokens for embeddings of each item of a processed prompt."""
        return [one.count for one in ranges_of(prompt, self.processed(prompt).value)]

    def meant(self, item: Item, options: int) -> int | None:
        """Return how many placeholders an item is to have, or None where nobody says so.

        Raises:
            OracleFailed: the author's function raised, or gave no number, or another one when it
                was asked again.

        """
        key = (item, options)
        if key not in self.told and self.expected is not None:
            chosen = dict(self.stock.options[options])
            said: list[Any] = []

            def read(value: object) -> Any:  # noqa: ANN401 - whatever it returns
                said.append(value if isinstance(value, Mapping) else {COUNT: plain(value)})
                return {name: outline(each) for name, each in said[-1].items()}

            asked(self.expected, lambda: (item.make(),), read=read, options=chosen)
            count = said[-1].get(COUNT)
            if not isinstance(count, int):
                raise OracleFailed(
                    f"{self.expected} of the profile returned {shortened(count)} for "
                    f"{item.modality} {item.text}, and no number of placeholders"
                )
            self.told[key] = count
            self.told_data[key] = {name: said[-1][name] for name in said[-1] if name != COUNT}
        return self.told.get(key)

    def document(self) -> dict[str, Any]:
        """Return the effective profile, for the certificate."""
        return {
            "expected": self.expected and str(self.expected),
            "origin": self.origin or "none",
            "model": self.checkpoint,
            "items": {
                name: [one.text for one in items] for name, items in self.stock.items.items()
            },
            "options": [dict(one) for one in self.stock.options[1:]],
            "invalid_options": [dict(one) for one in self.stock.invalid],
            "promised": [one.text for one in self.promised],
        }
