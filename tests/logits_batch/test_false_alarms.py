# SPDX-License-Identifier: Apache-2.0
"""Correct plugins pass everything: vLLM's own, the documentation's, ours, and unusual ones."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

import pytest
from support import FIXTURES, ROOT, UNUSUAL, Specimen, certify, gallery

from conformance.runner import Certification
from conformance.settings import Settings
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.worker import Zygote

BUILTIN = "vllm.v1.sample.logits_processor"
REFERENCE = ROOT / "reference_plugins" / "logits_batch"
GOOD = {Verdict.PASS, Verdict.NOT_APPLICABLE}


def _section(path: Path) -> dict[str, object]:
    section: dict[str, object] = tomllib.loads(path.read_text(encoding="utf-8"))["logits-processor"]
    return section


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


def _references() -> list[Specimen]:
    return [
        Specimen(f"{REFERENCE / file}.py:{name}", None, _section(path))
        for file, names in (
            ("target_token", ("TargetTokenLogitsProcessor",)),
            ("request_level", ("TwoArgumentTargetToken", "ThreeArgumentTargetToken")),
        )
        for path in (REFERENCE / f"{file}.conformance.toml",)
        for name in names
    ]


def _id(specimen: Specimen) -> str:
    return specimen.target.rpartition(":")[2] + ("" if specimen.profile else "-discovered")


@pytest.mark.parametrize(
    "specimen", [*_built_ins(), *_documented(), *_references(), *gallery(UNUSUAL)], ids=_id
)
def test_passes_everything(zygote: Zygote, specimen: Specimen, tmp_path: Path) -> None:
    """A correct plugin passes every rule that applies to it, with or without a profile."""
    results = certify(zygote, specimen, tmp_path)

    broken = {rule: found.message for rule, found in results.items() if found.verdict not in GOOD}
    assert not broken
    assert results["LB-03"].acted


def test_a_helper_beside_plugins_is_not_certified(zygote: Zygote) -> None:
    """A whole file is its plugins: a request-level helper that is named like one is left out."""
    settings = Settings(targets=(str(FIXTURES / "documented_example.py"),))
    with Certification(settings, zygote=zygote) as certification:
        names = [plugin.qualname for plugin in certification.load()]

    assert names == ["DummyLogitsProcessor", "WrappedPerReqLogitsProcessor"]
