# SPDX-License-Identifier: Apache-2.0
"""Checks of placeholders: how many, where, for what, and what becomes of the text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from conformance.findings import Finding, failed, passed
from conformance.multimodal.processor import forms
from conformance.multimodal.processor.answers import answer
from conformance.multimodal.processor.bench import Bench
from conformance.multimodal.processor.processed import (
    Processed,
    Range,
    by_place,
    mask_of,
    of_item,
    ranges_of,
)
from conformance.multimodal.processor.prompts import Prompt, alone
from conformance.multimodal.processor.running import raw_alone
from conformance.multimodal.processor.sameness import outline, same_data
from conformance.multimodal.processor.search import Trouble
from conformance.multimodal.processor.trial import Trial
from conformance.watching.comparison import difference, letter, shortened


def processes(bench: Bench, prompt: Prompt) -> Trouble | None:
    """Items that are taken alone are taken together, and each gets a range."""
    if not bench.usable(prompt):
        return None
    found = bench.processed(prompt)
    if not found.good:
        # A processor may refuse to have several modalities, or forms, in one prompt.
        if found.refused and (len(prompt.modalities) > 1 or prompt in bench.mixed):
            return None
        return Trouble(f"the prompt {found.describe()}; each of its items is processed alone")
    for modality in prompt.modalities:
        wanted = len(prompt.of(modality))
        for what, have in (
            ("ranges", found.value.ranges),
            ("hashes", found.value.hashes),
            ("entries in mm_kwargs", found.value.data),
        ):
            if (count := len(have.get(modality, ()))) != wanted:
                return Trouble(
                    f"{wanted} items of {modality} got {count} {what}",
                    expected=str(wanted),
                    actual=str(count),
                )
    return None


def known_ranges(bench: Bench, prompt: Prompt) -> list[Range] | None:
    """Return the range of each item in the order of the prompt; None where there are none."""
    if not bench.ready(prompt):
        return None
    return ranges_of(prompt, bench.processed(prompt).value)


def within(bench: Bench, prompt: Prompt) -> Trouble | None:
    """Ranges lie within the prompt, have masks of their length, and share no position.

    Those of a model that runs on raw items, and not on embeddings, may be empty.
    """
    ranges = known_ranges(bench, prompt)
    if ranges is None:
        return None
    length = len(bench.processed(prompt).value.tokens)
    taken: dict[int, int] = {}
    least = 0 if raw_alone(bench.host) else 1
    for index, one in enumerate(ranges):
        if not (one.offset >= 0 and one.length >= least and one.end <= length):
            return Trouble(
                f"item {letter(index)} is at {one.where} of a prompt that has {length} tokens",
                index,
            )
        if one.mask is not None and len(one.mask) != one.length:
            return Trouble(
                f"the mask is_embed of item {letter(index)} has {len(one.mask)} entries for "
                f"{one.length} tokens",
                index,
            )
        for position in one.embedded():
            if position in taken:
                return Trouble(
                    f"items {letter(taken[position])} and {letter(index)} both have embeddings at "
                    f"{position}",
                    index,
                )
            taken[position] = index
    return None


def ordered(bench: Bench, prompt: Prompt) -> Trouble | None:
    """Ranges come in the order of the items, each with what its own item needs."""
    ranges = known_ranges(bench, prompt)
    if ranges is None:
        return None
    for modality in prompt.modalities if inserted(bench, prompt) else (None,):
        before: Range | None = None
        for index, (one, item) in enumerate(zip(ranges, prompt.items, strict=True)):
            if modality not in (None, item.modality):
                continue
            if before is not None and one.offset < before.offset:
                return Trouble(
                    f"item {letter(index)} is at {one.offset}, before an item that precedes it at "
                    f"{before.offset}",
                    index,
                )
            before = one
    counts = [one.count for one in ranges]
    wanted = _counts_alone(bench, prompt)
    if counts != wanted and sorted(counts) == sorted(wanted):
        index = next(
            i for i, pair in enumerate(zip(counts, wanted, strict=True)) if len({*pair}) > 1
        )
        return Trouble(
            f"item {letter(index)} has {counts[index]} placeholders, which another item needs; it "
            f"needs {wanted[index]}",
            index,
            str(wanted[index]),
            str(counts[index]),
        )
    return None


def _counts_alone(bench: Bench, prompt: Prompt) -> list[int]:
    return [bench.counts(alone(item, prompt.options))[0] for item in prompt.items]


def inserted(bench: Bench, prompt: Prompt) -> bool:
    """Tell whether any item has no text in the prompt: the processor chooses where it goes."""
    return not all(bench.texts.placeholder(item.modality, 1) for item in prompt.items)


def means(bench: Bench, prompt: Prompt) -> Trouble | None:
    """An item has the placeholders, and the data, that its author says."""
    for index, (one, item) in enumerate(
        zip(known_ranges(bench, prompt) or (), prompt.items, strict=False)
    ):
        if not forms.plain(item.modality, item.text):
            continue  # a function of a few lines knows the plain form alone
        wanted = bench.meant(item, prompt.options)
        if wanted not in (None, one.count):
            return Trouble(
                f"item {letter(index)} ({item.modality} {item.text}) has {one.count} placeholders, "
                f"and its author says {wanted}",
                index,
                str(wanted),
                str(one.count),
            )
        (name, place) = prompt.places()[index]
        made = of_item(bench.processed(prompt).value.data[name][place])
        for key, value in bench.told_data.get((item, prompt.options), {}).items():
            if not _as_said(made.get(key), value):
                is_now, says = _added_up(made.get(key)), _added_up(value)
                what = f"{key} of item {letter(index)} ({item.modality} {item.text}) is {is_now}"
                return Trouble(f"{what}, and its author says {says}", index, says, is_now)
    return None


def _added_up(value: Any) -> str:  # noqa: ANN401 - data of an item, or their outline
    """Return data in few words, which are the same where only their outline is known."""
    shape, total = outline(value) if isinstance(value, torch.Tensor) else (value or (None, 0))
    return f"of shape {shape} with the sum {total:.6g}" if shape else "not there"


def _as_said(made: object, said: object) -> bool:
    """Tell whether data are what an author says; a case file has no more than their outline."""
    if isinstance(said, torch.Tensor):
        return same_data(made, said)
    return difference(outline(made), said) is None


def same_count(bench: Bench, prompt: Prompt) -> Trouble | None:
    """An item has as many placeholders among others as alone."""
    ranges = known_ranges(bench, prompt)
    if ranges is None:
        return None
    for index, (one, wanted) in enumerate(zip(ranges, _counts_alone(bench, prompt), strict=True)):
        if one.count != wanted:
            return Trouble(
                f"item {letter(index)} has {one.count} placeholders here and {wanted} alone",
                index,
                str(wanted),
                str(one.count),
            )
    return None


def text_kept(bench: Bench, prompt: Prompt) -> Trouble | None:
    """Texts are where they were among the items, and outside of all ranges."""
    ranges = known_ranges(bench, prompt)
    if ranges is None:
        return None
    return _text_kept(bench, prompt, bench.processed(prompt).value, ranges)


def _text_kept(
    bench: Bench, prompt: Prompt, processed: Processed, ranges: Sequence[Range]
) -> Trouble | None:
    tokens = processed.tokens
    covered = {position for one in ranges for position in range(one.offset, one.end)}
    if inserted(bench, prompt):
        outside = [token for place, token in enumerate(tokens) if place not in covered]
        texts = [
            token
            for place, part in enumerate(prompt.parts)
            if isinstance(part, int)
            for token in bench.texts.text(place, part)
        ]
        rest = iter(outside)
        lost = next((token for token in texts if token not in rest), None)
        return None if lost is None else Trouble(f"token {lost} of the text is lost")
    position = 0
    following = iter([*ranges, None])
    upcoming = next(following)
    for place, part in enumerate(prompt.parts):
        if not isinstance(part, int):
            assert upcoming is not None
            position, upcoming = upcoming.end, next(following)
            continue
        text = bench.texts.text(place, part)
        gap = tokens[position : upcoming.offset if upcoming is not None else len(tokens)]
        if not _holds(bench, list(gap), text):
            where = f"{position} to {position + len(gap) - 1}"
            return Trouble(
                f"the text {text} of the prompt is not at {where} between its items, where there "
                f"is {shortened(list(gap), 60)}"
            )
    return None


def _holds(bench: Bench, tokens: list[int], text: list[int]) -> bool:
    last = len(tokens) - len(text)
    if any(tokens[start : start + len(text)] == text for start in range(last + 1)):
        return True
    # vLLM itself encodes a prompt anew where no target is found among its tokens.
    decode = bench.host.tokenizer().decode
    return str(decode(text)).strip() in str(decode(tokens))


def surplus(bench: Bench, prompt: Prompt) -> Trouble | None:
    """A placeholder too many in the prompt is the client's text."""
    ranges = known_ranges(bench, prompt)
    if ranges is None or inserted(bench, prompt):
        return None
    modality = prompt.items[-1].modality
    text = bench.texts.placeholder(modality, len(prompt.of(modality)) + 1) or ""
    extra = bench.host.tokenizer().encode(text, add_special_tokens=False)
    options = bench.stock.chosen(prompt.options)
    found = bench.handed_over([*bench.tokens(prompt), *extra], prompt.data(), options)
    what = f"with one more {text!r} at the end the prompt"
    if not found.good:
        return None if found.refused else Trouble(f"{what} {found.describe()}")
    now = ranges_of(prompt, found.value)
    count = sum(len(of_one) for of_one in found.value.ranges.values())
    if count != len(ranges) or now != ranges:
        return Trouble(f"{what} has other ranges: {_told(now)} instead of {_told(ranges)}")
    if _placed(bench, prompt, bench.processed(prompt).value, what):
        return None  # rows that are not placed at all: a rule of its own
    return _placed(bench, prompt, found.value, what)


def _placed(bench: Bench, prompt: Prompt, processed: Processed, what: str) -> Trouble | None:
    """Say what comes of placing the rows, where there are as many as there should be."""
    rows = bench.encode(prompt)
    if not rows.good or [len(one) for one in rows.value] != bench.counts(prompt):
        return None
    ranges = ranges_of(prompt, processed)
    mask = mask_of(len(processed.tokens), ranges)
    placed = answer(lambda: bench.host.embed(processed.tokens, by_place(rows.value, ranges), mask))
    return None if placed.good else Trouble(f"{what} is not embedded: it {placed.describe()}")


def _told(ranges: Sequence[Range]) -> str:
    return ", ".join(one.where for one in ranges)


def empty(trial: Trial) -> Finding:
    """A prompt whose lists of items are empty stays text."""
    bench = trial.bench
    count = 0
    for modality in bench.stock.items:
        text = bench.texts.text(0, 3)
        found = bench.handed_over(list(text), {modality: []})
        if not found.good:
            return failed(f"a prompt with an empty list of {modality} {found.describe()}", count)
        count += 1
        if any(found.value.ranges.values()):
            return failed(f"a prompt with an empty list of {modality} got placeholders", count)
        if not _holds(bench, list(found.value.tokens), text):
            return failed(f"the text beside an empty list of {modality} is changed", count)
    return passed(count)
