# SPDX-License-Identifier: Apache-2.0
"""Checks of ``mm_processor_kwargs`` that nobody should send, and that somebody does."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.findings import Finding, failed, passed
from conformance.multimodal.processor.embeddings import miscounted
from conformance.multimodal.processor.prompts import Prompt, alone
from conformance.multimodal.processor.trial import Trial

#: Items of a modality that are processed with each bad option.
ITEMS = 2


def _prompts(trial: Trial) -> Iterator[Prompt]:
    stock = trial.bench.stock
    for number in stock.bad:
        for items in stock.items.values():
            for item in items[:ITEMS]:
                yield alone(item, number)


def _told(trial: Trial, prompt: Prompt) -> str:
    (one,) = prompt.items
    return f"{one.modality} {one.text!r} with {trial.bench.stock.chosen(prompt.options)}"


def harmless(trial: Trial) -> Finding:
    """What is processed with a bad option can be encoded and placed."""
    bench = trial.bench
    count = 0
    for count, prompt in enumerate(_prompts(trial), 1):
        if not bench.processed(prompt).good:
            continue
        found = bench.encode(prompt)
        what = f"{_told(trial, prompt)} is processed, and"
        if not found.good:
            return failed(f"{what} encoding it {found.describe()}", count, case={"shown": prompt})
        (rows,), (wanted,) = found.value, bench.counts(prompt)
        if miscounted(len(rows), wanted) == "MM-21":
            return failed(
                f"{what} has {wanted} placeholders and {len(rows)} rows",
                count,
                case={"shown": prompt},
            )
    return passed(count)


def refused(trial: Trial) -> Finding:
    """A bad option is the client's error, or harmless; one that the profile names is an error."""
    bench = trial.bench
    count = 0
    named = set(bench.stock.bad[: len(bench.stock.invalid)])
    for count, prompt in enumerate(_prompts(trial), 1):
        found = bench.processed(prompt)
        what = _told(trial, prompt)
        if found.good and prompt.options in named:
            return failed(
                f"{what} is processed, and is to be refused by the profile",
                count,
                case={"shown": prompt},
            )
        if not found.good and not found.of_client:
            said = f"{found.describe()}, and vLLM calls that the server's error"
            return failed(f"{what} {said}", count, case={"shown": prompt})
    return passed(count)
