# SPDX-License-Identifier: Apache-2.0
"""What workers ask: is a class a plugin of a modality, open its trial, replay its case."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from conformance import profile as profiles
from conformance.settings import Budget, UsageError
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from conformance.rules import Evidence
    from conformance.settings import Settings
    from conformance.target import Plugin

BASE = (
    "reference_plugins.modality.MultiModalPlugin (no base class, but parse_input, validate and "
    "get_max_per_prompt)"
)

#: The methods by which the interface is told from others.
_TELLING = ("parse_input", "validate", "get_max_per_prompt")


def recognises(cls: type) -> bool:
    """Tell whether a class is a plugin of a modality: it has the methods that tell."""
    # The interface itself, which is a protocol, is no plugin of it.
    return not getattr(cls, "_is_protocol", False) and all(
        callable(getattr(cls, name, None)) for name in _TELLING
    )


def meant(cls: type) -> bool:
    """Tell whether the author plainly meant a plugin of a modality."""
    has = [name for name in _TELLING if callable(getattr(cls, name, None))]
    return recognises(cls) or ("parse_input" in has and len(has) > 1)


def open_trial(
    evidence: Evidence,
    cls: type,
    plugin: Plugin,
    section: Mapping[str, Any],
    *,
    origin: str | None,
    model: str,
    settings: Settings,
    folder: str,
) -> Any:  # noqa: ANN401 - a trial: has check(rule)
    """Open the trial of a plugin in the simulator; no engine has the interface."""
    from conformance.multimodal.modality.bench import Bench
    from conformance.multimodal.modality.trial import Trial

    del evidence, model, folder
    named = settings.directory / settings.profile if settings.profile else None
    folders = [
        *([named.parent] if named is not None and named.is_file() else []),
        *([Path(plugin.path).parent] if plugin.path else []),
        settings.directory,
    ]
    bench = Bench.open(cls, section, origin=origin, folders=folders, seed=settings.seed)
    return Trial(bench, settings.budget)


def replay(cls: type, counterexample: Mapping[str, Any], *, model: str) -> tuple[list[str], str]:
    """Make a check again; return the kinds of trouble there are now, and a message."""
    from conformance.multimodal.modality.bench import Bench
    from conformance.multimodal.modality.trial import Trial

    del model
    try:
        origin = str(counterexample.get("profile", "the case"))
        section = counterexample.get("section")
        if section is None:
            section = profiles.load(origin, Path.cwd()).section("multimodal")
        folders = [Path(each) for each in counterexample["folders"]]
        seed = int(counterexample["seed"])
        bench = Bench.open(cls, section, origin=origin, folders=folders, seed=seed)
        result = Trial(bench, Budget.STANDARD).check(counterexample["rule"])
    except (LookupError, TypeError, ValueError, UsageError) as error:
        return ["unreadable"], f"{type(error).__name__}: {error}"
    if result.verdict in (Verdict.PASS, Verdict.NOT_APPLICABLE):
        return [], ""
    kind = "check" if result.verdict is Verdict.FAIL else result.verdict.value
    return [kind], result.message or ""
