# SPDX-License-Identifier: Apache-2.0
"""Requests that ask for more than the plugin: what is shown of them, in both generations."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support import DEFECTIVE, DEFECTIVE_SLOT, Specimen, certify, gallery
from vllm.sampling_params import BeamSearchParams, SamplingParams
from vllm.v1.sample.logits_processor import MinPLogitsProcessor

from conformance.engine.models import tiny_llama
from conformance.logits.company import strongest
from conformance.logits.extra_parameters import everything
from conformance.logits_batch.bench import Bench
from conformance.rules import Evidence
from conformance.settings import Budget
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from conformance.worker import Zygote

GALLERIES = {"batch": (DEFECTIVE, "LB-39", "LB-41"), "slot": (DEFECTIVE_SLOT, "LS-36", "LS-38")}


@pytest.mark.parametrize("name", GALLERIES)
def test_the_smallest_request_is_shown(zygote: Zygote, name: str, tmp_path: Path) -> None:
    """One request with one thing more is all that a person reads, and advice waits for it."""
    folder, harm, left = GALLERIES[name]
    specimen = next(s for s in gallery(folder) if s.name == "keeps_as_many_as_logprobs")
    found = certify(zygote, specimen, tmp_path, budget=Budget.QUICK, rules={harm, left})

    assert found[harm].verdict is Verdict.FAIL
    assert (found[harm].message or "").endswith("(on[1] with logprobs=-1)")
    assert found[left].verdict is Verdict.NOT_VERIFIED


def test_a_row_without_a_token_harms_no_other(zygote: Zygote, tmp_path: Path) -> None:
    """A plugin that leaves its own request without a token breaks the advice alone."""
    specimen = next(s for s in gallery(DEFECTIVE) if s.name == "bans_its_last_token")
    found = certify(zygote, specimen, tmp_path, budget=Budget.QUICK, rules={"LB-39", "LB-41"})

    assert found["LB-39"].verdict is Verdict.PASS
    assert found["LB-39"].acted
    assert found["LB-41"].verdict is Verdict.FAIL


@pytest.mark.engine
def test_what_no_processor_is_told(zygote: Zygote, tmp_path: Path) -> None:
    """Priority, truncation and beam search are missing in the table, and reach no processor."""
    job = zygote.fork(
        "untold_job:told",
        {},
        log=tmp_path / "job.log",
        directory=tmp_path,
        python_path=[str(Path(__file__).parent)],
    )
    found = job.ask("everything", limit=300)
    job.close()
    beams = found["beam search"]

    assert beams
    # See the table: whoever is on for everybody meets these.
    assert {told[:3] for told in beams} == {(None, 1, 4)}
    assert [told[:4] for told in found["truncated"]] == [({"own": 1}, 2, None, 3)]
    assert [told[3] for told in found["embeddings"]] == [None]
    assert found["priority"] == found["plain"] != []


def test_parameters_that_processors_are_told_have_no_field_for_it() -> None:
    """Where a release adds one, requests with it belong into the table."""
    assert {"priority", "truncate_prompt_tokens"}.isdisjoint(SamplingParams.__struct_fields__)
    assert {"extra_args", "logit_bias"}.isdisjoint(BeamSearchParams.__struct_fields__)


def test_what_beams_send_is_in_the_table() -> None:
    """So is every penalty alone, of either sign, and a seed alone."""
    bench = Bench(MinPLogitsProcessor, str(tiny_llama()), {("on", 0): {"min_p": 0.5}}, 1)
    simulated = [dict(asked.keywords) for asked in everything(bench)]

    assert {"logprobs": 4, "max_tokens": 1} in simulated
    for table in (simulated, strongest(bench)):
        assert {"seed": 5} in table
        assert {"presence_penalty": 2.0} in table
        assert {"frequency_penalty": 2.0} in table
        assert any(keywords.get("presence_penalty") == -2.0 for keywords in table)
        assert any(keywords.get("frequency_penalty") == -2.0 for keywords in table)


#: On for everybody, and of the requests that vLLM sends only those of beams are too much for it.
FEARS_BEAMS = """
from vllm.v1.sample.logits_processor import LogitsProcessor


class FearsBeams(LogitsProcessor):
    def __init__(self, vllm_config, device, is_pin_memory):
        self.beams = 0

    def is_argmax_invariant(self):
        return False

    def update_state(self, batch_update):
        for _, params, _, _ in batch_update.added if batch_update else ():
            self.beams += params.max_tokens == 1 and params.logprobs == 4

    def apply(self, logits):
        assert not self.beams, "beams are not meant for this"
        logits[:, 67] += 2.0
        return logits
"""


@pytest.mark.engine
def test_beams_reach_a_plugin_that_is_on_for_everybody(zygote: Zygote, tmp_path: Path) -> None:
    """Only an engine sends them."""
    path = tmp_path / "fears_beams.py"
    path.write_text(FEARS_BEAMS, encoding="utf-8")
    specimen = Specimen(f"{path}:FearsBeams", None, {"on": [{}]})
    found = certify(zygote, specimen, tmp_path, evidence=(Evidence.OFFLINE,), rules={"LB-39"})

    assert found["LB-39"].verdict is Verdict.FAIL
    said = "a beam search ends the engine: AssertionError: beams are not meant"
    assert said in str(found["LB-39"].message)
