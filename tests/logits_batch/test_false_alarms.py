# SPDX-License-Identifier: Apache-2.0
"""Correct plugins pass everything: vLLM's own, the documentation's, ours, and unusual ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest
from specimens import correct
from support import FIXTURES, GENERATIONS, GOOD, ROOT, UNUSUAL, Specimen, certify, gallery

from conformance.rules import Evidence
from conformance.running.runner import Certification
from conformance.settings import Settings
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.worker import Zygote


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


#: Forgets the outputs of a resumed request if its prompt is long, as none is but where everything
#: happens at once.
FORGETS_LONG = """\
from vllm.v1.sample.logits_processor import LogitsProcessor, MoveDirectionality

LONG = 4


class CountsFromLongResumes(LogitsProcessor):
    @classmethod
    def validate_params(cls, params):
        token = (params.extra_args or {}).get("first", 0)
        if type(token) is not int or not 0 <= token < 200:
            raise ValueError(f"first must be a token id below 200 (got {token!r})")

    def __init__(self, vllm_config, device, is_pin_memory):
        self.rows = {}

    def is_argmax_invariant(self):
        return False

    def update_state(self, batch_update):
        if batch_update is None:
            return
        for index in batch_update.removed:
            self.rows.pop(index, None)
        for index, params, prompt, outputs in batch_update.added:
            self.rows.pop(index, None)
            token = (params.extra_args or {}).get("first")
            if token is not None:
                missed = len(outputs) if prompt is not None and len(prompt) >= LONG else 0
                self.rows[index] = token, outputs, missed
        for one, other, how in batch_update.moved:
            first, second = self.rows.pop(one, None), self.rows.pop(other, None)
            if first is not None:
                self.rows[other] = first
            if how is MoveDirectionality.SWAP and second is not None:
                self.rows[one] = second

    def apply(self, logits):
        for index, (token, outputs, missed) in self.rows.items():
            logits[index, token + (len(outputs) - missed) % 3] += 9.0
        return logits
"""

#: Looks into its list of outputs in one way.
LOOKS = """\
from vllm.v1.sample.logits_processor import LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates


class Looks(LogitsProcessor):
    @classmethod
    def validate_params(cls, sampling_params):
        if type((sampling_params.extra_args or {}).get("after", 0)) is not int:
            raise ValueError("after must be a token id")

    def __init__(self, vllm_config, device, is_pin_memory):
        self.rows = {}

    def is_argmax_invariant(self):
        return False

    def update_state(self, batch_update):
        process_dict_updates(self.rows, batch_update, self.row)

    @staticmethod
    def row(params, prompt, outputs):
        after = (params.extra_args or {}).get("after")
        return None if after is None else (after, outputs)

    def apply(self, logits):
        for index, (after, outputs) in self.rows.items():
            for one, other in zip(LOOK, [*LOOK][1:]):
                if one == other == after:
                    logits[index, 7] = 30.0
        return logits
"""


@pytest.mark.parametrize("seed", [2, 3])
def test_advice_is_advice_where_everything_happens_at_once(
    zygote: Zygote, tmp_path: Path, seed: int
) -> None:
    """No rule that must hold is broken by what only a resumed request shows."""
    path = tmp_path / "forgets_long.py"
    path.write_text(FORGETS_LONG, encoding="utf-8")
    plugin = Specimen(f"{path}:CountsFromLongResumes", None, {})
    results = certify(zygote, plugin, tmp_path, seed=seed)

    failed = {rule for rule, found in results.items() if found.verdict is Verdict.FAIL}
    assert failed == {"LB-11"}, results["LB-03"].message
    assert results["LB-11"].counterexample is not None


@pytest.mark.parametrize("look", ["reversed(outputs)", "outputs.copy()", "[0] + outputs"])
def test_who_looks_for_tokens_may_never_act(zygote: Zygote, tmp_path: Path, look: str) -> None:
    """However it looks into the list: two tokens of a kind that nobody sent."""
    path = tmp_path / "looks.py"
    path.write_text(LOOKS.replace("LOOK", look), encoding="utf-8")
    profile = {"on": [{"extra_args": {"after": 499}}], "off": [{}]}
    plugin = Specimen(f"{path}:Looks", None, profile)
    found = certify(zygote, plugin, tmp_path, rules={"LB-05"})["LB-05"]

    assert found.verdict is not Verdict.FAIL, found.message


def test_nobody_masks_what_no_request_masks(zygote: Zygote, tmp_path: Path) -> None:
    """Tokens that were ruled out are sampled where a client masked the others, and only then."""
    named = next(each for each in gallery(UNUSUAL) if each.label == "InsistsOnWhatItForced")
    source = (UNUSUAL / "insists_on_what_it_forced.py").read_text(encoding="utf-8")
    refusal = "        if any(others) or params.logit_bias or params.structured_outputs:\n"
    assert refusal in source
    path = tmp_path / "goes_with_masks.py"
    path.write_text(source.replace(refusal, "        if False:\n"), encoding="utf-8")
    plugin = attrs.evolve(named, target=f"{path}:InsistsOnWhatItForced")
    results = certify(zygote, plugin, tmp_path)

    failed = {rule for rule, found in results.items() if found.verdict not in GOOD}
    assert failed == {"LB-39", "LB-41", "LB-45"}, results["LB-16"].message
    assert "after it left no token to request" in str(results["LB-39"].message)


def test_rows_that_come_masked_are_told(zygote: Zygote, tmp_path: Path) -> None:
    """Where a plugin fails for a row with tokens masked, the history shows that it had some."""
    source = (ROOT / "reference_plugins/logits_batch/target_token.py").read_text(encoding="utf-8")
    body = "    def apply(self, logits: torch.Tensor) -> torch.Tensor:\n"
    assert body in source
    raises = "        assert logits.isfinite().all(), 'some are masked'\n"
    path = tmp_path / "minds_masks.py"
    path.write_text(source.replace(body, body + raises), encoding="utf-8")
    profile = {"on": [{"extra_args": {"target_token": 67}}], "off": [{}]}
    plugin = Specimen(f"{path}:TargetTokenLogitsProcessor", None, profile)
    found = certify(zygote, plugin, tmp_path, rules={"LB-16"})["LB-16"]

    assert found.verdict is Verdict.FAIL
    assert found.counterexample is not None
    *_, last = found.counterexample["lines"]
    assert "tokens masked" in last["events"]


@pytest.mark.parametrize("specimen", correct(), ids=lambda specimen: specimen.label)
def test_passes_everything(zygote: Zygote, specimen: Specimen, tmp_path: Path) -> None:
    """A correct plugin passes every rule that applies to it, with or without a profile."""
    results = certify(zygote, specimen, tmp_path)

    broken = {rule: found.message for rule, found in results.items() if found.verdict not in GOOD}
    assert set(broken) == {*specimen.advice, *specimen.found}, broken
    assert results["LB-03"].acted or specimen.profile.get("on") == []


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


def test_what_a_profile_switches_on_is_no_request_without_opt_in(
    zygote: Zygote, tmp_path: Path
) -> None:
    """A plugin that acts late, or seldom, on every request was not seen to act."""
    specimen = next(each for each in gallery(UNUSUAL) if each.name == "works_out_of_place")
    always = attrs.evolve(specimen, profile={"on": [{}]})
    result = certify(zygote, always, tmp_path, rules={"LB-28"})["LB-28"]

    assert result.verdict is Verdict.NOT_APPLICABLE, result.message
