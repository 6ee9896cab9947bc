# SPDX-License-Identifier: Apache-2.0
"""Correct plugins pass everything: vLLM's own, the documentation's, ours, and unusual ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from specimens import correct
from support import FIXTURES, GENERATIONS, ROOT, Specimen, certify

from conformance.running.runner import Certification
from conformance.settings import Settings
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.worker import Zygote

GOOD = {Verdict.PASS, Verdict.NOT_APPLICABLE}


@pytest.mark.parametrize("specimen", correct(), ids=lambda specimen: specimen.label)
def test_passes_everything(zygote: Zygote, specimen: Specimen, tmp_path: Path) -> None:
    """A correct plugin passes every rule that applies to it, with or without a profile."""
    results = certify(zygote, specimen, tmp_path)

    broken = {rule: found.message for rule, found in results.items() if found.verdict not in GOOD}
    assert set(broken) == {*specimen.advice, *specimen.found}, broken
    assert results["LB-03"].acted


@pytest.mark.parametrize("generation", ["logits_batch", "logits_slot"])
def test_a_profile_may_name_many_integers(zygote: Zygote, tmp_path: Path, generation: str) -> None:
    """A reader of histories meets repetitions, however many tokens its profile could mean."""
    name = {"logits_batch": "NoRepeatNgram", "logits_slot": "NoRepeatNgramSlot"}[generation]
    on = [
        {"extra_args": {"no_repeat_ngram": size, "unrelated": [101 + size, 111 + size, 121 + size]}}
        for size in (3, 4)
    ]
    specimen = Specimen(
        f"{ROOT / 'reference_plugins' / generation / 'no_repeat_ngram.py'}:{name}LogitsProcessor",
        None,
        {"on": on, "off": [{}], "invalid": [{"extra_args": {"no_repeat_ngram": 0}}]},
        generation=GENERATIONS[generation],
    )
    results = certify(zygote, specimen, tmp_path)

    assert {r: found.message for r, found in results.items() if found.verdict not in GOOD} == {}
    steady = results["LB-23" if generation == "logits_batch" else "LS-15"]
    assert steady.acted >= len(on)


def test_a_helper_beside_plugins_is_not_certified(zygote: Zygote) -> None:
    """A whole file is its plugins: a request-level helper that is named like one is left out."""
    settings = Settings(targets=(str(FIXTURES / "documented_example.py"),))
    with Certification(settings, zygote=zygote) as certification:
        names = [plugin.qualname for plugin in certification.load()]

    assert names == ["DummyLogitsProcessor", "WrappedPerReqLogitsProcessor"]
