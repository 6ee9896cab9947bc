# SPDX-License-Identifier: Apache-2.0
"""Checks of what a processor supports, and of what it refuses."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import attrs

from conformance.findings import Finding, failed, inapplicable, passed, unjudged
from conformance.multimodal.measuring import MEBIBYTE, measured
from conformance.multimodal.processor.answers import ALLOW, Answer, answer
from conformance.multimodal.processor.bench import Bench
from conformance.multimodal.processor.prompts import alone, crowded
from conformance.multimodal.processor.stock import USUAL, Item, item
from conformance.multimodal.processor.trial import Trial
from conformance.verdict import Verdict
from conformance.watching.endurance import no_memory
from conformance.watching.raised import said

_OF_SERVER = "and vLLM calls that the server's error"

#: Methods in which a processor works on data.
_WORK = ("_apply_hf_processor_main", "_call_hf_processor")


def loads(trial: Trial) -> Finding:
    """vLLM makes the processor that is registered for the class."""
    bench = trial.bench
    from vllm.multimodal.processing import (
        BaseDummyInputsBuilder,
        BaseMultiModalProcessor,
        BaseProcessingInfo,
    )

    processor = bench.processor()
    for value, base in (
        (processor, BaseMultiModalProcessor),
        (processor.info, BaseProcessingInfo),
        (processor.dummy_inputs, BaseDummyInputsBuilder),
    ):
        if not isinstance(value, base):
            return failed(f"{type(value).__name__} is no {base.__name__}")
    return Finding(Verdict.PASS, 1, 1)


def declared(trial: Trial) -> Finding:
    """Modalities and their limits are declared as vLLM reads them."""
    bench = trial.bench
    if bench.undeclared:
        return failed(bench.undeclared)
    if not bench.supported:
        return failed("get_supported_mm_limits names no modality")
    for modality, limit in bench.supported.items():
        if not isinstance(modality, str):
            return failed(f"get_supported_mm_limits has the modality {modality!r}")
        if limit is not None and (type(limit) is not int or limit < 0):
            return failed(f"get_supported_mm_limits has {limit!r} for {modality}")
    return Finding(Verdict.PASS, 1, 1)


def served(trial: Trial) -> Finding:
    """Items of every modality that is declared are processed."""
    bench = trial.bench
    wanted = [modality for modality in bench.supported if bench.limits.get(modality)]
    unknown = []
    for modality in wanted:
        if bench.stock.items.get(modality):
            continue
        said = next((w for i, w in bench.failing.items() if i.modality == modality), None)
        if said is not None:
            return failed(f"get_supported_mm_limits names {modality}, and a prompt with one {said}")
        refused = {i: w for i, w in bench.refused.items() if i.modality == modality}
        if any(bench.alone(each).forbidden for each in refused):
            return unjudged(f"no item is known of {modality}, whose items are refused: {ALLOW}")
        said = next(iter(refused.values()), None)
        unknown.append(f"{modality} ({said})" if said else modality)
    if unknown:
        why = f"no item is known of {', '.join(unknown)}"
        if not bench.lacks:
            why += ": give some that it takes in [multimodal] items"
        return unjudged(why)
    return passed(len(wanted))


def promised(trial: Trial) -> Finding:
    """Items, forms and options that the profile names are processed."""
    bench = trial.bench
    lacking = ""
    for one in bench.promised:
        if not bench.limits.get(one.modality):
            continue  # the deployment allows none
        prompt = alone(bench.as_taken(one))
        found = bench.processed(prompt)
        if found.forbidden:
            lacking = lacking or f"{one.modality} {one.text!r} is refused: {ALLOW}"
        elif found.lacks:
            lacking = lacking or f"{one.modality} {one.text!r} {found.describe()}"
        elif not found.good:
            what = f"{one.modality} {one.text!r}, which the profile names, {found.describe()}"
            return failed(what, case={"shown": prompt})
    options = range(1, len(bench.stock.options))
    for number, (modality, items) in product(options, bench.stock.items.items()):
        prompts = [alone(each, number) for each in items]
        if not any(bench.processed(each).good for each in prompts):
            what = f"with {bench.stock.chosen(number)}, options of the profile, no {modality}"
            said = f"{what} is taken: the first {bench.processed(prompts[0]).describe()}"
            return failed(said, case={"shown": prompts[0]})
    count = len(bench.promised) + len(options)
    if not count:
        return inapplicable("the profile names no items, forms or options")
    return unjudged(lacking) if lacking else passed(count)


def odd(trial: Trial) -> Finding:
    """Items of unusual sizes and forms are processed, or refused as the client's error."""
    bench = trial.bench
    for one, why in bench.failing.items():
        return failed(f"{one.modality} {one.text!r} {why}, {_OF_SERVER}")
    if not bench.unusual:
        return inapplicable("no unusual items of its modalities are known")
    for count, one in enumerate(bench.unusual, 1):
        found = bench.alone(one)
        if not (found.good or found.of_client or found.lacks):
            what = f"{one.modality} {one.text!r} {found.describe()}, {_OF_SERVER}"
            return failed(what, count, case={"shown": alone(one)})
    return passed(len(bench.unusual))


#: Bytes, and seconds of processor time, that an item may take which is some megabytes itself.
MOST_MEMORY, MOST_SECONDS = 2 * 1024 * MEBIBYTE, 10.0


def fits(trial: Trial) -> Finding:
    """No item of an extreme shape or length fills or stalls the process."""
    items = trial.extreme()
    if not items:
        return inapplicable("no item of an extreme shape is known of its modalities")
    if _taking(trial.bench, items):  # which one it is tells only one by one
        for count, one in enumerate(items, 1):
            if took := _taking(trial.bench, [one]):
                what = f"{one.modality} {one.text!r}"
                return failed(f"{what} {took}", count)
    return passed(len(items))


def _taking(bench: Bench, items: Sequence[Item]) -> str | None:
    """Say what processing any of some items takes, where it is too much, or return None."""
    with measured() as cost:
        for one in items:
            found = bench.process(alone(one))
            if found.error is not None and no_memory(said(found.error)):
                return f"fills the server: it {found.describe()}"
            del found
    if cost.memory > MOST_MEMORY:
        return f"fills the server: it takes {cost.memory // MEBIBYTE} MiB"
    if cost.seconds > MOST_SECONDS:
        return f"stalls the server: it takes {cost.seconds:.0f} s of processor time"
    return None


def too_many(trial: Trial) -> Finding:
    """More items than are allowed are the client's error."""
    return _exceeded(trial, late=False)


def early(trial: Trial) -> Finding:
    """What is too much is refused before any work is done on it."""
    return _exceeded(trial, late=True)


def _exceeded(trial: Trial, *, late: bool) -> Finding:
    bench = trial.bench
    count = 0
    for modality, items in bench.stock.items.items():
        limit = bench.limits[modality]
        prompt = crowded(items, limit + 1)
        found, worked = _watched(bench, bench.tokens(prompt), prompt.data())
        count += 1
        what = f"{limit + 1} items of {modality}, of which {limit} are allowed,"
        if late:
            if not found.good and worked:
                return failed(f"{what} are refused after {worked} has been called", count)
        elif found.good:
            return failed(f"{what} are processed", count)
        elif not found.of_client:
            return failed(f"{what}: it {found.describe()}, {_OF_SERVER}", count)
    return passed(count)


@attrs.frozen
class _Watched:
    """Notes that a method is called."""

    name: str
    method: Any
    called: list[str]

    def __call__(self, *args: object, **kwargs: object) -> object:
        self.called.append(self.name)
        return self.method(*args, **kwargs)


def _watched(bench: Bench, tokens: list[int], data: dict[str, Any]) -> tuple[Answer, str | None]:
    """Process a prompt; return what came of it, and which method worked on its data."""
    processor = bench.processor()
    called: list[str] = []
    for name in _WORK:
        setattr(processor, name, _Watched(name, getattr(processor, name), called))
    found = answer(lambda: bench.host.process(processor, tokens, data, {}))
    return found, called[0] if called else None


def unsupported(trial: Trial) -> Finding:
    """Modalities that are not declared are refused as the client's error."""
    bench = trial.bench
    count = 0
    for modality in (*USUAL, "hologram"):
        if modality in bench.supported:
            continue
        values = USUAL.get(modality)
        data: Any = item(modality, values[0], None).make() if values else "a hologram"
        if modality == "audio":
            # With a sampling rate vLLM's own parser fails, before it looks what is supported.
            data = data[0]
        found, worked = _watched(bench, bench.texts.text(0, 3), {modality: [data]})
        count += 1
        if found.good:
            return failed(f"{modality} is not supported, and an item of it is processed", count)
        if not found.of_client:
            said = found.describe()
            return failed(f"an item of {modality}: it {said}, {_OF_SERVER}", count)
        if worked:
            return failed(f"an item of {modality} is refused after {worked} has been called", count)
    return passed(count)
