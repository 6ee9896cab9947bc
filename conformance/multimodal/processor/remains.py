# SPDX-License-Identifier: Apache-2.0
"""A check of what is left of items in the processor that has served them."""

from __future__ import annotations

import gc

from conformance.findings import Finding, failed, inapplicable, passed, unjudged
from conformance.multimodal.processor.answers import answer
from conformance.multimodal.processor.bench import Bench
from conformance.multimodal.processor.prompts import alone
from conformance.multimodal.processor.stock import Item
from conformance.multimodal.processor.trial import Trial
from conformance.watching.interruption import progressed
from conformance.watching.leaks import LONGEST, Spent, growing, size_of

#: Items between two measurements. What does not grow with the first ones grows with none; of what
#: does, so many more are processed that a cache that has an end has come to it.
FIRST, MEASURED, MEASUREMENTS = 12, 500, 4

#: Where the numbers of drawn items begin that nothing else draws.
DRAWS = 1000


def forgotten(trial: Trial) -> Finding:
    """After thousands of items, no two alike, the processor does not grow any more."""
    count = 0
    for modality in trial.bench.stock.items:
        size = _small(trial.bench, modality)
        if size is None:
            continue
        for each in (FIRST, MEASURED):
            sizes = _sizes(trial.bench, modality, size, each)
            count += each * len(sizes)
            if len(sizes) < MEASUREMENTS:
                why = f"{each * MEASUREMENTS} items of {modality} take too long"
                return unjudged(why, count)
            if not growing(sizes, each):
                break
        else:  # by how much differs between machines
            return failed(
                f"after {MEASURED * MEASUREMENTS} items of {modality} the processor still grows "
                "with every item",
                count,
            )
    if not count:
        return inapplicable("no item is known of which there are thousands")
    return passed(count)


def _small(bench: Bench, modality: str) -> str | None:
    """Return how the smallest item of a modality is described, without its number."""
    drawn = [
        item.text.partition("#")[0] for item in bench.stock.items[modality] if item.value is None
    ]
    return min(drawn, key=len, default=None)


def _sizes(bench: Bench, modality: str, size: str, each: int) -> list[int]:
    """Return how large a processor is after each of some numbers of items."""
    processor, spent = bench.processor(), Spent()
    behind = answer(processor.info.get_hf_processor).value
    roots = {type(one).__module__: one for one in (behind, processor.info, processor)}
    sizes: list[int] = []
    for number in range(each * MEASUREMENTS):
        if spent.beyond(LONGEST, LONGEST):
            break
        bench.process(alone(Item(modality, f"{size}#{DRAWS + number}")), processor)
        progressed()  # however busy the machine is
        if (number + 1) % each == 0:
            gc.collect()
            sizes.append(sum(map(size_of, roots.values())))
    return sizes
