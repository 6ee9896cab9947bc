# SPDX-License-Identifier: Apache-2.0
"""Checks of the hashes under which vLLM files what was made of an item."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from PIL import Image

from conformance.findings import Finding, failed, inapplicable, passed
from conformance.multimodal.processor.answers import Answer, answer
from conformance.multimodal.processor.bench import Bench
from conformance.multimodal.processor.processed import Processed, of_item
from conformance.multimodal.processor.prompts import Prompt, alone, side_by_side
from conformance.multimodal.processor.sameness import same_data
from conformance.multimodal.processor.search import Trouble
from conformance.multimodal.processor.stock import Item
from conformance.multimodal.processor.trial import Trial
from conformance.verdict import Verdict
from conformance.watching.comparison import letter


def distinct(trial: Trial) -> Finding:
    """Items of which different things are made have different hashes."""
    bench = trial.bench
    count = 0
    for modality, items in bench.stock.items.items():
        forms = (item for item in bench.unusual if item.modality == modality)
        known = [*items, *_relatives(items[0]), *forms]
        made = [
            (item, bench.processed(alone(item)).value)
            for item in known
            if bench.processed(alone(item)).good
        ]
        for (one, left), (other, right) in combinations(made, 2):
            count += 1
            if left.hashes[modality] == right.hashes[modality] and not _same(left, right, modality):
                return failed(
                    f"the {modality} items {one.text!r} and {other.text!r} share the hash "
                    f"{left.hashes[modality][0][:12]}..., and are not the same",
                    count,
                )
        if found := _named_alike(bench, modality):
            return failed(found, count)
    return passed(count)


#: The ids that clients give items: they differ in one letter, at the end, in front, or by its case.
NAMES = (
    "album-0198c2a4-page-1",
    "album-0198c2a4-page-2",
    "blbum-0198c2a4-page-1",
    "Album-0198c2a4-page-1",
)


def _named_alike(bench: Bench, modality: str) -> str | None:
    """Say whether items with ids of their own share a hash among others; None where they do not."""
    items = bench.stock.items[modality][: min(bench.limits[modality], len(NAMES))]
    found = _named(bench, side_by_side(items), {modality: NAMES[: len(items)]})
    # A refusal, and a processor that has no use for them, harm nobody.
    if len(items) < 2 or not found.good or len(set(found.value.hashes[modality])) == len(items):  # noqa: PLR2004 - a pair
        return None
    return f"{len(items)} items of {modality} with ids of their own share a hash"


def _named(bench: Bench, prompt: Prompt, names: Mapping[str, Sequence[str]]) -> Answer:
    """Process a prompt whose client gives its items ids."""
    options = bench.stock.chosen(prompt.options)
    return bench.handed_over(bench.tokens(prompt), prompt.data(), options, names=names)


def _same(left: Processed, right: Processed, modality: str) -> bool:
    """Tell whether the same was made of two items."""
    return left.ranges == right.ranges and same_data(
        of_item(left.data[modality][0]), of_item(right.data[modality][0])
    )


def _relatives(item: Item) -> Iterator[Item]:
    """Yield items that are nearly the same as one, or have the same bytes."""
    data = item.make()
    if isinstance(data, Image.Image):
        yield from _pictures(item, data)
    elif item.modality == "audio" and isinstance(data, tuple):
        samples, rate = data
        changed = samples.copy()
        changed[-1] = -changed[-1] - 0.25
        yield Item("audio", f"{item.text}, last sample changed", (changed, rate))
        yield Item("audio", f"{item.text}, first half", (samples[: len(samples) // 2], rate))
        yield Item("audio", f"{item.text}, backwards", (samples[::-1].copy(), rate))
        yield Item("audio", f"{item.text}, at half the rate", (samples, rate // 2))
        quiet = np.concatenate([samples, np.zeros(len(samples), samples.dtype)])
        yield Item("audio", f"{item.text}, followed by silence", (quiet, rate))
    elif isinstance(data, np.ndarray):
        changed = data.copy()
        changed.flat[-1] ^= 255
        yield Item(item.modality, f"{item.text}, last value changed", changed)
        yield Item(item.modality, f"{item.text}, backwards", data[::-1].copy())
        if data.ndim == 4 and data.shape[1] != data.shape[2]:  # noqa: PLR2004 - frames
            turned = data.reshape(data.shape[0], data.shape[2], data.shape[1], data.shape[3])
            yield Item(item.modality, f"{item.text}, the same bytes turned", turned)


def _pictures(item: Item, picture: Image.Image) -> Iterator[Item]:
    pixels = np.asarray(picture).copy()
    changed = pixels.copy()
    changed[-1, -1] ^= 255
    middle = pixels.copy()
    middle[middle.shape[0] // 2, middle.shape[1] // 2] ^= 255
    turned = pixels.reshape(pixels.shape[0] // 2, pixels.shape[1] * 2, 3)
    yield Item("image", f"{item.text}, last pixel changed", Image.fromarray(changed))
    yield Item("image", f"{item.text}, middle pixel changed", Image.fromarray(middle))
    yield Item("image", f"{item.text}, transposed", picture.transpose(Image.Transpose.TRANSPOSE))
    yield Item("image", f"{item.text}, the same bytes twice as wide", Image.fromarray(turned))
    yield Item("image", f"{item.text}, grey", picture.convert("L"))
    for number in (1, 2):
        indexed = Image.fromarray(pixels[..., 0] % 4, mode=None).convert("P")
        indexed.putpalette([(number * 60 * index) % 256 for index in range(12)])
        yield Item("image", f"{item.text}, with palette {number}", indexed)


def steady(bench: Bench, prompt: Prompt) -> Trouble | None:
    """An item has the same hash each time, alone and among others."""
    found = bench.processed(prompt)
    if not found.good or not bench.usable(prompt):
        return None
    for index, (name, place) in enumerate(prompt.places()):
        own = bench.alone(prompt.items[index], prompt.options).value.hashes[name][0]
        if found.value.hashes[name][place] != own:
            return Trouble(f"item {letter(index)} has another hash here than alone", index)
    again = bench.process(prompt)
    if again.good and again.value.hashes != found.value.hashes:
        return Trouble("the same items have other hashes the second time")
    return None


def told_apart(trial: Trial) -> Finding:
    """What neither vLLM nor the processor tells apart has one hash."""
    found = trial.look(steady)
    if found.verdict is not Verdict.PASS:
        return found
    bench = trial.bench
    count = found.examples
    for modality in bench.stock.items:
        known: dict[str, tuple[Item, Processed]] = {}
        for item in (one for one in bench.unusual if one.modality == modality):
            made = bench.alone(item)
            own = _own(bench, item)
            if not (made.good and own.good):
                continue
            count += 1
            first, was = known.setdefault(own.value[modality][0], (item, made.value))
            if was.hashes != made.value.hashes and _same(was, made.value, modality):
                return failed(
                    f"the {modality} items {first.text!r} and {item.text!r} arrive as the same "
                    "and become the same, and have different hashes",
                    count,
                )
    return passed(count)


def _own(bench: Bench, item: Item) -> Answer:
    data = alone(item).data()
    return answer(lambda: bench.host.own_hashes(bench.processor(), data))


def by_options(trial: Trial) -> Finding:
    """Options that change what is made of an item change its hash."""
    bench = trial.bench
    options = bench.stock.options
    if len(options) == 1:
        return inapplicable("no mm_processor_kwargs are known: give some in [multimodal] options")
    count = acted = 0
    for item in bench.stock.everything:
        made = [
            (number, bench.alone(item, number).value)
            for number in range(len(options))
            if bench.alone(item, number).good
        ]
        for (one, left), (other, right) in combinations(made, 2):
            count += 1
            if _same(left, right, item.modality):
                continue
            acted += 1
            if left.hashes == right.hashes:
                return failed(
                    f"{item.modality} {item.text!r} has one hash with {_told(options[one])} and "
                    f"with {_told(options[other])}, and becomes something else",
                    count,
                )
        if found := _named_in_spite(bench, item, made):
            return failed(found, count)
    if not acted:
        why = "the mm_processor_kwargs in [multimodal] options change nothing"
        return inapplicable(why, count)
    return passed(count, acted)


def _named_in_spite(bench: Bench, item: Item, made: Sequence[tuple[int, Processed]]) -> str | None:
    """Say whether an id that a client gives hides the options; None where it does not."""
    hashes: dict[Any, tuple[int, Processed]] = {}
    for number, processed in made:
        found = _named(bench, alone(item, number), {item.modality: NAMES[:1]})
        if not found.good:
            continue
        (name,) = found.value.hashes[item.modality]
        other, was = hashes.setdefault(name, (number, processed))
        if not _same(was, processed, item.modality):
            one, two = (_told(bench.stock.options[which]) for which in (other, number))
            return (
                f"{item.modality} {item.text!r} with an id of the client's has one hash with {one} "
                f"and with {two}, and becomes something else"
            )
    return None


def _told(options: Any) -> str:  # noqa: ANN401 - a mapping
    return repr(dict(options)) if options else "no options"
