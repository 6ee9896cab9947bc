# SPDX-License-Identifier: Apache-2.0
"""What a rule is about happens in the history that breaks it, and is needed for that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support import DEFECTIVE, DEFECTIVE_SLOT, Specimen, caught, certify, gallery

from conformance.inputs import history
from conformance.logits_batch.strata import STRATA as BATCH
from conformance.logits_slot.strata import STRATA as SLOT
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.worker import Zygote

#: Three requests of one session do to each other what they should not, whatever else happens.  With
#: many sessions they seldom meet.
SESSIONS = """\
from vllm.v1.sample.logits_processor import LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates


class Sessions(LogitsProcessor):
    def __init__(self, vllm_config, device, is_pin_memory):
        self.rows = {}

    def is_argmax_invariant(self):
        return False

    def update_state(self, batch_update):
        process_dict_updates(self.rows, batch_update, self.begin)
        sessions = [key for key, _ in self.rows.values()]
        self.busy = {key for key in sessions if sessions.count(key) > 2}

    def begin(self, params, prompt, outputs):
        key = (params.extra_args or {}).get("session")
        return None if key is None else (key, outputs)

    def apply(self, logits):
        for row, (key, outputs) in self.rows.items():
            logits[row, 7] += 3.0 if key in self.busy and len(outputs) > 3 else 1.0
        return logits
"""

#: Of rules about prompts in part, drafts, removal, other occupants, preemption and idle steps.
KILLERS = {
    "counts_apply_calls",
    "keeps_target_of_previous_occupant",
    "keeps_update_for_apply",
    "loses_track_of_token_zero",
    "reads_drafts_from_history",
    "spends_first_call_on_prefill",
    "takes_resumed_for_too_late",
}


@pytest.mark.parametrize("seed", [1, 3])
def test_what_needs_no_event_is_of_the_plain_rule(
    zygote: Zygote, tmp_path: Path, seed: int
) -> None:
    """What requests show that just join and advance is no fault of what else happens to them."""
    (tmp_path / "sessions.py").write_text(SESSIONS, encoding="utf-8")
    on = [{"extra_args": {"session": name}} for name in "abcdef"]
    specimen = Specimen(f"{tmp_path / 'sessions.py'}:Sessions", "LB-03", {"on": on, "off": [{}]})

    found = certify(zygote, specimen, tmp_path, seed=seed, rules={*BATCH.rule_of.values()})

    failed = {rule for rule, result in found.items() if result.verdict is Verdict.FAIL}
    assert failed == {"LB-03"}
    assert found["LB-03"].counterexample
    assert found["LB-03"].counterexample["stratum"] == "plain"


@pytest.mark.gallery
@pytest.mark.parametrize(
    "specimen",
    [
        pytest.param(specimen, id=f"{specimen.generation}-{specimen.name}")
        for specimen in (*gallery(DEFECTIVE), *gallery(DEFECTIVE_SLOT))
        if specimen.name in KILLERS
    ],
)
def test_a_counterexample_has_its_event(zygote: Zygote, specimen: Specimen, tmp_path: Path) -> None:
    """What a rule is about is in the history that breaks it."""
    case = caught(zygote, specimen, tmp_path).counterexample

    assert case
    strata = BATCH if specimen.generation == "logits/batch" else SLOT
    shape = strata.named(case["stratum"])
    assert strata.owner(shape) == specimen.rule
    assert history.shows(shape, history.from_json(case["history"]))
