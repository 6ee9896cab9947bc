# SPDX-License-Identifier: Apache-2.0
"""A plugin in a real vLLM: the model that it is served with, and the prompts that it is asked.

The reference bridge makes a model of vLLM from a plugin and an encoder; the encoder is that of the
library's recipe, or of the profile's model. What an engine makes of an item is held against what a
fresh instance of the plugin, and the same encoder, make of it here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import attrs
import torch

from conformance.multimodal.modality import shape, stock
from conformance.multimodal.modality.bench import Bench
from conformance.multimodal.modality.calls import runtime
from conformance.multimodal.modality.media import FORMS
from conformance.multimodal.modality.models import Model
from conformance.multimodal.modality.served import run_through
from conformance.multimodal.modality.stock import Sample
from conformance.plugin import profile as profiles

ARCHITECTURE = "ConformanceModality"

#: Tokens that a prompt and its answer may have, and that one item of a prompt may take.
MAX_MODEL_LEN, MOST_TOKENS = 2048, 300

#: Items of a prompt, at most, and items that are asked for by themselves.
TOGETHER, ALONE = 4, 8

#: The ids of letters: below are special tokens.
LETTERS = 32

#: Values of an embedding of the tiny model.
HIDDEN_SIZE = 64

_MODULE = "vllm_conformance_modality_entry"


@attrs.frozen(eq=False)
class Prompt:
    """Text and items in their order; a number stands for so many tokens of text."""

    parts: tuple[int | Sample, ...]

    @property
    def samples(self) -> tuple[Sample, ...]:
        """The items."""
        return tuple(part for part in self.parts if not isinstance(part, int))

    def __str__(self) -> str:
        words = [f"{part} letters" if isinstance(part, int) else str(part) for part in self.parts]
        return f"[{', '.join(words)}]"


@attrs.frozen(eq=False)
class Expected:
    """What a fresh instance makes of an item."""

    count: int
    rows: torch.Tensor  #: embeddings of shape (count, hidden size)


@attrs.define(eq=False)
class Deployment:
    """A plugin, the model that it is served with, and what may be asked."""

    bench: Bench
    serving: Any  #: a Serving of the bridge
    samples: tuple[Sample, ...]  #: that fit into a prompt
    kin: tuple[Sample, ...]  #: that differ from another one by a hair
    encodes: bool  #: whether the model has an encoder of its own
    _expected: dict[Sample, Expected] = attrs.field(factory=dict)

    @classmethod
    def of(cls, bench: Bench) -> Deployment:
        """Choose the model whose items differ most, and the items that fit.

        Raises:
            Undecided: no items are known, or no model.

        """
        bench.sort_out()
        model = max(
            bench.models,
            key=lambda model: len({count for _, count in _counts(bench, model, bench.good)}),
        )
        fits = _counts(bench, model, bench.good)
        kin = _counts(bench, model, stock.kin(bench.modality))
        samples = tuple(sample for sample, _ in fits)[:ALONE]
        largest = max(fits, key=lambda pair: pair[1])[0] if fits else None
        made = runtime("serving", "bridge").Serving.of(
            ARCHITECTURE, [bench.make()], _model(bench, model, largest), text="LlamaForCausalLM"
        )
        others = tuple(sample for sample, _ in kin)
        return cls(bench, made, samples, others, model.encode is not None)

    @property
    def modality(self) -> str:
        """The plugin's modality."""
        return self.bench.modality

    @property
    def token(self) -> int:
        """The token that stands for an item."""
        return int(self.serving.placeholder_tokens[self.modality])

    @property
    def limit(self) -> int:
        """How many items a prompt may have."""
        return int(self.bench.make().get_max_per_prompt(self.serving.config(MAX_MODEL_LEN)))

    def expected(self, sample: Sample) -> Expected:
        """Return what a fresh instance makes of an item."""
        if sample not in self._expected:  # two samples may have one name
            self._expected[sample] = self.made(sample)
        return self._expected[sample]

    def made(self, sample: Sample) -> Expected:
        """Return what another fresh instance makes of an item."""
        config = self.serving.config(MAX_MODEL_LEN)
        served = run_through(self.bench.make(), sample.data(self.bench.form), config)
        rows = torch.from_numpy(self.serving.encode(served.features, served.count))
        return Expected(served.count, runtime("model", "bridge").projected(rows, HIDDEN_SIZE))

    def tokens(self, prompt: Prompt) -> tuple[int, ...]:
        """Return the tokens of a prompt, one for each item."""
        found: list[int] = []
        for place, part in enumerate(prompt.parts):
            letters = range(part) if isinstance(part, int) else ()
            found += [LETTERS + (5 * place + letter) % 64 for letter in letters]
            found += [] if isinstance(part, int) else [self.token]
        return tuple(found)

    def data(self, prompt: Prompt) -> dict[str, list[Any]]:
        """Return the items of a prompt as `LLM.generate` takes them."""
        return {self.modality: [each.data(self.bench.form) for each in prompt.samples]}

    def prompts(self) -> list[Prompt]:
        """Return prompts with one item each, and with several in different orders."""
        samples, limit = self.samples, min(self.limit, TOGETHER)
        found = [Prompt((2, sample, 3)) for sample in samples]
        if limit > 1 and samples:
            one, other = samples[0], samples[-1]
            found += [Prompt((1, one, other)), Prompt((other, 2, one, 1)), Prompt((one, 2, one))]
            found.append(Prompt((*samples[:limit], 2)))
        return found

    def sendable(self, sample: Sample) -> object:
        """Return an item as a part of a chat can hold it, or None: JSON knows no bytes."""
        wanted = self.bench.alone(sample)
        for value in written(sample):
            served = self.bench.serve(self.bench.make(), stock.given(sample.name, value))
            if served.good and not shape.arrays(served.features, wanted.features):
                return value
        return None


def _counts(bench: Bench, model: Model, samples: Sequence[Sample]) -> list[tuple[Sample, int]]:
    """Return the samples that a model takes, each number of tokens first seen first."""
    found: dict[int, list[Sample]] = {}
    for sample in samples:
        served = bench.alone(sample, model)
        if served.good and isinstance(served.count, int) and 0 < served.count <= MOST_TOKENS:
            found.setdefault(served.count, []).append(sample)
    firsts = [(samples[0], count) for count, samples in found.items()]
    return firsts + [(one, count) for count, samples in found.items() for one in samples[1:]]


def _model(bench: Bench, model: Model, largest: Sample | None) -> type[Any]:
    """Return a model as the bridge takes it."""
    interface = runtime("interface")
    declared = model.declare()
    first = runtime("checkpoint", "bridge").FIRST

    class Served:
        @classmethod
        def get_multimodal_config(cls) -> Any:  # noqa: ANN401 - a MultiModalConfig
            return interface.MultiModalConfig(
                declared.modalities,
                recipes=dict(declared.recipes),
                placeholder_tokens={
                    name: first + at for at, name in enumerate(declared.modalities)
                },
                **{f"max_{name}_per_prompt": n for name, n in declared.max_per_prompt.items()},
            )

        @classmethod
        def get_dummy_item(cls, modality: str) -> object:  # noqa: ARG003 - what a client sends
            assert largest is not None
            return largest.data(bench.form)

    if (encode := model.encode) is not None:
        Served.get_multimodal_embeddings = lambda _, **features: encode(features)  # type: ignore[attr-defined] # as the bridge asks for it
    return Served


def written(sample: Sample) -> list[Any]:
    """Return an item in the forms in which JSON might hold it."""
    value = sample.make()
    if isinstance(value, bytes):
        mime = sample.mime or "application/octet-stream"
        named = ("mapping with a data URL", "data URL", "mapping with base64", "base64")
        return [FORMS[form](value, mime) for form in named]
    if hasattr(value, "tolist"):
        value = value.tolist()
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return []
    return [value]


def checkpoint(folder: Path, deployment: Deployment) -> Path:
    """Write a tiny checkpoint for a plugin."""
    modalities = deployment.serving.modalities
    written: Path = runtime("checkpoint", "bridge").write(folder, ARCHITECTURE, modalities)
    return written


def entry_module(folder: Path, **arguments: object) -> str:
    """Write a module whose function ``register`` has vLLM serve a plugin.

    Returns:
        The name of the module.

    """
    folder.mkdir(parents=True, exist_ok=True)
    source = f"""\
def register():
    from conformance.multimodal.modality.deployment import install

    install(**{arguments!r})
"""
    (folder / f"{_MODULE}.py").write_text(source, encoding="utf-8")
    return _MODULE


def install(
    *,
    name: str,
    section: Mapping[str, Any] | None,
    origin: str | None,
    folders: Sequence[str],
    seed: int,
) -> None:
    """Register a plugin with this process's vLLM, as :func:`entry_module` has it."""
    cls = resolve_name(name)
    if section is None:
        section = profiles.load(str(origin), Path.cwd()).section("multimodal")
    known = [Path(folder) for folder in folders]
    register(Deployment.of(Bench.open(cls, section, origin=origin, folders=known, seed=seed)))


def register(deployment: Deployment) -> None:
    """Register a plugin with this process's vLLM, with instances of its own."""
    bridge = import_module("reference_plugins.bridge")
    model = type(deployment.serving.model)
    bridge.register(ARCHITECTURE, [deployment.bench.make()], model)
