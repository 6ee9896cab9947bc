# SPDX-License-Identifier: Apache-2.0
"""What workers ask: is a class a plugin of a modality, open its trial, replay its case."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import vllm

from conformance.plugin import profile as profiles
from conformance.rules import Evidence
from conformance.settings import Budget
from conformance.suite import Opening, Replayed, Suite, Trial, Unopened, replayed

#: The methods by which the interface is told from others.
_TELLING = ("parse_input", "validate", "get_max_per_prompt")


def _recognises(cls: type) -> bool:
    """Tell whether a class is a plugin of a modality: it has the methods that tell."""
    # The interface itself, which is a protocol, is no plugin of it.
    return not getattr(cls, "_is_protocol", False) and all(
        callable(getattr(cls, name, None)) for name in _TELLING
    )


def _meant(cls: type) -> bool:
    """Tell whether the author plainly meant a plugin of a modality."""
    has = [name for name in _TELLING if callable(getattr(cls, name, None))]
    return _recognises(cls) or ("parse_input" in has and len(has) > 1)


def _open(opening: Opening) -> Trial:
    """Open the trial of a plugin: in the simulator, or served by a real vLLM."""
    if opening.evidence is not Evidence.SIMULATOR:
        from vllm.multimodal.processing import BaseMultiModalProcessor

        if not hasattr(BaseMultiModalProcessor, "_get_hf_mm_inputs"):
            why = f"vLLM {vllm.__version__} is too old for the bridge, which needs 0.31 or later"
            return Unopened(why, opening.evidence)
        folder = f"conformance.multimodal.modality.{opening.evidence.value}"
        live: Trial = importlib.import_module(folder).Trial(opening)
        return live
    from conformance.multimodal.modality import checks
    from conformance.multimodal.modality.bench import opened

    return checks.trial(opened(opening), opening.settings.budget)


def _replay(cls: type, counterexample: Mapping[str, Any], _model: str) -> Replayed:
    """Make a check again."""
    from conformance.multimodal.modality import checks
    from conformance.multimodal.modality.bench import Bench

    origin = str(counterexample.get("profile", "the case"))
    section = counterexample.get("section")
    if section is None:
        section = profiles.load(origin, Path.cwd()).section("multimodal")
    folders = [Path(each) for each in counterexample["folders"]]
    seed = int(counterexample["seed"])
    bench = Bench.open(cls, section, origin=origin, folders=folders, seed=seed)
    return replayed(checks.trial(bench, Budget.STANDARD).check(counterexample["rule"]))


SUITE = Suite(
    base="reference_plugins.modality.MultiModalPlugin (no base class, but parse_input, validate "
    "and get_max_per_prompt)",
    recognises=_recognises,
    meant=_meant,
    open_trial=_open,
    replay=_replay,
    maker=lambda *_: lambda: lambda cls: cls(),
    shares=("MM-80", "MM-41"),
    imports_in_server=True,
)
