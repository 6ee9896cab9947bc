# SPDX-License-Identifier: Apache-2.0
"""Check of rows that a client gives in place of an item, as ``--enable-mm-embeds`` allows.

Items of a modality that vLLM does not know may be rows themselves: those of the profile are given.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from vllm.multimodal.parse import EmbeddingItems

from conformance.findings import Finding, failed, inapplicable, passed
from conformance.multimodal.processor.answers import answer
from conformance.multimodal.processor.bench import Bench
from conformance.multimodal.processor.host import MODALITIES
from conformance.multimodal.processor.processed import Processed
from conformance.multimodal.processor.prompts import side_by_side
from conformance.multimodal.processor.stock import Item
from conformance.multimodal.processor.trial import Trial
from conformance.watching.comparison import same_rows

#: Items of a modality whose rows are given, alone and then the first two together.
_MOST = 4


def seen(trial: Trial) -> Finding:
    """Given rows are what the model sees, in as many places."""
    bench = trial.bench
    count = 0
    with bench.host.embeddings():
        processor = bench.processor()
        for modality, items in bench.stock.items.items():
            for chosen in _chosen(items, bench.limits[modality]):
                rows = [
                    row for item in chosen if (row := _rows(trial, processor, item)) is not None
                ]
                if len(rows) != len(chosen):
                    continue
                known = modality in MODALITIES
                data = {modality: rows if known else [item.make() for item in chosen]}
                process = partial(bench.host.process, processor, bench.tokens(side_by_side(chosen)))
                found = answer(partial(process, data, {}))
                if not found.good:  # a processor need not take any
                    continue
                count += 1
                if why := _wrong(bench, modality, found.value, rows):
                    names = " and ".join(repr(item.text) for item in chosen)
                    return failed(f"given the rows of {modality} {names}, {why}", count)
    if not count:
        return inapplicable("it takes no rows in place of items, which operators have to allow")
    return passed(count)


def _rows(trial: Trial, processor: Any, item: Item) -> torch.Tensor | None:  # noqa: ANN401 - the plugin's processor
    """Return the rows that are given in place of an item, or that it consists of."""
    bench, modality = trial.bench, item.modality
    made = bench.rows(item)
    if not made.good:
        return None
    if modality in MODALITIES:
        return made.value
    found = answer(lambda: bench.host.parsed(processor, {modality: [item.make()]})[modality])
    if not found.good or not isinstance(found.value, EmbeddingItems):
        return None  # a tensor of rows may be an item like any other
    rows = found.value.get(0)
    # Rows of another width are for an encoder to make others of.
    return rows if rows.shape[-1] == made.value.shape[-1] else None


def _chosen(items: Sequence[Item], limit: int) -> Iterator[Sequence[Item]]:
    yield from ((item,) for item in items[:_MOST])
    if min(limit, len(items)) > 1:
        yield items[:2]


def _wrong(
    bench: Bench, modality: str, found: Processed, rows: Sequence[torch.Tensor]
) -> str | None:
    """Say what is wrong with what was made of given rows."""
    for place, given in zip(found.ranges[modality], rows, strict=True):
        if place.count != len(given):
            return f"which are {len(given)}, it has {place.count} placeholders"
    encoded = answer(lambda: bench.host.encode([(modality, one) for one in found.data[modality]]))
    if not encoded.good:
        return f"encoding them {encoded.describe()}"
    for given, made in zip(rows, encoded.value, strict=True):
        if not same_rows(given, made):
            return f"the model sees others: {tuple(made.shape)} for {tuple(given.shape)}"
    return None
