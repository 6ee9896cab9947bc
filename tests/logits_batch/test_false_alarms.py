# SPDX-License-Identifier: Apache-2.0
"""Correct plugins pass everything: vLLM's own, the documentation's, ours, and unusual ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest
from specimens import correct
from support import FIXTURES, GENERATIONS, ROOT, Specimen, certify

from conformance.rules import Evidence
from conformance.running.runner import Certification
from conformance.settings import Settings
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.worker import Zygote

GOOD = {Verdict.PASS, Verdict.NOT_APPLICABLE}

#: Relies on what it has refused all else but.
DEMANDS_MUCH = """\
from vllm.v1.sample.logits_processor import LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates


class DemandsMuch(LogitsProcessor):
    @classmethod
    def validate_params(cls, sampling_params):
        weights = (sampling_params.extra_args or {}).get("weights")
        if not isinstance(weights, dict) or {*weights} != {"a", "b", "c"}:
            raise ValueError("it needs weights for a, b and c")
        if {*map(type, weights.values())} != {float} or sum(weights.values()) != 1:
            raise ValueError("weights must be numbers whose sum is 1")

    def __init__(self, vllm_config, device, is_pin_memory):
        self.weights = {}

    def is_argmax_invariant(self):
        return False

    def update_state(self, batch_update):
        process_dict_updates(self.weights, batch_update, self.weight_of)

    @staticmethod
    def weight_of(params, prompt_ids, output_ids):
        return params.extra_args["weights"]["a"]

    def apply(self, logits):
        for row, weight in self.weights.items():
            logits[row, 5] += weight
        return logits
"""


@pytest.mark.parametrize("specimen", correct(), ids=lambda specimen: specimen.label)
def test_passes_everything(zygote: Zygote, specimen: Specimen, tmp_path: Path) -> None:
    """A correct plugin passes every rule that applies to it, with or without a profile."""
    results = certify(zygote, specimen, tmp_path)

    broken = {rule: found.message for rule, found in results.items() if found.verdict not in GOOD}
    assert set(broken) == {*specimen.advice, *specimen.found}, broken
    assert results["LB-03"].acted


@pytest.mark.engine
@pytest.mark.parametrize("specimen", correct(), ids=lambda specimen: specimen.label)
def test_no_engine_blames_it(zygote: Zygote, specimen: Specimen, tmp_path: Path) -> None:
    """Nor does a correct plugin fail in a real engine, but for what is advice there."""
    results = certify(zygote, specimen, tmp_path, evidence=(Evidence.OFFLINE,))

    bad = {Verdict.FAIL, Verdict.ERROR}
    broken = {rule: found.message for rule, found in results.items() if found.verdict in bad}
    assert set(broken) <= {*specimen.advice, *specimen.found, "LB-11", "LB-18"}, broken
    assert results["LB-01"].verdict is Verdict.PASS


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


def test_a_plugin_may_demand_its_arguments(zygote: Zygote, tmp_path: Path) -> None:
    """Without a profile nobody has said that a request without arguments is valid."""
    specimen = next(each for each in correct() if each.label == "LooksUpItsPrompt")
    results = certify(zygote, attrs.evolve(specimen, profile={}), tmp_path)

    bad = {Verdict.FAIL, Verdict.ERROR}
    assert {rule: found.message for rule, found in results.items() if found.verdict in bad} == {}
    assert "off = []" in str(results["LB-05"].message)


def test_nothing_is_said_of_a_plugin_that_refuses_everything(
    zygote: Zygote, tmp_path: Path
) -> None:
    """Where no request is known that is admitted, a profile is asked for."""
    path = tmp_path / "demands_much.py"
    path.write_text(DEMANDS_MUCH, encoding="utf-8")
    results = certify(zygote, Specimen(f"{path}:DemandsMuch", None, {}), tmp_path)

    assert {found.verdict for found in results.values()} <= {*GOOD, Verdict.NOT_VERIFIED}
    assert "needs weights for a, b and c" in str(results["LB-03"].message)


def test_a_helper_beside_plugins_is_not_certified(zygote: Zygote) -> None:
    """A whole file is its plugins: a request-level helper that is named like one is left out."""
    settings = Settings(targets=(str(FIXTURES / "documented_example.py"),))
    with Certification(settings, zygote=zygote) as certification:
        names = [plugin.qualname for plugin in certification.load()]

    assert names == ["DummyLogitsProcessor", "WrappedPerReqLogitsProcessor"]
