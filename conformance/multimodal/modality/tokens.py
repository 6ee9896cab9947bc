# SPDX-License-Identifier: Apache-2.0
"""Checks of token counts: the estimate, the placeholders, and the rows of the encoder."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from conformance.checking import checks
from conformance.findings import Finding, failed, inapplicable, passed
from conformance.multimodal.modality import shape
from conformance.multimodal.modality.bench import LENGTH, Bench
from conformance.multimodal.modality.calls import ask, refused, runtime, whole
from conformance.multimodal.modality.models import Model
from conformance.multimodal.modality.neighbours import near, shorter
from conformance.multimodal.modality.stock import Sample, drawn
from conformance.multimodal.modality.trial import Trial, table
from conformance.multimodal.processor.answers import Answer
from conformance.search import ITEMS as EFFORT
from conformance.search import smallest
from conformance.watching.comparison import shortened
from conformance.watching.raised import said

#: Items of a prompt.
ITEMS = 4

#: How many columns of rows are merged into a prompt; counts are what matters.
WIDTH = 2

#: Different tokens of text around items.
TEXT = 3


@checks("MM-63")
def numbers(trial: Trial) -> Finding:
    """Both numbers are whole, one or more, and the same when they are asked for again."""
    bench = trial.bench
    for sample in bench.good:
        for model in bench.models:
            served = bench.alone(sample, model)
            if not served.good:
                continue
            plugin, config = bench.make(), bench.config(model)
            for name, value, argument in (
                ("estimate_tokens", served.estimate, served.item),
                ("count_tokens", served.count, served.features),
            ):
                if not _number(value):
                    return failed(f"{name} returned {shortened(value)} for {sample}")
                found = ask(name, getattr(plugin, name), argument, config)
                if not found.good:
                    assert found.error is not None
                    return failed(f"{name}, asked again about {sample}, raised {said(found.error)}")
                if found.value != value:
                    return failed(
                        f"{name} returned {value} for {sample}, and asked again {found.value}"
                    )
    return passed(len(bench.good))


def _number(value: Any) -> bool:  # noqa: ANN401 - what the plugin returned
    return (whole(value) or 0) > 0


def _any(bench: Bench) -> SearchStrategy[tuple[Sample, Model]]:
    encodings = sorted({sample.encoding for sample in bench.good if sample.plain})
    mine = st.sampled_from(bench.good)
    others = drawn(bench.modality, encodings)
    return st.tuples(mine if others is None else others | mine, st.sampled_from(bench.models))


@checks("MM-64", after=("MM-63",))
def never_below(trial: Trial) -> Finding:
    """Items of any size take no more tokens than was estimated."""
    bench = trial.bench
    acted = declined = 0
    short = shorter(bench.modality, bench.good)

    def judge(example: tuple[Sample, Model]) -> tuple[Sample, Model, int, int] | None:
        nonlocal acted, declined
        sample, model = example
        served = bench.serve(bench.make(), sample, model)
        if not (served.good and _number(served.estimate) and _number(served.count)):
            declined += sample in short  # of a file, say, no beginning is any
            return None
        acted += 1
        over = served.count > served.estimate
        return (sample, model, served.estimate, served.count) if over else None

    search = partial(smallest, judge=judge, effort=EFFORT, budget=trial.budget, seed=bench.seed)
    beside = *near(bench.modality, bench.good), *short
    count, worst = search(_any(bench), first=[(each, bench.models[0]) for each in beside])
    if worst:
        sample, model, estimate, actual = worst
        return failed(
            f"{sample} takes {actual} tokens, and estimate_tokens said {estimate} (model "
            f"{model.name})",
            count,
            case=table(
                ("item", "what", "estimated", "actual"),
                [("0", str(sample), str(estimate), str(actual))],
            ),
        )
    return passed(count - declined, acted)


@checks("MM-65", after=("MM-63", "MM-64"))
def exact(trial: Trial) -> Finding:
    """Where every item takes the same number, the estimate is that number."""
    bench = trial.bench
    fixed = 0
    for model in bench.models:
        every = [bench.alone(sample, model) for sample in bench.good]
        served = [each for each in every if each.good]
        counts = {each.count for each in served}
        # Arrays of different sizes, or their sameness says nothing about the model.
        if len(counts) != 1 or len(served) < 2:  # noqa: PLR2004 - two to compare
            continue
        fixed += len(served)
        for sample, each in zip(bench.good, every, strict=True):
            if each.good and each.estimate != each.count:
                return failed(
                    f"every item takes {each.count} tokens, and the estimate for {sample} was "
                    f"{each.estimate} (model {model.name})"
                )
    if not fixed:
        return inapplicable("items take different numbers of tokens")
    return passed(fixed)


def _processor(bench: Bench, plugin: Any, model: Model) -> tuple[Any, int]:  # noqa: ANN401 - vLLM's, and a plugin
    """Return the pipeline with a plugin and a model, and how many items a prompt may have."""
    registry = bench.registry(plugin, model)
    config = registry.get_model_config(model.name, max_model_len=LENGTH)
    processor = runtime("processor").MultiModalProcessor(registry, config)
    return processor, plugin.get_max_per_prompt(config)


def _processed(bench: Bench, plugin: object, model: Model, samples: tuple[Sample, ...]) -> Answer:
    """Return what the pipeline makes of a request with text around each of some items."""
    processing = runtime("processor")
    placeholders = bench.config(model).multimodal.placeholder_tokens
    taken = frozenset(placeholders.values())
    letters = (token for token in itertools.count(1) if token not in taken)
    first, *others = itertools.islice(letters, TEXT)
    tokens = [first]
    for _ in samples:
        tokens += [placeholders[bench.modality], *others]
    request = processing.Request(
        tuple(tokens),
        tuple(processing.Attachment(bench.modality, sample.data(bench.form)) for sample in samples),
    )
    processor, _ = _processor(bench, plugin, model)
    return ask("the pipeline", processor.process, request)


def _prompts(bench: Bench, model: Model) -> SearchStrategy[tuple[Sample, ...]] | None:
    _, most = _processor(bench, bench.make(), model)
    good = [sample for sample in bench.good if bench.alone(sample, model).good]
    if most < 1 or not good:
        return None
    return st.lists(st.sampled_from(good), min_size=1, max_size=min(ITEMS, most)).map(tuple)


@checks("MM-66", after=("MM-44", "MM-45", "MM-63", "MM-68", "MM-71"))
def rows(trial: Trial) -> Finding:
    """Each item's placeholders are as many as the rows that the encoder makes of it."""
    bench = trial.bench
    placing = runtime("placeholders")
    short = [(each,) for each in shorter(bench.modality, bench.good)]
    count = 0
    for model in bench.models:
        prompts = _prompts(bench, model)
        if model.encode is None or prompts is None or _unreadable(bench, model):
            continue
        encode = model.encode

        def judge(
            samples: tuple[Sample, ...],
        ) -> tuple[tuple[Sample, ...], str, list[tuple[int, int]]] | None:
            nonlocal count
            found = _processed(bench, bench.make(), model, samples)  # noqa: B023 - called at once
            if not found.good:
                return None
            count += 1
            inputs = found.value
            lengths = []
            given = []
            for item, place in zip(inputs.items, inputs.placeholders, strict=True):
                embeddings = _encoded(encode, item.features, known=samples not in short)  # noqa: B023 - called at once
                if embeddings is None:
                    return None
                lengths.append((place.length, len(embeddings)))
                made = np.ones((len(embeddings), WIDTH), dtype=np.float32)
                given.append(placing.ItemEmbeddings(item.modality, item.index, made))
            text = np.zeros((len(inputs.token_ids), WIDTH), dtype=np.float32)
            try:
                placing.replace(text, inputs.placeholders, given)
            except placing.PlaceholderMismatch as error:
                return samples, str(error), lengths
            return None

        _, worst = smallest(
            prompts, judge, EFFORT, budget=trial.budget, seed=bench.seed, first=short
        )
        if worst:
            samples, said_of, lengths = worst
            rows = [
                (str(index), str(sample), str(length), str(actual))
                for index, (sample, (length, actual)) in enumerate(
                    zip(samples, lengths, strict=True)
                )
            ]
            return failed(
                f"{said_of} (model {model.name}, {len(samples)} items)"
                if samples[1:]
                else f"{said_of} (model {model.name})",
                max(count, 1),
                case=table(("item", "what", "placeholders", "rows"), rows),
            )
    if not count:
        return inapplicable(
            "no model is known that encodes these arrays; a profile's model may have "
            "get_multimodal_embeddings",
        )
    return passed(count)


def _encoded(encode: Any, features: Any, *, known: bool) -> Any:  # noqa: ANN401 - a model's method, and arrays
    """Return the rows of an item; None where the encoder refuses one that is not *known*."""
    found = ask("the encoder", encode, features)
    if known and found.error is not None:
        raise found.error
    return found.value


def _unreadable(bench: Bench, model: Model) -> bool:
    """Tell whether a model's encoder does not know the arrays of this plugin."""
    assert model.encode is not None
    for sample in bench.good:
        served = bench.alone(sample, model)
        if served.good:
            return not ask("the encoder", model.encode, served.features).good
    return True


@checks("MM-67", after=("MM-44", "MM-45", "MM-63", "MM-64", "MM-68", "MM-70", "MM-71", "MM-72"))
def pipeline(trial: Trial) -> Finding:
    """In the pipeline items come out in order, each as it does alone, up to the limit."""
    bench = trial.bench
    count = 0
    for model in bench.models:
        prompts = _prompts(bench, model)
        if prompts is None:
            continue
        if why := _beyond(bench, model):
            return failed(why)

        def judge(samples: tuple[Sample, ...]) -> tuple[tuple[Sample, ...], str] | None:
            found = _processed(bench, bench.make(), model, samples)  # noqa: B023 - called at once
            what = _out_of_order(bench, model, samples, found)  # noqa: B023 - called at once
            return (samples, what) if what else None

        more, worst = smallest(prompts, judge, EFFORT, budget=trial.budget, seed=bench.seed)
        count += more
        if worst:
            samples, what = worst
            return failed(
                f"of a prompt with {', '.join(map(str, samples))}, {what} (model {model.name})",
                count,
                case=table(
                    ("item", "what"),
                    [(str(index), str(each)) for index, each in enumerate(samples)],
                ),
            )
    if not count:
        return inapplicable("a prompt may have no item of this plugin")
    return passed(count)


def _out_of_order(
    bench: Bench, model: Model, samples: tuple[Sample, ...], found: Answer
) -> str | None:
    if refused(found.error):
        single = all(bench.alone(sample, model).good for sample in samples)
        return f"the pipeline refused: {said(found.error)}" if single and found.error else None
    if found.error is not None:
        return f"the pipeline raised {said(found.error)}"
    inputs = found.value
    end = 0
    for index, (sample, item, place) in enumerate(
        zip(samples, inputs.items, inputs.placeholders, strict=True)
    ):
        alone = bench.alone(sample, model)
        if place.offset < end or place.length != alone.count:
            return f"item {index} has {place.length} placeholders, and alone {alone.count}"
        end = place.end
        if what := shape.arrays(item.features, alone.features):
            return f"item {index} is not what it is alone: {what}"
    return None


def _beyond(bench: Bench, model: Model) -> str | None:
    """Say how one item more than may be was not refused before anything was parsed."""
    watched = _Watched(bench.make())
    _, most = _processor(bench, watched, model)
    found = _processed(bench, watched, model, (bench.good[0],) * (most + 1))
    if not refused(found.error):
        return f"{most + 1} items were not refused where {most} may be"
    if watched.parsed:
        return (
            f"{most + 1} items were refused where {most} may be, but parse_input was called first"
        )
    return None


class _Watched:
    """A plugin whose calls of ``parse_input`` are counted."""

    def __init__(self, plugin: Any) -> None:  # noqa: ANN401 - a plugin
        self._plugin = plugin
        self.parsed = 0

    def parse_input(self, data: object) -> object:
        self.parsed += 1
        return self._plugin.parse_input(data)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - an attribute of the plugin
        return getattr(self._plugin, name)
