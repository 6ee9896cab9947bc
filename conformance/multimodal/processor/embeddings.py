# SPDX-License-Identifier: Apache-2.0
"""Checks of the rows that ``embed_multimodal`` makes, and of their way into the prompt."""

from __future__ import annotations

import inspect
import io
from collections.abc import Sequence
from functools import partial
from typing import Any

import attrs
import torch
from PIL import Image

from conformance.findings import Finding, failed, passed, unjudged
from conformance.multimodal.processor import running
from conformance.multimodal.processor.answers import answer
from conformance.multimodal.processor.bench import Bench
from conformance.multimodal.processor.checkpoint import has_weights
from conformance.multimodal.processor.processed import Range, by_place, mask_of, ranges_of
from conformance.multimodal.processor.prompts import Prompt
from conformance.multimodal.processor.search import Trouble
from conformance.multimodal.processor.stock import Item
from conformance.multimodal.processor.trial import Trial
from conformance.plugin.missing import way_out
from conformance.verdict import Verdict
from conformance.watching.comparison import letter, same_rows
from conformance.watching.untouched import Ended, Untouched

#: Items of different prompts that are encoded together.
TOGETHER = 4


def interface(trial: Trial) -> Finding:
    """The class says that it is multi-modal, and vLLM can make, run and load a model of it."""
    from vllm.model_executor.models.interfaces import supports_multimodal

    bench = trial.bench
    cls = bench.host.cls
    if not supports_multimodal(cls):
        return failed(f"{cls.__name__} does not say supports_multimodal = True")
    for name in ("embed_multimodal", "embed_input_ids", "get_placeholder_str"):
        if not callable(getattr(cls, name, None)):
            return failed(f"{cls.__name__} has no {name}")
    made = answer(bench.host.model)
    if made.error is not None:
        if out := way_out(made.error, cls.__module__, inspect.getsourcefile(cls)):
            return unjudged(f"making the model {made.describe()}: {out}")
        return failed(f"making the model {made.describe()}")
    return _serves(bench)


def _serves(bench: Bench) -> Finding:
    """The model does what an engine has it do before it serves anything."""
    if running.runs_alike(bench.host):
        ran = answer(lambda: running.run(bench.host))
        if not ran.good:
            return failed(f"running the model on {running.TOKENS} embeddings {ran.describe()}")
    loaded = answer(lambda: running.load(bench.host))
    if loaded.good:
        return Finding(Verdict.PASS, 1, 1)
    if has_weights(bench.host.folder):
        return failed(f"loading the checkpoint {loaded.describe()}")
    why = "with no weights to load; give a [multimodal] model that has a checkpoint with some"
    return unjudged(f"load_weights {loaded.describe()}, {why}")


def _rows(bench: Bench, prompt: Prompt) -> list[torch.Tensor] | None:
    """Return the rows of a prompt's items, or None if others judge what is wrong with them."""
    if not bench.ready(prompt) or not (found := bench.encode(prompt)).good:
        return None
    rows: list[torch.Tensor] = found.value
    return rows


def one_each(bench: Bench, prompt: Prompt) -> Trouble | None:
    """Every item gets one tensor of two dimensions, as vLLM's own check demands."""
    if not bench.ready(prompt):
        return None
    found = bench.encode(prompt)
    return None if found.good else Trouble(f"encoding the items {found.describe()}")


def missing(bench: Bench, prompt: Prompt) -> Trouble | None:
    """No item gets fewer rows than it has placeholders."""
    return _counted(bench, prompt, "MM-21")


def surplus(bench: Bench, prompt: Prompt) -> Trouble | None:
    """No item gets more rows than it has placeholders."""
    return _counted(bench, prompt, "MM-22")


def single(bench: Bench, prompt: Prompt) -> Trouble | None:
    """No single row stands in for several."""
    return _counted(bench, prompt, "MM-23")


#: What vLLM makes of a wrong number of rows.
_THEN = {
    "MM-21": "vLLM cannot place them: the engine ends",
    "MM-22": "vLLM cuts off the rest without a word",
    "MM-23": "vLLM copies it to all of them without a word",
}


def miscounted(rows: int, wanted: int) -> str | None:
    """Return the rule that a number of rows breaks, or None."""
    if rows > wanted:
        return "MM-22"
    if rows < wanted:
        return "MM-23" if rows == 1 else "MM-21"
    return None


def _counted(bench: Bench, prompt: Prompt, rule: str) -> Trouble | None:
    if (found := _rows(bench, prompt)) is None:
        return None
    for index, (rows, wanted) in enumerate(zip(found, bench.counts(prompt), strict=True)):
        if miscounted(len(rows), wanted) == rule:
            return Trouble(
                f"item {letter(index)} ({prompt.items[index].text}) has {wanted} placeholders and "
                f"{len(rows)} row{'' if len(rows) == 1 else 's'} of embeddings: {_THEN[rule]}",
                index,
                str(wanted),
                str(len(rows)),
            )
    return None


def usable(bench: Bench, prompt: Prompt) -> Trouble | None:
    """Rows are floating-point numbers, finite, and as wide as the model's embeddings."""
    if (found := _rows(bench, prompt)) is None:
        return None
    width = bench.host.config.model_config.get_inputs_embeds_size()
    for index, rows in enumerate(found):
        name = f"the rows of item {letter(index)}"
        if not rows.is_floating_point():
            return Trouble(f"{name} are of type {rows.dtype}", index, "floating", str(rows.dtype))
        # A model may hand itself more than its width, if it takes it apart again; of one that
        # prunes vLLM takes the positions off, which such rows carry.
        apart = rows.shape[1] % width == 0 and _own_placing(bench)
        if rows.shape[1] != width and not (apart or _pruned(bench)):
            return Trouble(
                f"{name} are {rows.shape[1]} wide", index, str(width), str(rows.shape[1])
            )
        if not torch.isfinite(rows).all():
            return Trouble(f"{name} are not all finite", index)
    return None


def _own_placing(bench: Bench) -> bool:
    from vllm.model_executor.models.interfaces import SupportsMultiModal

    return bench.host.cls.embed_input_ids is not SupportsMultiModal.embed_input_ids


def _pruned(bench: Bench) -> bool:
    """Tell whether the model leaves rows out, and says behind each row where it belongs."""
    from vllm.model_executor.models import interfaces

    supports = getattr(interfaces, "supports_multimodal_pruning", lambda _: False)
    config = bench.host.config.model_config.multimodal_config
    return bool(supports(bench.host.cls) and getattr(config, "video_pruning_rate", None))


def ordered(bench: Bench, prompt: Prompt) -> Trouble | None:
    """Results come in the order of the items."""
    for index, rows in _differing(bench, prompt):
        other = _whose(bench, rows, index, prompt.items, prompt.options)
        if other is not None:
            return Trouble(
                f"item {letter(index)} gets the rows of item {letter(other)}",
                index,
                letter(index),
                letter(other),
            )
    return None


def independent(bench: Bench, prompt: Prompt) -> Trouble | None:
    """An item gets the same rows in a batch with others as alone."""
    for index, rows in _differing(bench, prompt):
        wanted = bench.rows(prompt.items[index], prompt.options).value
        if rows.shape != wanted.shape:
            return Trouble(
                f"item {letter(index)} has {len(rows)} rows in a batch with the others and "
                f"{len(wanted)} alone",
                index,
                str(len(wanted)),
                str(len(rows)),
            )
        worst = float((rows - wanted).abs().max())
        return Trouble(
            f"the rows of item {letter(index)} in a batch with the others differ from those alone "
            f"by {worst:.3g}",
            index,
        )
    return None


def _differing(bench: Bench, prompt: Prompt) -> list[tuple[int, torch.Tensor]]:
    """Return the items whose rows are not those that they get alone."""
    if (found := _rows(bench, prompt)) is None:
        return []
    return _unlike_alone(bench, found, prompt.items, prompt.options)


def _unlike_alone(
    bench: Bench, found: Sequence[torch.Tensor], items: Sequence[Item], options: int = 0
) -> list[tuple[int, torch.Tensor]]:
    """Return the items that were encoded together whose rows are not those that they get alone."""
    unlike = []
    for index, (rows, item) in enumerate(zip(found, items, strict=True)):
        wanted = bench.rows(item, options)
        if wanted.good and not same_rows(rows, wanted.value):
            unlike.append((index, rows))
    return unlike


def _whose(
    bench: Bench, rows: torch.Tensor, index: int, items: Sequence[Item], options: int = 0
) -> int | None:
    """Return which other one of the items gets these rows alone, if any does."""
    for other, item in enumerate(items):
        if item != items[index] and same_rows(rows, bench.rows(item, options).value):
            return other
    return None


def among_prompts(bench: Bench, *, swapped: bool) -> Finding:
    """Items of several prompts that are encoded together get the rows that they get alone.

    An engine does so whether or not a prompt may have more than one.

    Args:
        bench: what encodes them.
        swapped: whether it is judged that one gets another's rows, and not that it gets different
            ones.

    """
    count = 0
    for modality, known in bench.stock.items.items():
        items = [item for item in known if bench.rows(item).good][:TOGETHER]
        for group in (items, items[::-1]) if len(items) > 1 else ():
            count += 1
            data = [(modality, bench.alone(item).value.data[modality][0]) for item in group]
            together = answer(partial(bench.host.encode, data))
            if not together.good:
                if swapped:
                    continue
                what = f"encoding items of {len(group)} prompts together {together.describe()}"
                return failed(f"{what}, and each alone is encoded", count)
            for index, rows in _unlike_alone(bench, together.value, group):
                name, beside = f"{modality} {group[index].text}", "beside items of other prompts"
                other = _whose(bench, rows, index, group)
                if swapped and other is not None:
                    return failed(f"{beside} {name} gets the rows of {group[other].text}", count)
                if not swapped and other is None:
                    what = f"{beside} the rows of {name} are not those that it gets alone"
                    return failed(what, count)
    return passed(count)


def steady(bench: Bench, prompt: Prompt) -> Trouble | None:
    """The same items get the same rows again."""
    if (found := _rows(bench, prompt)) is None:
        return None
    again = bench.encode_again(prompt)
    if not again.good:
        return Trouble(f"encoding the same items again {again.describe()}")
    for index, (one, other) in enumerate(zip(found, again.value, strict=True)):
        if not same_rows(one, other):
            return Trouble(f"item {letter(index)} gets other rows the second time", index)
    return None


@attrs.frozen
class First:
    """The errand of encoding one item where nothing was encoded before."""

    item: Item
    what: str = f"{__name__}:as_the_first"


def as_the_first(bench: Bench, errand: First) -> bytes | None:
    """Return the rows of an item, written down; None where it has none."""
    found = bench.rows(errand.item)
    if not found.good:
        return None
    written = io.BytesIO()
    torch.save(found.value, written)
    return written.getvalue()


def unlike_the_first(bench: Bench, untouched: Untouched) -> str | None:
    """Say which item gets other rows right after its mirror image than as the first; or None.

    Whoever knows items again by their size, mean and deviation takes one of them for the other.
    """
    for item in (items[0] for items in bench.stock.items.values() if items):
        other = _mirrored(item)
        if other is None or not (bench.rows(item).good and bench.rows(other).good):
            continue
        pair = (bench.rows(item).value, bench.rows(other).value)
        for one, rows in zip((item, other), pair, strict=True):
            try:
                first = untouched.run(First(one))
            except Ended:
                break
            if first is None:
                break
            if not same_rows(rows, torch.load(io.BytesIO(first), weights_only=True)):
                return (
                    f"{one.modality} {one.text} gets other rows after other items than from a "
                    "model that has encoded nothing before"
                )
    return None


def _mirrored(item: Item) -> Item | None:
    """Return an item with the same values the other way round, or None."""
    data: Any = item.make()
    if isinstance(data, Image.Image):
        turned: Any = data.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    elif item.modality == "audio" and isinstance(data, tuple):
        turned = (data[0][::-1].copy(), data[1])
    else:
        return None
    return Item(item.modality, f"{item.text}, mirrored", turned)


def placed(bench: Bench, prompt: Prompt) -> Trouble | None:
    """``embed_input_ids`` puts the rows in their places, and leaves the text as it is."""
    rows = _rows(bench, prompt)
    if rows is None or [len(one) for one in rows] != bench.counts(prompt):
        return None
    tokens = bench.processed(prompt).value.tokens
    ranges = ranges_of(prompt, bench.processed(prompt).value)
    mask = mask_of(len(tokens), ranges)
    given = [one.clone() for one in by_place(rows, ranges)]
    text = answer(lambda: bench.host.embed(tokens, None, mask))
    whole = answer(lambda: bench.host.embed(tokens, given, mask))
    if not text.good or not whole.good:
        said = (whole if text.good else text).describe()
        return Trouble(f"embed_input_ids {'with' if text.good else 'without'} rows {said}")
    outside = ~torch.tensor(mask)
    if whole.value.shape != text.value.shape or not same_rows(
        whole.value[outside], text.value[outside]
    ):
        return Trouble("embed_input_ids changes the embeddings of text")
    return _misplaced(ranges, rows, whole.value)


def _misplaced(
    ranges: Sequence[Range], rows: Sequence[torch.Tensor], whole: torch.Tensor
) -> Trouble | None:
    for index, one in enumerate(ranges):
        there = whole[list(one.embedded())]
        # A model that makes wider rows takes them apart itself.
        if rows[index].shape[1] == there.shape[1] and not same_rows(there, rows[index]):
            return Trouble(
                f"embed_input_ids does not put the rows of item {letter(index)} at {one.where}",
                index,
            )
    return None
