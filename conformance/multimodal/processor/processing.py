# SPDX-License-Identifier: Apache-2.0
"""Checks of what a processor makes of items: each time, among others, from a cache."""

from __future__ import annotations

import copy
import io
import itertools
import sys
import weakref
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import attrs
import numpy as np
import torch
from PIL.Image import Image
from vllm.multimodal.cache.base import MultiModalCacheMissError
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange

from conformance.findings import Finding, failed, inapplicable, passed, unjudged
from conformance.multimodal.processor.answers import Answer, answer
from conformance.multimodal.processor.bench import Bench
from conformance.multimodal.processor.forms import RATE, redrawn
from conformance.multimodal.processor.host import size_of
from conformance.multimodal.processor.placeholders import inserted
from conformance.multimodal.processor.processed import Processed, of_item
from conformance.multimodal.processor.prompts import Prompt, alone
from conformance.multimodal.processor.sameness import same_data, told_apart
from conformance.multimodal.processor.search import Trouble
from conformance.multimodal.processor.stock import Item
from conformance.multimodal.processor.trial import Trial
from conformance.multimodal.unchanged import unchanged
from conformance.watching.comparison import letter
from conformance.watching.untouched import Ended, Untouched

#: Items that are processed between two prompts, to fill a cache; bytes that it has to spare.
OTHERS = 3
SPARE = 1024

#: How often a client asks again whose items the engine has no longer.
TIMES = 3


def steady(bench: Bench, prompt: Prompt) -> Trouble | None:
    """Another processor makes the same of the same prompt."""
    found = bench.processed(prompt)
    if not found.good:
        return None
    return _different(prompt, bench.process(prompt), found.value, "the second time")


def in_a_row(bench: Bench, prompt: Prompt) -> Trouble | None:
    """A processor makes of a prompt what it makes of it as its first one."""
    if not bench.processed(prompt).good:
        return None
    if _after_others(bench, prompt, bench.worn()) is None:
        return None
    # What only earlier examples brought about, nobody could replay.
    return _after_others(bench, prompt, bench.worn(anew=True))


def _after_others(bench: Bench, prompt: Prompt, processor: object) -> Trouble | None:
    """Say in what a prompt is another one to a processor that has processed others."""
    for item in bench.unusual:
        if not bench.alone(item).good:  # what was begun for it may be left there
            bench.process(alone(item), processor)
    when = "after prompts with other items, sizes and options"
    return _different(prompt, bench.process(prompt, processor), bench.processed(prompt).value, when)


@attrs.frozen
class First:
    """The errand of processing one item where nothing was processed before."""

    tokens: tuple[int, ...]
    item: Item
    options: Mapping[str, Any]
    what: str = f"{__name__}:as_the_first"


def as_the_first(bench: Bench, errand: First) -> bytes:
    """Return the data of an item, written down."""
    item = errand.item
    data = {item.modality: [item.make()]}
    found = bench.host.process(bench.processor(), list(errand.tokens), data, errand.options)
    written = io.BytesIO()
    torch.save(of_item(found.data[item.modality][0]), written)
    return written.getvalue()


def unlike_the_first(bench: Bench, untouched: Untouched) -> str | None:
    """Say which item becomes something else in a process that has processed nothing; or None.

    What all processors of a process share is as it is from the first item on: only there it shows.
    """
    options = reversed(range(len(bench.stock.options)))  # none at last: what is given must not stay
    for number, item in itertools.product(options, bench.stock.everything):
        prompt = alone(item, number)
        found = bench.process(prompt)
        if item.value is not None or not found.good:
            continue
        errand = First(tuple(bench.tokens(prompt)), item, bench.stock.chosen(number))
        try:
            first = torch.load(io.BytesIO(untouched.run(errand)), weights_only=False)
        except Ended:
            continue  # it may be what raises there, and then it shows nothing of this
        now = of_item(found.value.data[item.modality][0])
        for key in {**first, **now}:
            if not same_data(first.get(key), now.get(key)):
                is_now, was = told_apart(now.get(key), first.get(key))
                return (
                    f"after other items {key} of {item.modality} {item.text} is {is_now}, and "
                    f"{was} in a process that has processed nothing before"
                )
    return None


#: References to an object that only a variable holds: its own, and that of the call which counts.
_OWN_REFERENCES = 2


def in_the_same_place(bench: Bench) -> str | None:
    """Say which item becomes an earlier one whose object it has; or None.

    CPython makes new objects where others have just been freed.  Whoever knows an image by
    ``id(image)`` then takes it for another; this is the same without the luck.
    """
    for items in bench.stock.items.values():
        item = items[0]
        if item.value is not None:
            continue
        other = alone(attrs.evolve(item, text=redrawn(item.modality, item.text)))
        wanted = bench.processed(other)
        found = answer(partial(_made_again, bench, item, other)) if wanted.good else wanted
        if not found.good or found.value is None:
            continue
        when = f"made where {item.modality} {item.text} was before, which nobody holds any more,"
        if trouble := _different(other, found, wanted.value, when):
            # What differs each time has another reason.
            again = answer(partial(_made_again, bench, item, other))
            if again.good and again.value and _different(other, again, wanted.value, when):
                return f"{item.modality} {other.items[0].text}: {trouble.message}"
    return None


def _made_again(bench: Bench, item: Item, other: Prompt) -> Processed | None:
    """Process an item, then another one in the same object; None if the plugin holds it."""
    processor, prompt, (twin,) = bench.processor(), alone(item), other.items
    items = bench.host.parsed(processor, {item.modality: [item.make()]})
    used = _only(items[item.modality])
    if used is None:
        return None
    options = bench.stock.chosen(0)
    bench.host.applied(processor, bench.tokens(prompt), items, options)
    del items
    if sys.getrefcount(used) > _OWN_REFERENCES or weakref.getweakrefcount(used):
        return None  # CPython would not free it, or would tell who has a weak reference
    items = bench.host.parsed(processor, {item.modality: [twin.make()]})
    fresh = _only(items[item.modality])
    if isinstance(used, np.ndarray):
        if used.shape != fresh.shape or used.dtype != fresh.dtype:
            return None
        used[...] = fresh
    else:
        vars(used).clear()  # nor is anything there that was noted on the earlier one
        vars(used).update(vars(fresh))
    items[item.modality].data[0] = used
    return bench.host.applied(processor, bench.tokens(other), items, options)


def _only(items: Any) -> Any:  # noqa: ANN401 - items of vLLM, and an array or a picture
    """Return the only one of parsed items, where another can be put in its place."""
    data: Any = getattr(items, "data", None)
    usable = isinstance(data, list) and len(data) == 1 and type(data[0]) in (np.ndarray, Image)
    return data[0] if usable else None


def _placed_otherwise(
    prompt: Prompt, got: Answer, wanted: Processed, when: str, *, ordered: bool = True
) -> Trouble | None:
    """Say in what two results for a prompt differ, apart from hashes and data.

    Unless *ordered*, one item may stand before another in the one and behind it in the other.
    """
    if not got.good:
        return Trouble(f"{when} the prompt {got.describe()}")
    now: Processed = got.value
    for index, (name, place) in enumerate(prompt.places()):
        one, other = now.ranges[name][place], wanted.ranges[name][place]
        if one.count != other.count:
            return Trouble(
                f"{when} item {letter(index)} has {one.count} placeholders instead of "
                f"{other.count}",
                index,
                str(other.count),
                str(one.count),
            )
    if ordered and (now.tokens != wanted.tokens or now.ranges != wanted.ranges):
        return Trouble(f"{when} the prompt has other tokens or ranges")
    return None


def _other_value(index: int, key: str, mine: object, first: object, when: str) -> Trouble:
    """Say what an item has under a key, and what it had at first."""
    is_now, was = told_apart(of_item(mine).get(key), of_item(first).get(key))
    what = f"{when} {key} of item {letter(index)} is {is_now} instead of {was}"
    return Trouble(what, index, was, is_now)


def _different(prompt: Prompt, got: Answer, wanted: Processed, when: str) -> Trouble | None:
    """Say in what two results for a prompt differ, apart from hashes."""
    if trouble := _placed_otherwise(prompt, got, wanted, when):
        return trouble
    for index, (name, place) in enumerate(prompt.places()):
        now, first = got.value.data[name][place], wanted.data[name][place]
        if key := _differing_key(now, first):
            return _other_value(index, key, now, first, when)
    return None


def _differing_key(one: object, other: object) -> str | None:
    """Return a field in which two items differ."""
    left, right = of_item(one), of_item(other)
    for key in {**left, **right}:
        if key not in left or key not in right or not same_data(left[key], right[key]):
            return key
    return None


def same_data_alone(bench: Bench, prompt: Prompt) -> Trouble | None:
    """What is made of an item does not depend on the others."""
    found = bench.processed(prompt)
    if not found.good or not bench.usable(prompt):
        return None
    for index, (name, place) in enumerate(prompt.places()):
        item = prompt.items[index]
        wanted = bench.alone(item, prompt.options).value.data[name][0]
        got = found.value.data[name][place]
        if key := _differing_key(got, wanted):
            here, there = told_apart(of_item(got).get(key), of_item(wanted).get(key))
            what = f"{key} of item {letter(index)} is {here} here and {there} alone"
            return Trouble(what, index, there, here)
    return None


def left_alone(bench: Bench, prompt: Prompt) -> Trouble | None:
    """What a client hands over is as it was afterwards."""
    processor = bench.processor()
    tokens, data = bench.tokens(prompt), prompt.data()
    options = copy.deepcopy(bench.stock.chosen(prompt.options))
    given, kept = list(tokens), {name: list(items) for name, items in data.items()}
    found = answer(lambda: bench.host.process(processor, tokens, data, options))
    if not found.good:
        return None
    if tokens != given:
        return Trouble("the list of the prompt's tokens is changed")
    if options != bench.stock.chosen(prompt.options):
        return Trouble("mm_processor_kwargs is changed")
    for index, ((name, place), item) in enumerate(zip(prompt.places(), prompt.items, strict=True)):
        if len(data.get(name, ())) != len(kept[name]):
            return Trouble(f"the list of {name} is changed")
        if not unchanged(data[name][place], item.make()):
            return Trouble(f"the data of item {letter(index)} are changed", index)
    return None


def cached(bench: Bench, prompt: Prompt) -> Trouble | None:
    """With a cache that is too small for all items, prompts get what they get without one."""
    found = bench.processed(prompt)
    if not found.good or not bench.usable(prompt):
        return None
    rows = _in_turn(bench, prompt)
    if not all(bench.processed(one).good for one in rows):
        return None
    # Where others change an item's data, no cache can give the same: a rule of its own.
    whole = not any(same_data_alone(bench, one) for one in rows)
    capacity = _capacity(bench, prompt)
    processor, cache = bench.processor(), bench.host.cache(capacity)
    for number, one in enumerate(rows):
        got = bench.process(one, processor, cache)
        if trouble := _cached(bench, one, got, _when(number, ""), whole=whole):
            return trouble
    processor, caches = bench.processor(), bench.host.paired_caches(capacity)
    for number, one in enumerate(rows):
        got = _sent(bench, one, processor, caches)
        if trouble := _cached(bench, one, got, _when(number, " of the engine"), whole=whole):
            return trouble
    return None


def _when(number: int, of: str) -> str:
    return f"from the cache{of}, as prompt number {number + 1} in a row,"


def _in_turn(bench: Bench, prompt: Prompt) -> Sequence[Prompt]:
    """Return prompts to process one after the other: some items are cached, some are gone."""
    backwards = Prompt(prompt.parts[::-1], prompt.options, prompt.backwards)
    others = [item for item in bench.stock.everything if item not in prompt.items]
    between = [alone(item, prompt.options) for item in others[:OTHERS]]
    return (
        alone(prompt.items[0], prompt.options),
        prompt,
        prompt,
        *between[:1],
        prompt,
        *between,
        backwards,
        prompt,
    )


def _capacity(bench: Bench, prompt: Prompt) -> int:
    """Return a size of a cache that the items of a prompt fit into, and few others.

    With less vLLM itself fails: what a prompt has in the cache is thrown out by its other items.
    """
    together = bench.processed(prompt).value.data
    sizes: dict[Item, int] = {}
    for item, (name, place) in zip(prompt.items, prompt.places(), strict=True):
        by_itself = bench.alone(item, prompt.options).value.data[name][0]
        size = max(size_of(by_itself), size_of(together[name][place]))
        sizes[item] = max(size, sizes.get(item, 0))
    return sum(sizes.values()) + SPARE


def _sent(
    bench: Bench,
    prompt: Prompt,
    processor: object,
    caches: tuple[Any, Any],
    times: int = TIMES,
) -> Answer:
    """Process a prompt, and return what the engine has of it."""
    sender, receiver = caches
    sent = bench.process(prompt, processor, sender)
    if not sent.good:
        return sent
    got = answer(lambda: _received(prompt, sent.value, receiver))
    if times and isinstance(got.error, MultiModalCacheMissError):
        # Front end and engine may throw out different items; then vLLM has the client ask again.
        for name in got.error.mm_hashes:
            sender.invalidate(name)
        return _sent(bench, prompt, processor, caches, times - 1)
    return got


def _received(prompt: Prompt, sent: Processed, receiver: Any) -> Processed:  # noqa: ANN401 - a receiver of vLLM's
    """Return what the engine has once its cache has filled in what was sent before."""
    features = [
        MultiModalFeatureSpec(
            data=sent.data[name][place],
            modality=name,
            identifier=sent.hashes[name][place],
            mm_position=PlaceholderRange(
                sent.ranges[name][place].offset, sent.ranges[name][place].length
            ),
            mm_hash=sent.hashes[name][place],
        )
        for name, place in prompt.places()
    ]
    filled = receiver.get_and_update_features(features)
    data: dict[str, list[Any]] = {name: [] for name in sent.data}
    for feature in filled:
        data[feature.modality].append(feature.data)
    return attrs.evolve(sent, data={name: tuple(items) for name, items in data.items()})


def _cached(bench: Bench, prompt: Prompt, got: Answer, when: str, *, whole: bool) -> Trouble | None:
    wanted: Processed = bench.processed(prompt).value
    # Which of several modalities comes first in the same place, vLLM says otherwise with a cache.
    ordered = not (inserted(bench, prompt) and prompt.modalities[1:])
    if trouble := _placed_otherwise(prompt, got, wanted, when, ordered=ordered):
        return trouble
    for index, (name, place) in enumerate(prompt.places()):
        by_itself = bench.alone(prompt.items[index], prompt.options).value.data[name][0]
        now = got.value.data[name][place]
        if now is None:
            return Trouble(f"{when} the data of item {letter(index)} are missing", index)
        if whole and (key := _differing_key(now, by_itself)):
            return _other_value(index, key, now, wanted.data[name][place], when)
    return None


#: The sound that is sampled at several rates, and what counts may differ by for its edges.
SECONDS, RATES, EDGE, SHARE = 0.6, (8_000, 48_000), 1, 0.1


def at_any_rate(trial: Trial) -> Finding:
    """A sound has as many placeholders at one rate as at another."""
    bench = trial.bench
    count = 0
    lacking = ""
    for modality in (name for name in bench.stock.items if name == "audio"):
        usual, *others = (alone(Item(modality, f"{SECONDS}s@{rate}#4")) for rate in (RATE, *RATES))
        for other in others:
            if bench.processed(other).lacks:
                lacking = f"{modality} {other.items[0].text!r} {bench.processed(other).describe()}"
            if not (bench.processed(usual).good and bench.processed(other).good):
                continue
            count += 1
            (wanted,), (got,) = bench.counts(usual), bench.counts(other)
            if abs(got - wanted) > max(EDGE, SHARE * wanted):
                (one,), (another,) = usual.items, other.items
                return failed(
                    f"audio {another.text!r} has {got} placeholders, and {one.text!r}, which takes "
                    f"as long, {wanted}",
                    count,
                    case={"shown": other},
                )
    if not count and lacking:
        return unjudged(lacking)
    if not count:
        return inapplicable("it takes no sounds that come with their rates")
    return passed(count)
