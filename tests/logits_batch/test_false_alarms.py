# SPDX-License-Identifier: Apache-2.0
"""Correct plugins pass everything: vLLM's own, the documentation's, ours, and unusual ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from specimens import correct
from support import FIXTURES, certify

from conformance.runner import Certification
from conformance.settings import Settings
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from support import Specimen

    from conformance.worker import Zygote

GOOD = {Verdict.PASS, Verdict.NOT_APPLICABLE}


@pytest.mark.parametrize("specimen", correct(), ids=lambda specimen: specimen.label)
def test_passes_everything(zygote: Zygote, specimen: Specimen, tmp_path: Path) -> None:
    """A correct plugin passes every rule that applies to it, with or without a profile."""
    results = certify(zygote, specimen, tmp_path)

    broken = {rule: found.message for rule, found in results.items() if found.verdict not in GOOD}
    assert set(broken) == set(specimen.advice), broken
    assert results["LB-03"].acted


def test_a_helper_beside_plugins_is_not_certified(zygote: Zygote) -> None:
    """A whole file is its plugins: a request-level helper that is named like one is left out."""
    settings = Settings(targets=(str(FIXTURES / "documented_example.py"),))
    with Certification(settings, zygote=zygote) as certification:
        names = [plugin.qualname for plugin in certification.load()]

    assert names == ["DummyLogitsProcessor", "WrappedPerReqLogitsProcessor"]
