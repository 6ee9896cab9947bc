# SPDX-License-Identifier: Apache-2.0
"""Checks of what vLLM reserves memory by: dummy inputs, and the most tokens of an item."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain

from conformance.findings import Finding, failed, passed, waiting
from conformance.multimodal.processor import forms
from conformance.multimodal.processor.answers import Answer, answer
from conformance.multimodal.processor.bench import Bench
from conformance.multimodal.processor.prompts import Prompt, alone
from conformance.multimodal.processor.stock import Item
from conformance.multimodal.processor.trial import Trial
from conformance.watching.raised import placed

#: How much larger than what is reserved an item is made.
BEYOND = 1.25


def _occasions(bench: Bench) -> Iterator[dict[str, int]]:
    """Yield how many items vLLM may ask dummy inputs for."""
    modalities = [name for name in bench.stock.items if bench.limits[name]]
    for modality in modalities:
        yield {modality: 1}
        yield {modality: bench.limits[modality]}
    # One of each is asked for where there is no estimate; the warm-up asks too, and may fail.
    info = bench.processor().info
    counts = dict.fromkeys(modalities, 1)
    estimate = answer(lambda: info.get_mm_max_tokens_per_item(bench.host.max_model_len, counts))
    if modalities[1:] and estimate.good and estimate.value is None:
        yield counts


def dummies(trial: Trial) -> Finding:
    """Dummy inputs hold the items that are asked for, and are processed."""
    bench = trial.bench
    count = 0
    for counts in _occasions(bench):
        count += 1
        found = bench.dummy(counts)
        told = ", ".join(f"{number} {name}" for name, number in counts.items())
        if not found.good:
            return failed(f"asked for {told}, get_dummy_mm_inputs {found.describe()}", count)
        have = {name: len(ranges) for name, ranges in found.value.ranges.items() if ranges}
        if have != counts:
            got = ", ".join(f"{number} {name}" for name, number in have.items()) or "nothing"
            return failed(f"asked for {told}, get_dummy_mm_inputs gives {got}", count)
    return passed(count)


def most(bench: Bench) -> Answer:
    """Return the most tokens of an item of each modality, as vLLM asks for them."""
    from vllm.multimodal.encoder_budget import get_mm_max_toks_per_item

    counts = {name: 1 for name in bench.stock.items if bench.limits[name]}
    return answer(
        lambda: dict(get_mm_max_toks_per_item(bench.processor(), mm_counts=counts, cache=None))
    )


def never_exceeded(trial: Trial) -> Finding:
    """No item that is taken has more embeddings than were reserved for one."""
    bench = trial.bench
    found = most(bench)
    if found.error is not None:
        return failed(f"get_mm_max_tokens_per_item raised {placed(found.error)}")
    estimates: Mapping[str, int] = found.value
    count = 0
    # What options ask for beyond that, vLLM refuses.
    plain = (prompt for prompt in trial.each_alone() if not prompt.options)
    for prompt in chain(plain, _beyond(trial, estimates)):
        (item,) = prompt.items
        got = bench.processed(prompt)
        # A modality that is not named has the room that others need: it may share placeholders.
        reserved = estimates.get(item.modality, max(estimates.values(), default=0))
        if not got.good or not estimates:
            continue
        count += 1
        tokens = bench.counts(prompt)[0]
        # A prompt that is longer than the model takes is refused as a whole.
        if reserved < tokens < bench.host.max_model_len:
            return failed(
                f"{item.modality} {item.text!r} has {tokens} embeddings, and vLLM reserves memory "
                f"for {reserved} in an item",
                count,
            )
    return passed(count)


def _beyond(trial: Trial, estimates: Mapping[str, int]) -> Iterator[Prompt]:
    """Yield large items that are so much larger that they may exceed what is reserved.

    No films: how many frames of one are kept is for the server to say.
    """
    bench = trial.bench
    for item in trial.large():
        if not (reserved := estimates.get(item.modality)) or not bench.processed(alone(item)).good:
            continue
        times = BEYOND * reserved / max(1, bench.counts(alone(item))[0])
        text = forms.grown(item.modality, item.text, times) if times > 1 else None
        if text is not None:
            yield alone(bench.as_taken(Item(item.modality, text)))


def agrees(trial: Trial) -> Finding:
    """The most tokens of an item are those of the dummy item."""
    bench = trial.bench
    found = most(bench)
    if not found.good:
        why = f"get_mm_max_tokens_per_item {found.describe()}"
        return waiting("MM-29", why)
    count = 0
    for modality, estimate in found.value.items():
        if not bench.limits.get(modality):
            continue  # of what no prompt may have, there is no dummy item
        made = bench.dummy({modality: 1})
        if not made.good or not made.value.ranges.get(modality):
            continue
        count += 1
        dummy = made.value.ranges[modality][0].count
        if dummy != estimate:
            return failed(
                f"get_mm_max_tokens_per_item says {estimate} for {modality}, and the dummy item "
                f"has {dummy}",
                count,
            )
    return passed(count)


def encoded(trial: Trial) -> Finding:
    """The dummy item gets as many rows as it has placeholders."""
    bench = trial.bench
    count = 0
    for modality in bench.stock.items:
        made = bench.dummy({modality: 1})
        if not made.good:
            continue
        rows = bench.encoded(made.value, modality)
        count += 1
        if not rows.good:
            return failed(f"encoding the dummy item of {modality} {rows.describe()}", count)
        wanted = made.value.ranges[modality][0].count
        if len(rows.value) != wanted:
            return failed(
                f"the dummy item of {modality} has {wanted} placeholders and {len(rows.value)} "
                "rows",
                count,
            )
    return passed(count)
