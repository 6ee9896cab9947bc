# SPDX-License-Identifier: Apache-2.0
"""Plugins that are correct: vLLM's own, the documentation's, ours, and unusual ones."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING

from support import FIXTURES, ROOT, UNUSUAL, Specimen, gallery

from conformance.engine.multimodal_models import MODELS

if TYPE_CHECKING:
    from pathlib import Path

BUILTIN = "vllm.v1.sample.logits_processor"
REFERENCE = ROOT / "reference_plugins" / "logits_batch"
REFERENCE_SLOT = ROOT / "reference_plugins" / "logits_slot"
REFERENCE_IO = ROOT / "reference_plugins" / "io_processor"
REFERENCE_HOOK = ROOT / "reference_plugins" / "classifier_hook" / "hooks"
REFERENCE_VLM = ROOT / "reference_plugins" / "tiny_vlm"
REFERENCE_MODALITY = ROOT / "reference_plugins" / "modality"
REFERENCE_PARSER = ROOT / "reference_plugins" / "parser"

#: Rules about requests that any client may send: a plugin breaks them without a profile, too.
OF_CLIENTS = frozenset(("LB-38", "LB-42", "LS-35", "LS-39"))

_PLUGIN = re.compile(r"^class (\w+)\((?:\w+, )*\w*LogitsProcessor\):", re.MULTILINE)
_IO_PLUGIN = re.compile(r"^class (\w+)\(IOProcessor\b", re.MULTILINE)


def correct() -> list[Specimen]:
    """Return every correct plugin, those that need none with and without a profile."""
    return [*_built_ins(), *_documented(), *references(), *gallery(UNUSUAL)]


def references() -> list[Specimen]:
    """Return the reference plugins for the V1 model runner."""
    return _references(REFERENCE, "logits/batch")


def slot_references() -> list[Specimen]:
    """Return the reference plugins for Model Runner V2."""
    return _references(REFERENCE_SLOT, "logits/slot")


def io_references() -> list[Specimen]:
    """Return the reference IO processors, once for each generation that they serve."""
    found = []
    for profile in sorted(REFERENCE_IO.glob("*.conformance.toml")):
        path = profile.with_name(profile.name.replace(".conformance.toml", ".py"))
        source = path.read_text(encoding="utf-8")
        served = ["io/data", "io/request"] if "def parse_request" in source else ["io/data"]
        found += [
            Specimen(
                f"{path}:{name}", None, _section(profile, "io-processor"), generation=generation
            )
            for name in _IO_PLUGIN.findall(source)
            for generation in served
        ]
    return found


def hook_references() -> list[Specimen]:
    """Return the reference hooks that need no service."""
    plugins = {"annotator": "PatternAnnotator", "blocker": "PiiBlocker"}
    return [
        Specimen(
            f"{REFERENCE_HOOK / name}.py:{cls}",
            None,
            _section(REFERENCE_HOOK / f"{name}.conformance.toml", "classifier-hook"),
            generation="hook/rfc",
        )
        for name, cls in plugins.items()
    ]


def modality_references() -> list[Specimen]:
    """Return the plugins of the modality library."""
    plugins = {
        "images": "ImagePlugin",
        "video": "VideoPlugin",
        "audio": "AudioPlugin",
        "point_clouds": "PointCloudPlugin",
    }
    return [
        Specimen(f"{REFERENCE_MODALITY / file}.py:{name}", None, {}, generation="mm/modality")
        for file, name in plugins.items()
    ]


def processor_references() -> list[Specimen]:
    """Return the reference model with a multi-modal processor."""
    profile = _section(REFERENCE_VLM / "model.conformance.toml", "multimodal")
    return [
        Specimen(f"{REFERENCE_VLM / 'model.py'}:TinyVlm", None, profile, generation="mm/processor")
    ]


def builtin_processors() -> list[Specimen]:
    """Return those models of vLLM of which a tiny one is made; most need torchvision."""
    return [
        Specimen(model.model_class, None, {"model": name}, generation="mm/processor")
        for name, model in MODELS.items()
    ]


def parser_references() -> list[Specimen]:
    """Return the reference parsers, with and without a profile."""
    plugins = {
        "tagged_calls": ("TaggedCallsParser", "parser/tool"),
        "thinking": ("ThinkingParser", "parser/reasoning"),
    }
    return [
        Specimen(f"{REFERENCE_PARSER / file}.py:{name}", None, profile, generation=generation)
        for file, (name, generation) in plugins.items()
        for profile in (_section(REFERENCE_PARSER / f"{file}.conformance.toml", "parser"), {})
    ]


def _references(folder: Path, generation: str) -> list[Specimen]:
    """Return every class in a file that has a profile beside it."""
    return [
        Specimen(f"{source}:{name}", None, _section(profile, of=name), generation=generation)
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
    section = _section(FIXTURES / "profiles" / "documented_example.toml")
    # As the document has them, they mask all but a token that something else may forbid, and one
    # that the model does not have ends the engine: see docs/findings.md.
    known = {"documented_example": (("LB-41",), ("LB-38",)), "mended_example": ((), ())}
    return [
        Specimen(f"{FIXTURES / file}.py:{name}", None, profile, advice=advice, found=found)
        for file, (advice, found) in known.items()
        for name in ("DummyLogitsProcessor", "WrappedPerReqLogitsProcessor")
        for profile in (section, {})
    ]


def _section(path: Path, name: str = "logits-processor", *, of: str = "") -> dict[str, object]:
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    document |= document.get("classes", {}).get(of, {})
    section: dict[str, object] = document[name]
    return section
