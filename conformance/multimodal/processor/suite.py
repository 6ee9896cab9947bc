# SPDX-License-Identifier: Apache-2.0
"""What workers ask: is a class a model with a processor, open its trial, replay its case."""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Callable, Mapping
from typing import Any

import vllm
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.models.registry import ModelRegistry
from vllm.plugins import load_general_plugins

from conformance.plugin import loader, registration
from conformance.plugin import target as targets
from conformance.plugin.target import Target
from conformance.rules import Evidence, nearest
from conformance.settings import UsageError
from conformance.suite import Opening, OwnHost, Replayed, Suite, Trial, Unopened
from conformance.watching.loading_process import Maker
from conformance.watching.raised import said

STARTER = """\
[multimodal]
model = "my_package.checkpoint:write"   # writes config.json and what the processor reads
"""


def _recognises(cls: type) -> bool:
    """Tell whether a processor is registered for a class."""
    return getattr(cls, "_processor_factory", None) is not None


def _meant(cls: type) -> bool:
    """Tell whether the author plainly meant a multi-modal model."""
    return callable(getattr(cls, "embed_multimodal", None)) and callable(
        getattr(cls, "get_placeholder_str", None)
    )


def _resolved(target: Target) -> Target:
    """Follow a model's folder, or an entry point of general plugins, to the model class.

    Raises:
        UsageError: there is no such module, or no such function in it, or vLLM does not know the
            architecture.
        LoadFailure: the function raised.

    """
    if target.module == targets.MODEL_REGISTRY:
        return _of_architecture(target)
    if (function := loader.registrar(target)) is None:
        return target
    where = f"the entry point's function {target.module}:{target.qualname}"
    before, ModelRegistry.models = ModelRegistry.models, {}
    try:
        function()
        classes = {name: entry.load_model_cls() for name, entry in ModelRegistry.models.items()}
    except Exception as error:
        raise loader.failure(target, f"{where} raised {said(error)}", error) from error
    finally:
        ModelRegistry.models = {**before, **ModelRegistry.models}
    for name, cls in classes.items():
        if _recognises(cls):
            return registration.at_its_name(target, cls, name)
    return target  # it may register what is no model


def _of_architecture(target: Target) -> Target:
    name = target.qualname or ""
    load_general_plugins()
    entry = ModelRegistry.models.get(name)
    if entry is None:
        raise UsageError(
            f"target {target.text!r}: vLLM {vllm.__version__} knows no architecture "
            f"{name!r}." + nearest(name, ModelRegistry.models)
        )
    try:
        cls = entry.load_model_cls()
    except Exception as error:
        raise loader.failure(target, f"importing {name} raised {said(error)}", error) from error
    return registration.at_its_name(target, cls, name)


def _maker(model: str, section: Mapping[str, Any]) -> Maker:
    """Return what makes processors as the front end does, where a checkpoint is known."""

    def ready() -> Callable[[type], object]:
        EngineArgs(model=model).create_engine_config()  # what vLLM does then is not the plugin's
        return make

    def make(cls: type) -> object:
        from conformance.multimodal.processor.checkpoint import folder_of, name_of, remove
        from conformance.multimodal.processor.deployment import arguments
        from conformance.multimodal.processor.host import Host

        name = name_of(section, cls)
        if name is None:
            return None
        folder = folder_of(name)
        try:
            named = arguments(section, None)
            return Host.open(cls, folder, tuple(section.get("items", {})), named).processor()
        finally:
            remove(folder)

    return ready


def _open(opening: Opening) -> Trial:
    """Open the trial of a model class on one kind of evidence.

    Raises:
        UsageError: the profile names no checkpoint that there is, or its items are none.

    """
    try:
        from conformance.multimodal.processor.answers import CannotBuild
        from conformance.multimodal.processor.bench import Bench
    except ImportError as error:
        said = re.sub(r" [(]/.*[)]", "", str(error))
        return Unopened(
            "multi-modal processors are certified as vLLM 0.31 and later calls them, which the "
            f"installed one is not: {said}",
            opening.evidence,
        )
    from conformance.multimodal.processor.checkpoint import chosen, folder_of
    from conformance.multimodal.processor.checks import trial as simulation
    from conformance.multimodal.processor.host import tokenless
    from conformance.multimodal.processor.trial import LOADS

    cls, section, settings = opening.cls, opening.section, opening.settings
    name = chosen(opening.plugin, section, settings, cls)
    if name is None:
        why = f"no tiny checkpoint of {cls.__name__} is known; give a profile such as\n{STARTER}"
        return Unopened(why, opening.evidence)
    checkpoint = folder_of(name)
    if tokenless(cls, checkpoint):
        return Unopened(
            "the processor needs no tokenizer and the checkpoint has none, and prompts cannot be "
            "made here without one: put any tokenizer into the checkpoint's folder",
            opening.evidence,
        )
    if opening.evidence is Evidence.SIMULATOR:
        origin, seed = opening.origin, settings.seed
        try:
            bench = Bench.open(cls, checkpoint, name, section, origin=origin, seed=seed)
        except CannotBuild as error:
            return Unopened(str(error), opening.evidence, LOADS)
        return simulation(bench, section, settings.budget)
    folder = f"conformance.multimodal.processor.{opening.evidence.value}"
    trial: Trial = importlib.import_module(folder).Trial(opening, name, str(checkpoint))
    return trial


def _own_host(_: Mapping[str, Any]) -> OwnHost | None:
    """Return a server of one of vLLM's own models that take images: options may be about items."""
    from conformance.engine.multimodal_models import of_class

    tiny = of_class("LlavaForConditionalGeneration")
    if tiny is None or not all(map(importlib.util.find_spec, tiny.requires)):
        return None
    return OwnHost(str(tiny.folder()))


def _replay(cls: type, counterexample: Mapping[str, Any], _model: str) -> Replayed:
    """Judge a counterexample again."""
    from conformance.multimodal.processor.replays import again

    return again(cls, counterexample)


SUITE = Suite(
    base="a model class that MULTIMODAL_REGISTRY.register_processor decorates (vllm.multimodal."
    "MULTIMODAL_REGISTRY)",
    recognises=_recognises,
    meant=_meant,
    open_trial=_open,
    replay=_replay,
    resolved=_resolved,
    maker=_maker,
    own_host=_own_host,
    shares=("MM-79", "MM-01"),
    called_by_host=True,
)
