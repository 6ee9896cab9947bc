# SPDX-License-Identifier: Apache-2.0
"""A model class with what it is tried on: prompts that it processes, and items that are alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

import attrs
import torch
from vllm.entrypoints.serve.exception_handling.error_response import create_error_response
from vllm.exceptions import VLLMClientError

from conformance.comparison import plain, shortened
from conformance.expectation import Expected, OracleFailed
from conformance.missing import way_out
from conformance.multimodal.processor.host import Host, Processed
from conformance.multimodal.processor.prompts import Prompt, alone, side_by_side
from conformance.multimodal.processor.stock import Item, Stock, mixed, offered, promised, unusual
from conformance.oracle import asked
from conformance.raised import said

#: What an author's function calls the number of placeholders, where it says more than that.
COUNT = "placeholders"

#: Tokens that stand for text.
WORDS = 40

#: Tokens of text that a part of a prompt may have, so that no two parts share one.
STRIDE = 3

#: Texts around an item, by which one finds what a template writes for it.
_AROUND = ("before", "after")

#: Rows may differ by this share of the largest number in them: torch adds up in another order in
#: another batch.
RELATIVE = 1e-3


#: What vLLM answers with HTTP 400; up to 0.22 all of them were ``ValueError``.
_REFUSALS = (ValueError, VLLMClientError)


class CannotBuild(Exception):
    """vLLM cannot make a processor, or a model, of the class."""


@attrs.frozen(eq=False)
class Answer:
    """What came of a call: a value, or what was raised."""

    value: Any = None
    error: Exception | None = None

    @property
    def good(self) -> bool:
        """Tell whether nothing was raised."""
        return self.error is None

    @property
    def refused(self) -> bool:
        """Tell whether the plugin or vLLM refused it on purpose."""
        return isinstance(self.error, _REFUSALS)

    @property
    def lacks(self) -> bool:
        """Tell whether a package is missing, such as one that resamples sounds: nobody's fault."""
        return isinstance(self.error, ImportError)

    @property
    def of_client(self) -> bool:
        """Tell whether vLLM answers the client with an error of its own, not of the server."""
        if self.error is None:
            return False
        found = create_error_response(self.error).error
        return int(found.code) < HTTPStatus.INTERNAL_SERVER_ERROR

    def describe(self) -> str:
        """Say what was raised."""
        assert self.error is not None
        return f"raised {said(self.error)}"


def answer(call: Callable[[], Any]) -> Answer:
    """Call and return what came of it."""
    try:
        return Answer(call())
    except Exception as error:  # noqa: BLE001 - an answer like any other
        return Answer(error=error)


@attrs.define(eq=False)
class Bench:
    """A model class, its host, and what it processes."""

    host: Host
    stock: Stock
    checkpoint: str  #: as the profile names it, or the tiny model that was found by the class
    origin: str | None  #: of the profile
    seed: int
    limits: Mapping[str, int] = attrs.field(factory=dict)  #: items of a modality in a prompt
    supported: Mapping[str, int | None] = attrs.field(factory=dict)
    #: Items that are not taken, with what was said of them.
    refused: dict[Item, str] = attrs.field(factory=dict)
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
    _words: tuple[int, ...] | None = None
    _worn: Any = None
    _processed: dict[Prompt, Answer] = attrs.field(factory=dict)
    _rows: dict[tuple[Item, int], Answer] = attrs.field(factory=dict)
    _encoded: dict[Prompt, Answer] = attrs.field(factory=dict)
    _placeholders: dict[tuple[str, int], str | None] = attrs.field(factory=dict)
    _templates: dict[str, str | None] = attrs.field(factory=dict)

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
            UsageError: the profile's items or options are none.

        """
        named = tuple(section.get("items", {}))
        try:
            host = Host.open(model, folder, named)
        except Exception as error:
            raise CannotBuild(said(error)) from error
        # That the profile is well-formed is to be known before anything is judged.
        offered(section, (), origin)
        expected = section.get("expected")
        if isinstance(expected, Expected):
            expected.load()
        else:
            expected = None
        return cls(host, Stock({}), name, origin, seed, expected=expected)

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
        self.promised = tuple(promised(section, self.stock.items, self.origin))
        self._sort_out()
        self.unusual = tuple(map(self.as_taken, unusual(self.stock.items)))
        self.mixed = tuple(self._mixed())

    def _mixed(self) -> Iterator[Prompt]:
        """Yield prompts with as many items as are allowed, each of another size and form."""
        for modality in self.stock.items:
            for items in mixed(modality):
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
            elif found.refused or self._wants(found):
                self.refused[item] = found.describe()
            else:
                self.failing[item] = found.describe()
        return tuple(good)

    def _wants(self, found: Answer) -> bool:
        """Tell whether what was raised wants a package that is not on this machine."""
        error, module = found.error, self.host.cls.__module__
        return isinstance(error, ImportError) and way_out(error, module, None) is not None

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

    def words(self) -> tuple[int, ...]:
        """Return tokens that stand for themselves, to tell texts from placeholders."""
        if self._words is None:
            tokenizer = self.host.tokenizer()
            special = set(tokenizer.all_special_ids) | set(self._placeholder_tokens())
            plain = (
                token
                for text, token in sorted(tokenizer.get_vocab().items(), key=lambda one: one[1])
                if token not in special
                and text.isascii()
                and text.isalpha()
                and tokenizer.encode(text, add_special_tokens=False) == [token]
            )
            self._words = tuple(token for token, _ in zip(plain, range(WORDS), strict=False))
        return self._words

    def _placeholder_tokens(self) -> list[int]:
        found: list[int] = []
        for modality in self.supported:
            text = self.placeholder(modality, 1)
            if text:
                found += self.host.tokenizer().encode(text, add_special_tokens=False)
        return found

    def placeholder(self, modality: str, number: int) -> str | None:
        """Return the text that stands for an item; None where nothing says what it is."""
        key = (modality, number)
        if key not in self._placeholders:
            self._placeholders[key] = self._placeholder(modality, number)
        return self._placeholders[key]

    def _placeholder(self, modality: str, number: int) -> str | None:
        # The text that the model is profiled with has what an item needs, if it needs anything.
        dummy = answer(lambda: self.processor().dummy_inputs.get_dummy_text({modality: 1}))
        profiled = dummy.value if dummy.good and isinstance(dummy.value, str) else None
        said = self.in_chats(modality, number)
        if profiled is None or profiled == said:
            return said
        if said is None or (not self._works(modality, said) and self._works(modality, profiled)):
            return self._bare(modality, profiled)
        return said

    def _bare(self, modality: str, text: str) -> str:
        """Return what of a text an item needs: ordinary words around it are like any other text.

        Of a processor that inserts, nothing of it is needed.
        """
        tokenizer = self.host.tokenizer()
        tokens = list(tokenizer.encode(text, add_special_tokens=False))
        known = {*tokenizer.all_special_ids, *tokenizer.get_added_vocab().values()}
        for end, rest in ((0, slice(1, None)), (-1, slice(-1))):
            while tokens and tokens[end] not in known:
                shorter = str(tokenizer.decode(tokens[rest]))
                if not self._works(modality, shorter):
                    break
                tokens, text = tokens[rest], shorter
        return text

    def in_chats(self, modality: str, number: int) -> str | None:
        """Return the text that stands for an item in chats; None where there is none.

        A template of the checkpoint that takes parts of messages writes it itself.
        """
        if (templated := self.templated(modality)) is not None:
            return templated
        found = answer(lambda: self.host.cls.get_placeholder_str(modality, number))
        return found.value if found.good and isinstance(found.value, str) else None

    def templated(self, modality: str) -> str | None:
        """Return what the checkpoint's template writes for an item; None where it is nothing."""
        if modality not in self._templates:
            before, after = _AROUND
            parts = [{"type": "text", "text": before}, {"type": modality}]
            content = [*parts, {"type": "text", "text": after}]
            chat = [{"role": "user", "content": content}]
            tokenizer = self.host.tokenizer()
            found = answer(lambda: tokenizer.apply_chat_template(chat, tokenize=False))
            written = str(found.value) if found.good else ""
            # A template for plain texts writes the list of parts as it is.
            whole = before in written and after in written and str(content) not in written
            text = written.partition(before)[2].partition(after)[0] if whole else ""
            self._templates[modality] = text or None
        return self._templates[modality]

    def _works(self, modality: str, text: str) -> bool:
        """Tell whether any item is processed with this text for it."""
        tokens = self.host.tokenizer().encode(text, add_special_tokens=False)
        items = self.stock.items.get(modality, ())
        return any(
            answer(
                lambda item=item: self.host.process(  # type: ignore[misc]
                    self.processor(), list(tokens), {modality: [item.make()]}, {}
                )
            ).good
            for item in items[:2]
        )

    def text(self, place: int, count: int) -> list[int]:
        """Return the tokens of a text at some place of a prompt."""
        words = self.words()
        return [words[(place * STRIDE + index) % len(words)] for index in range(count)]

    def tokens(self, prompt: Prompt) -> list[int]:
        """Return a prompt as tokens, before it is processed."""
        tokenizer = self.host.tokenizer()
        found: list[int] = []
        places = iter(prompt.places())
        for place, part in enumerate(prompt.parts):
            if isinstance(part, int):
                found += self.text(place, part)
            else:
                modality, index = next(places)
                text = self.placeholder(modality, index + 1) or ""
                found += tokenizer.encode(text, add_special_tokens=False)
        return found

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
            self._rows[key] = found if not found.good else self.encoded(found.value, item)
        return self._rows[key]

    def encoded(self, processed: Processed, item: Item) -> Answer:
        """Encode an item that was processed alone."""
        one = [(item.modality, processed.data[item.modality][0])]
        return answer(lambda: self.host.encode(one)[0])

    def encode(self, prompt: Prompt) -> Answer:
        """Return the rows of a prompt's items, encoded together; in the order of the prompt."""
        if prompt not in self._encoded:
            found = self.processed(prompt)
            if found.good:
                data = found.value.data
                items = [(name, data[name][index]) for name, index in prompt.places()]
                found = answer(lambda: self.host.encode(items))
            self._encoded[prompt] = found
        return self._encoded[prompt]

    def usable(self, prompt: Prompt) -> bool:
        """Tell whether each item of a prompt is taken alone, with the prompt's options."""
        return all(self.alone(item, prompt.options).good for item in prompt.items)

    def counts(self, prompt: Prompt) -> list[int]:
        """Return the number of tokens for embeddings of each item of a processed prompt."""
        ranges = self.processed(prompt).value.ranges
        return [ranges[name][index].count for name, index in prompt.places()]

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


def outline(value: object) -> Any:  # noqa: ANN401 - a number of placeholders, or data
    """Return what tells data from others: all of their numbers take too long to compare."""
    if not isinstance(value, torch.Tensor):
        return plain(value)
    return [list(value.shape), float(value.double().sum())]


def same_rows(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Tell whether two tensors are the same but for how torch adds up."""
    if one.shape != other.shape:
        return False
    if torch.equal(one, other):
        return True
    scale = max(float(one.abs().max()), float(other.abs().max()), 1e-6) if one.numel() else 1.0
    return bool(torch.allclose(one, other, rtol=0.0, atol=RELATIVE * scale, equal_nan=True))


def same_data(one: object, other: object) -> bool:
    """Tell whether what a processor made of an item is the same as another time."""
    if one is other:
        return True
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        if one.dtype != other.dtype or one.shape != other.shape:
            return False
        return (
            same_rows(one.float(), other.float()) if one.is_floating_point() else one.equal(other)
        )
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same_data(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same_data, one, other))
    return bool(one == other)


def told_apart(one: Any, other: Any) -> tuple[str, str]:  # noqa: ANN401 - whatever processors return
    """Say of two values by what they differ: their type, shape, device, or the first number."""
    for said_of in (_type, _shape, _device):
        left, right = said_of(one), said_of(other)
        if left != right:
            return left, right
    if isinstance(one, torch.Tensor):
        flat, rest = one.detach().cpu().flatten(), other.detach().cpu().flatten()
        # The first of those that differ most: some may differ by how torch adds up.
        place = int((flat.double() - rest.double()).abs().nan_to_num(torch.inf).argmax())
        return f"{flat[place].item():.6g} at {place}", f"{rest[place].item():.6g} at {place}"
    if isinstance(one, dict | list | tuple):
        entries = one.keys() | other.keys() if isinstance(one, dict) else range(len(one))
        for key in sorted(entries, key=str):
            if isinstance(one, dict) and not (key in one and key in other):
                return tuple(f"with{'' if key in each else 'out'} {key!r}" for each in (one, other))  # type: ignore[return-value] # two
            if not same_data(one[key], other[key]):
                left, right = told_apart(one[key], other[key])
                return f"{left} in [{key!r}]", f"{right} in [{key!r}]"
    return shortened(one), shortened(other)


def _type(value: object) -> str:
    dtype = getattr(value, "dtype", None)
    return f"of type {type(value).__name__ if dtype is None else dtype}"


def _shape(value: object) -> str:
    if isinstance(value, list | tuple):
        return f"of length {len(value)}"
    return f"of shape {tuple(getattr(value, 'shape', ()))}"


def _device(value: object) -> str:
    return f"on {getattr(value, 'device', None)}"


def of_item(item: Any) -> dict[str, Any]:  # noqa: ANN401 - `MultiModalKwargsItem`
    """Return the plain data of an item."""
    found: dict[str, Any] = item.get_data()
    return found


def named(index: int) -> str:
    """Return the letter of an item."""
    return chr(ord("A") + index)


def letters(prompt: Prompt) -> Sequence[str]:
    """Return the letters of a prompt's items."""
    return [named(index) for index in range(len(prompt.items))]
