# SPDX-License-Identifier: Apache-2.0
"""The items that prompts carry: what the profile names, or pictures, sounds and films drawn here.

An item is its description: ``84x28#3`` is the third picture of that size, ``0.31s#1`` a sound,
``0.31s#1*4`` the same four times as loud, and ``56x28x4#2`` a film of four frames, which with
``@2`` says that it has two in a second.  A sound may have another rate, as ``0.31s@8000``, and what
is behind a colon is a form (:mod:`conformance.multimodal.processor.forms`): ``84x28:RGBA``.
So a case file can hold it, and every use gets data of its own, which a plugin may spoil.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from conformance.multimodal.processor import forms
from conformance.rules import nearest
from conformance.settings import UsageError
from conformance.watching.comparison import shortened

#: Frames of a film in a second, where a film says it.
FRAMES = 2

#: What is tried where the profile names no items of a modality.
USUAL: Mapping[str, tuple[str, ...]] = {
    "image": ("28x28#1", "84x28#2", "28x112#3", "120x90#4", "61x33#5", "28x28#6"),
    "audio": ("0.1s#1", "0.31s#2", "0.05s#3", "0.6s#4", "0.1s#5"),
    "video": ("28x28x2#1", "56x28x4#2", "28x56x6#3", "28x28x2#4"),
}

#: Items of unusual sizes.
ODD: Mapping[str, tuple[str, ...]] = {
    "image": ("0x0:array", "1x1", "1x150", "400x2", "650x3", "29x27", "13x15"),
    # Without a sample, silent, almost silent, and too loud.
    "audio": ("0s", "0.0001s", "2.5s", "0.2s#6*0", "0.2s#7*0.001", "0.2s#8*4"),
    "video": ("28x28x1", "29x31x3"),
}

#: Characters of an item that messages show, where it is no description.
SHOWN = 40

#: Values that an option hardly has; none is so large that it only takes long.
BAD: tuple[Any, ...] = (None, -1, 0, 1.5, "nonsense", [], {"nonsense": 1})

#: An option that nobody knows.
UNKNOWN = "vllm_conformance_unknown"


@attrs.frozen
class Item:
    """One thing that a prompt carries."""

    modality: str
    text: str  #: the description
    #: What a Python profile gives for it, which no file can hold.
    value: Any = attrs.field(default=None, eq=False, repr=False)

    def make(self) -> Any:  # noqa: ANN401 - whatever vLLM takes for the modality
        """Return its data, new each time."""
        if self.value is not None:
            return copy.deepcopy(self.value)
        return forms.made(self.modality, self.text)

    def dated(self) -> Item:
        """Return the film that also says how many frames it has in a second; others as they are."""
        found = forms.TEXTS["video"].fullmatch(self.text) if self.modality == "video" else None
        if self.value is not None or found is None or found["rate"]:
            return self
        end = found.end("frames")
        return Item(self.modality, f"{self.text[:end]}@{FRAMES}{self.text[end:]}")


def item(modality: str, value: object, origin: str | None, number: int = 0) -> Item:
    """Return an item that a profile or a case file describes.

    Raises:
        UsageError: it is a text that describes none of its modality.

    """
    if not isinstance(value, str):
        numbered = f"number {number}"
        told = isinstance(value, int | float | list | tuple | dict)
        return Item(modality, f"{numbered}, {shortened(value, SHOWN)}" if told else numbered, value)
    described = forms.TEXTS.get(modality)
    if described is None or not described.fullmatch(value):
        known = {"image": "84x28#2:L", "video": "56x28x4@8#2:list", "audio": "0.5s@8000#2:stereo"}
        like = f", in this order as in {known[modality]!r}" if modality in known else ""
        raise UsageError(
            f"profile {origin}: [multimodal] items.{modality} has {value!r}, "
            f"which describes none{like}; a Python profile may hold objects."
        )
    return Item(modality, value)


@attrs.frozen(eq=False)
class Stock:
    """What prompts are made of."""

    items: Mapping[str, tuple[Item, ...]]  #: by modality
    #: ``mm_processor_kwargs``; the first is for prompts that give none.
    options: tuple[Mapping[str, Any], ...] = ({},)
    #: Those that the profile says are to be refused, and those that were made of the ones above.
    invalid: tuple[Mapping[str, Any], ...] = ()
    spoilt: tuple[Mapping[str, Any], ...] = ()

    def chosen(self, number: int) -> dict[str, Any]:
        """Return options by their number; bad ones are counted behind the good ones."""
        return dict((*self.options, *self.invalid, *self.spoilt)[number])

    @property
    def bad(self) -> range:
        """The numbers of the bad options."""
        count = len(self.options)
        return range(count, count + len(self.invalid) + len(self.spoilt))

    @property
    def everything(self) -> tuple[Item, ...]:
        """All items."""
        return tuple(one for items in self.items.values() for one in items)


def offered(section: Mapping[str, Any], modalities: Sequence[str], origin: str | None) -> Stock:
    """Return what a profile offers, and the usual items of modalities that it does not name.

    Raises:
        UsageError: the profile's items or options are none.

    """
    named = section.get("items", {})
    items: dict[str, tuple[Item, ...]] = {}
    for modality in dict.fromkeys((*modalities, *named)):
        values = named.get(modality, USUAL.get(modality, ()))
        if not isinstance(values, list | tuple):
            raise UsageError(
                f"profile {origin}: [multimodal] items.{modality} must be a list, not {values!r}."
            )
        items[modality] = tuple(
            item(modality, value, origin, number) for number, value in enumerate(values)
        )
    options, invalid = (section.get(name, ()) for name in ("options", "invalid_options"))
    for one in (*options, *invalid):
        if not hasattr(one, "items"):
            name = "options" if one in options else "invalid_options"
            raise UsageError(
                f"profile {origin}: [multimodal] {name} must hold tables, not {one!r}."
            )
    return Stock(items, ({}, *options), tuple(invalid), tuple(spoilt(options)))


def promised(
    section: Mapping[str, Any], items: Mapping[str, Sequence[Item]], origin: str | None
) -> Iterator[Item]:
    """Yield the items that a profile names, and one of each modality in the forms that it names.

    Raises:
        UsageError: no modality has a form.

    """
    for modality in section.get("items", {}):
        yield from items.get(modality, ())
    for name in section.get("forms", ()):
        if not any(name in of for of in forms.FORMS.values()):
            known = {each for of in forms.FORMS.values() for each in of}
            raise UsageError(
                f"profile {origin}: [multimodal] forms has {name!r}, which is no form of an item."
                + nearest(str(name), sorted(known))
            )
        for modality in items:
            if (text := forms.in_form(modality, name)) is not None:
                yield Item(modality, text)


def spoilt(options: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield options with values of another type or sign, and with a key that nobody knows."""
    values: dict[str, Any] = {}
    for one in options:
        values = {**one, **values}
    for key, value in values.items():
        for other in _others(value):
            yield {key: other}
    yield {UNKNOWN: 1}


def _others(value: Any) -> Iterator[Any]:  # noqa: ANN401 - of an option
    """Yield values unlike one, and the next to it; of a table also those with one such value."""
    yield from (other for other in BAD if other != value)
    if type(value) is int:
        yield value + 1  # may be as good; a table may not have it
    if hasattr(value, "items"):
        yield {**value, UNKNOWN: 1}
        for key, inner in value.items():
            yield from ({**value, key: other} for other in BAD if other != inner)


def unusual(modalities: Iterable[str]) -> tuple[Item, ...]:
    """Return items of unusual sizes, and items in all forms."""
    return tuple(
        Item(name, text)
        for name in modalities
        for text in (*ODD.get(name, ()), *forms.described(name))
    )


def mixed(modality: str) -> tuple[tuple[Item, ...], ...]:
    """Return items that differ from each other in size and in form, some for each prompt."""
    return tuple(
        tuple(Item(modality, text) for text in texts) for texts in forms.MIXED.get(modality, ())
    )


def alike(one: Item) -> Iterator[tuple[Item, Item]]:
    """Yield an item that is a list of numbers with each of others that are as long."""
    numbers = one.value
    if not isinstance(numbers, list | tuple) or not numbers[1:]:
        return
    if any(type(each) not in (int, float) for each in numbers):
        return
    other = [*numbers]
    other[len(other) // 2] += 1
    made = {
        "doubled": [2 * each for each in numbers],
        "backwards": [*numbers[::-1]],
        "with another number in the middle": other,
    }
    for how, other in made.items():
        yield one, Item(one.modality, f"{one.text}, {how}", other)
