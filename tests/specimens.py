# SPDX-License-Identifier: Apache-2.0
"""Plugins that are correct: vLLM's own, the documentation's, ours, and unusual ones."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING

from support import FIXTURES, ROOT, UNUSUAL, Specimen, gallery

if TYPE_CHECKING:
    from pathlib import Path

BUILTIN = "vllm.v1.sample.logits_processor"
REFERENCE = ROOT / "reference_plugins" / "logits_batch"
REFERENCE_SLOT = ROOT / "reference_plugins" / "logits_slot"

_PLUGIN = re.compile(r"^class (\w+)\((?:\w+, )*\w*LogitsProcessor\):", re.MULTILINE)


def correct() -> list[Specimen]:
    """Return every correct plugin, those that need none with and without a profile."""
    return [*_built_ins(), *_documented(), *references(), *gallery(UNUSUAL)]


def references() -> list[Specimen]:
    """Return the reference plugins for the V1 model runner."""
    return _references(REFERENCE)


def slot_references() -> list[Specimen]:
    """Return the reference plugins for Model Runner V2."""
    return _references(REFERENCE_SLOT)


def _references(folder: Path) -> list[Specimen]:
    """Return every class in a file that has a profile beside it."""
    return [
        Specimen(f"{source}:{name}", None, _section(profile))
        for profile in sorted(folder.glob("*.conformance.toml"))
        for source in (profile.with_name(profile.name.replace(".conformance.toml", ".py")),)
        for name in _PLUGIN.findall(source.read_text(encoding="utf-8"))
    ]


def _built_ins() -> list[Specimen]:
    names = {"min_p": "MinP", "logit_bias": "LogitBias", "min_tokens": "MinTokens"}
    return [
        Specimen(
            f"{BUILTIN}:{name}LogitsProcessor",
            None,
            _section(FIXTURES / "profiles" / f"{profile}.toml") if profile else {},
        )
        for file, name in names.items()
        for profile in (file, None)
    ]


def _documented() -> list[Specimen]:
    path = FIXTURES / "documented_example.py"
    section = _section(FIXTURES / "profiles" / "documented_example.toml")
    return [
        Specimen(f"{path}:{name}", None, profile)
        for name in ("DummyLogitsProcessor", "WrappedPerReqLogitsProcessor")
        for profile in (section, {})
    ]


def _section(path: Path) -> dict[str, object]:
    section: dict[str, object] = tomllib.loads(path.read_text(encoding="utf-8"))["logits-processor"]
    return section
