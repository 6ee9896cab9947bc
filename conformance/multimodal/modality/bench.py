# SPDX-License-Identifier: Apache-2.0
"""A plugin class, what it is given, and items that are alone."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from conformance.checking import Undecided
from conformance.multimodal.modality import models, promises, stock
from conformance.multimodal.modality.calls import ask, runtime
from conformance.multimodal.modality.media import FORMS
from conformance.multimodal.modality.models import Model
from conformance.multimodal.modality.promises import Promises
from conformance.multimodal.modality.served import Served, parsed, run_through
from conformance.multimodal.modality.stock import Sample
from conformance.settings import UsageError
from conformance.suite import Opening
from conformance.watching.interruption import CONSTRUCTOR_LIMIT, PluginExited, in_call, limited
from conformance.watching.raised import said

#: Tokens that a prompt of the simulator may have.
LENGTH = 1_000_000


class ConstructorRaised(Exception):
    """Making an instance raised."""


@attrs.define(eq=False)
class Bench:
    """One class, and what it is given."""

    cls: type[Any]
    section: Mapping[str, Any]
    origin: str | None  #: of the profile
    folders: tuple[Path, ...]  #: where files of the profile may lie
    seed: int
    promises: Promises
    forms: tuple[str, ...] = ()  #: in which the profile says that ordinary items are taken
    #: How files are handed over: the first form in which the plugin takes one.
    form: str = "bytes"
    #: What the plugin takes, and what became of the rest.
    samples: tuple[Sample, ...] = ()
    declined: dict[str, Served] = attrs.field(factory=dict)
    _models: tuple[Model, ...] | None = None
    _sorted: bool = False
    _why: str = ""
    _configs: dict[str, Any] = attrs.field(factory=dict)
    _alone: dict[tuple[Sample, str], Served] = attrs.field(factory=dict)

    @classmethod
    def open(
        cls,
        plugin: type[Any],
        section: Mapping[str, Any],
        *,
        origin: str | None,
        folders: Sequence[Path],
        seed: int,
    ) -> Bench:
        """Prepare for a class.

        Raises:
            UsageError: the profile names what is not there.

        """
        runtime("interface")
        known = tuple(folder for folder in dict.fromkeys(folders) if folder.is_dir())
        said_of = promises.promised(section, known, origin=origin, seed=seed)
        forms = promises.forms(section, (*FORMS, stock.ARRAY, stock.PICTURE), origin)
        bench = cls(plugin, section, origin, known, seed, said_of, forms)
        if "model" in section:
            model = promises.named(section["model"], known, origin)
            if not hasattr(model, "get_multimodal_config"):
                raise UsageError(
                    f"profile {origin}: [multimodal] model {section['model']!r} is no model of a "
                    "modality: it must be a class with get_multimodal_config."
                )
            bench._models = (models.of_class(model),)
        return bench

    def document(self) -> dict[str, Any]:
        """Return the effective profile, for the certificate."""
        return {"origin": self.origin or "none", **dict(self.section)}

    def saved(self) -> dict[str, Any]:
        """Return the profile as a case file can hold it, or where it can be had again."""
        section = {
            key: self.section[key]
            for key in ("model", "forms", "valid", "invalid")
            if key in self.section
        }
        try:
            json.dumps(section, allow_nan=False)
        except (TypeError, ValueError):
            return {"profile": self.origin}
        return {"section": section}

    def make(self) -> Any:  # noqa: ANN401 - a plugin
        """Make an instance.

        Raises:
            ConstructorRaised: it raised.
            PluginExited: it raised ``SystemExit``.
            PluginHung: it did not return.

        """
        try:
            with limited(CONSTRUCTOR_LIMIT), in_call("making an instance"):
                plugin = self.cls()
        except SystemExit as error:
            what = f"making an instance raised SystemExit({error.code})"
            raise PluginExited(what) from None
        except Exception as error:
            raise ConstructorRaised(said(error)) from error
        return runtime("completion").completed(plugin)

    @property
    def modality(self) -> str:
        """The modality, as far as the plugin says one."""
        found = ask("modality", getattr, self.make(), "modality")
        return found.value if isinstance(found.value, str) else ""

    @property
    def models(self) -> tuple[Model, ...]:
        """The models that items are wanted by."""
        self.sort_out()
        assert self._models is not None  # or sorting out has raised
        return self._models

    def config(self, model: Model) -> Any:  # noqa: ANN401 - a ModelConfig
        """Return the configuration of a model."""
        if model.name not in self._configs:
            self._configs[model.name] = self.deployed(model)
        return self._configs[model.name]

    def deployed(self, model: Model, **options: object) -> Any:  # noqa: ANN401 - a ModelConfig
        """Return the configuration of a model as somebody deploys it."""
        registry = self.registry(self.make(), model)
        return registry.get_model_config(model.name, max_model_len=LENGTH, **options)

    def registry(self, plugin: object, model: Model) -> Any:  # noqa: ANN401 - a MultiModalRegistry
        """Return a registry with a plugin and a model."""
        registry = runtime("registry").MultiModalRegistry()
        registry.register_plugin(plugin)
        registry.register_model(model.name, model)
        return registry

    def serve(self, plugin: object, sample: Sample, model: Model | None = None) -> Served:
        """Take one item the whole way."""
        return run_through(plugin, sample.data(self.form), self.config(model or self.models[0]))

    def alone(self, sample: Sample, model: Model | None = None) -> Served:
        """Return what a fresh instance makes of a sample when it is given nothing else."""
        model = model or self.models[0]
        key = (sample, model.name)  # two samples may have one name
        if key not in self._alone:
            self._alone[key] = self.serve(self.make(), sample, model)
        return self._alone[key]

    @property
    def good(self) -> tuple[Sample, ...]:
        """The samples that the plugin takes.

        Raises:
            Undecided: there are none.

        """
        self.sort_out()
        return self.samples

    @property
    def offered(self) -> tuple[Sample, ...]:
        """Everything that the plugin may take."""
        named = self.encodings()
        files = any(form in FORMS for form in self.forms)

        def promised(sample: Sample) -> bool:
            file = files and sample.plain and (not named or sample.encoding in named)
            return file or sample.form in self.forms

        usual = stock.usual(self.modality)
        return (
            *self.promises.valid,
            *(attrs.evolve(one, promised=promised(one)) for one in usual),
        )

    @property
    def lacks(self) -> str:
        """What this environment has no library for, as far as items were declined for that."""
        for name, served in self.declined.items():
            if served.missing:
                return f"{name}: {served.trouble()}"
        return ""

    def encodings(self) -> frozenset[str]:
        """Return the encodings that the plugin's limits name, in capitals."""
        limits = ask("limits", getattr, self.make(), "limits").value
        named = getattr(limits, "encodings", ())
        if not isinstance(named, (frozenset, set, list, tuple)):
            return frozenset()
        return frozenset(str(name).upper() for name in named)

    def sort_out(self) -> None:
        """Find out which samples the plugin takes, in which form, and which models suit it.

        Raises:
            Undecided: none, or no model.

        """
        if not self._sorted:
            self._sorted = True
            self._why = self._sort_out() or ""
        if self._why:
            raise Undecided(self._why)

    def sorted_out(self) -> bool:
        """Tell whether there are samples and models."""
        try:
            self.sort_out()
        except Undecided:
            return False
        return True

    def _sort_out(self) -> str | None:
        taken = self._taken()
        if not taken:
            return _unknown(self.modality, self.offered, self.declined)
        if why := self._suited(taken):
            return why
        good = []
        for sample in taken:
            served = self.alone(sample, (self._models or ())[0])
            if served.good:
                good.append(sample)
            else:
                self.declined[sample.name] = served
        self.samples = tuple(good)
        return None if good else _unknown(self.modality, self.offered, self.declined)

    def _taken(self) -> list[Sample]:
        """Return the samples that are parsed, files in the first form in which one is."""
        # Where nothing that is a file is known, every form is as good as another.
        files = any(sample.mime for sample in self.offered)
        for form in FORMS if files else ():
            taken, declined = self._parsed(form)
            if any(sample.mime for sample in taken):
                break
        else:
            form = "bytes"
            taken, declined = self._parsed(form)
        self.form, self.declined = form, declined
        return taken

    def _parsed(self, form: str) -> tuple[list[Sample], dict[str, Served]]:
        """Return the samples that are parsed, files in a form, and what became of the others."""
        taken, declined = [], {}
        for sample in self.offered:
            found = parsed(self.make(), sample.data(form))
            if found.good:
                taken.append(sample)
            else:
                declined[sample.name] = found
        return taken, declined

    def _suited(self, taken: Sequence[Sample]) -> str | None:
        """Choose the models; say why there are none, or return None."""
        if self._models is not None:
            return None
        raised = ""
        chosen = []
        indifferent = False
        for model in models.usual(self.modality):
            config, recipes = _recorded(self.deployed(model))
            for sample in taken:
                served = run_through(self.make(), sample.data(self.form), config)
                if served.good:
                    # What wants nothing of the recipe cannot be held against its encoder.
                    indifferent |= not recipes.read
                    chosen += [model] if recipes.read else []
                    break
                raised = raised or served.trouble()
        if indifferent:
            chosen = chosen or [models.of_recipe(self.modality, None)]
        self._models = tuple(chosen or self._asked_for(taken))
        if self._models:
            return None
        return (
            f"no model is known that wants this modality{': ' + raised if raised else ''}; name "
            'one in the profile: [multimodal] model = "models.py:Model"'
        )

    def _asked_for(self, taken: Sequence[Sample]) -> list[Model]:
        """Return a model with the recipe that the plugin asks for, made without arguments."""
        kinds: list[type[Any]] = []
        base = runtime("interface").ModelConfig

        class Probe(base):  # type: ignore[misc, valid-type] # known when it runs
            def get_recipe(self, modality: str, kind: type[Any]) -> object:  # noqa: ARG002 - overrides a method with these arguments
                kinds.append(kind)
                return kind()

        nothing = models.of_recipe(self.modality, None)
        config = Probe(nothing.name, nothing.declare(), LENGTH)
        for sample in taken:
            if run_through(self.make(), sample.data(self.form), config).good:
                recipe = kinds[0]() if kinds else None
                return [models.of_recipe(self.modality, recipe)]
        return []


def opened(opening: Opening) -> Bench:
    """Prepare for the plugin that a trial is opened with.

    Raises:
        UsageError: the profile names what is not there.

    """
    settings, path = opening.settings, opening.plugin.path
    named = settings.directory / settings.profile if settings.profile else None
    folders = [
        *([named.parent] if named is not None and named.is_file() else []),
        *([Path(path).parent] if path else []),
        settings.directory,
    ]
    return Bench.open(
        opening.cls, opening.section, origin=opening.origin, folders=folders, seed=settings.seed
    )


class _Recorded(dict[str, Any]):
    """Recipes by modality that remember being read."""

    read = False

    def __getitem__(self, modality: str) -> Any:  # noqa: ANN401 - a recipe
        self.read = True
        return super().__getitem__(modality)

    def get(self, modality: str, default: object = None) -> Any:  # noqa: ANN401 - a recipe
        self.read = True
        return super().get(modality, default)


def _recorded(config: Any) -> tuple[Any, _Recorded]:  # noqa: ANN401 - a ModelConfig
    """Return a configuration with recipes that remember being read, and these."""
    recipes = _Recorded(config.multimodal.recipes)
    multimodal = copy.copy(config.multimodal)
    object.__setattr__(multimodal, "recipes", recipes)  # it is frozen, and this copy is nobody's
    return attrs.evolve(config, multimodal=multimodal), recipes


def _unknown(modality: str, offered: Sequence[Sample], declined: Mapping[str, Served]) -> str:
    """Say why nothing is known that the plugin takes."""
    profile = 'give some in the profile: [multimodal] valid = [{ file = "sample" }]'
    if not offered:
        return f"no items of modality {modality!r} are known; {profile}"
    name, served = next(iter(declined.items()), ("", None))
    said_of = f", such as {name}: {served.trouble()}" if served else ""
    return f"none of {len(offered)} items was taken{said_of}; {profile}"
