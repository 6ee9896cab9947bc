# SPDX-License-Identifier: Apache-2.0
"""A failure that no history shows comes with a program as well, or says that it has none."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from programs import ALLOWED, execute, has_one, imported, write
from support import DEFECTIVE_SLOT, ROOT, Specimen, certify, gallery

from conformance.reporting import folder
from conformance.running.replay import Outcome, replay_case
from conformance.settings import Budget
from conformance.verdict import RuleResult, Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.worker import Zygote

SPECIMENS = {specimen.name: specimen for specimen in gallery(DEFECTIVE_SLOT)}

#: Plugins of each rule that a check decides, one for each way in which it fails, and what its
#: program says of a correct plugin.
CHECKED = {
    "leaves_out_apply": "making an instance raised nothing",
    "refuses_second_instance": "making an instance raised nothing",
    "shares_tables_between_instances": "What one instance serves, another one does not feel",
    "reads_wrong_key": "Rows were changed",
    "expects_extra_args": "Nothing is left of the warm-up",
    "keeps_warm_up_pending": "Nothing is left of the warm-up",
    "draws_bias_when_joining": "The same request gets the same rows again",
    "writes_zero_for_target": "What was masked is masked",
    "masks_forbidden_target_too": "A token can be sampled",
    "has_no_validate_params": "the request is refused",
    "refuses_with_type_error": "the request is refused",
    "validates_on_instance": "validate_params raised nothing",
    "fills_in_defaults_at_admission": "It needs no instance to validate parameters",
    "seeds_from_local_rank": "Two ranks compute the same rows",
    "numbers_every_request": "No more memory is held",
    "has_room_for_64_slots": "The rows of a full batch are those of a small one",
    "lists_slots": "The host never waits",
    "indexes_by_mask": "The host never waits",
    "claims_every_request": "add_request returned False",
    "disagrees_with_itself": "Both model runners give the same row",
    "compares_every_pair": "A step grows with its batch, and not with the vocabulary",
    "goes_through_the_vocabulary": "A step grows with its batch, and not with the vocabulary",
    "counts_tokens_one_hot": "A step holds at most 16 times the memory",
    "seeds_torch_in_constructor": "What all requests share is what it was before",
    "leaves_collector_running": "What all requests share is what it was before",
}

#: Plugins that write to what they may only read, which a history shows.
WRITING = {
    "marks_end_of_history": "req_states.all_token_ids is as it was",
    "shifts_positions_in_place": "ctx.pos is as it was",
}

#: A plugin with an ``extra_args`` key ``boost``, whose fault stands in the place of ``FAULT``.
SOURCE = """\
import torch
from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor


class Boosts(LogitsProcessor):
    made = 0

    def __init__(self, vllm_config, req_states):
        self.boosts = torch.zeros(req_states.max_num_reqs)
        {constructor}

    def add_request(self, req_idx, sampling_params):
        boost = (sampling_params.extra_args or {{}}).get("boost", 0.0)
        self.boosts[req_idx] = boost
        {add_request}
        return boost > 0

    def apply(self, logits, ctx):
        logits[:, 0] += self.boosts[ctx.expanded_idx_mapping]
        return logits
"""
PROFILE = {"on": [{"extra_args": {"boost": 2.5}}], "off": [{}]}


def failing(zygote: Zygote, specimen: Specimen, place: Path) -> RuleResult:
    """Return the failure of a defective plugin, with as few examples as show it."""
    rule = str(specimen.rule)
    result = certify(zygote, specimen, place, rules={rule}, budget=Budget.QUICK)[rule]
    assert result.verdict is Verdict.FAIL, result.message
    return result


def boosts(rule: str, place: Path, **faults: str) -> Specimen:
    """Write a plugin with a fault; return it as one of a gallery."""
    path = place / "boosts.py"
    path.write_text(SOURCE.format(**{"constructor": "", "add_request": "", **faults}), "utf-8")
    return Specimen(f"{path}:Boosts", rule, PROFILE, generation="logits/slot")


@pytest.mark.gallery
@pytest.mark.parametrize("name", [*CHECKED, *WRITING])
def test_a_program_shows_what_was_found(zygote: Zygote, name: str, tmp_path: Path) -> None:
    """It fails for the plugin, and with a correct one in its place it says that the fault is gone.

    It imports nothing of this harness.
    """
    specimen = SPECIMENS[name]
    result = failing(zygote, specimen, tmp_path)
    assert result.counterexample is not None
    assert result.counterexample["kind"] == ("history" if name in WRITING else "check")
    path = write(specimen, result, tmp_path)
    source = path.read_text(encoding="utf-8")
    assert imported(source) <= ALLOWED | {specimen.name}
    lines = [line for line in source.splitlines() if str(DEFECTIVE_SLOT) not in line]
    assert max(map(len, lines)) <= 100

    status, said = execute(zygote, path)
    assert status == 1, said
    assert "FAILS: " in said
    assert "expected" in said

    status, said = execute(zygote, _mended(path))
    assert status == 0, said
    assert said.splitlines()[-1].startswith(f"OK: {(CHECKED | WRITING)[name]}")


def _mended(path: Path) -> Path:
    """Write the case again, about a correct plugin."""
    case = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    module, qualname = "target_token", "TargetTokenSlotLogitsProcessor"
    if case["rule"] == "LS-31":
        module, qualname = "dual_target_token", "DualTargetTokenLogitsProcessor"
    package = f"reference_plugins.logits_slot.{module}"
    case["plugin"] = {"module": package, "qualname": qualname, "root": str(ROOT)}
    for call in _calls(case["counterexample"]):
        if call["do"] == "load":
            call["fqcn"] = f"{package}:{qualname}"
    folder.write_case(case, path.parent)
    return path


def _calls(counterexample: dict[str, Any]) -> list[dict[str, Any]]:
    return [*counterexample.get("calls", ()), *counterexample.get("events", ())]


@pytest.mark.parametrize(
    ("draw", "generator"),
    [("torch.rand(1)", "torch"), ("__import__('random').random()", "random")],
)
def test_a_program_shows_whose_randomness_is_drawn(
    zygote: Zygote, draw: str, generator: str, tmp_path: Path
) -> None:
    """Rows are the same again, and yet every other request feels it; without the draw, none."""
    specimen = boosts("LS-15", tmp_path, add_request=draw)
    path = write(specimen, failing(zygote, specimen, tmp_path), tmp_path)

    status, said = execute(zygote, path)
    assert status == 1, said
    assert f"FAILS: the plugin drew from the global random generator of {generator}\n" in said

    boosts("LS-15", tmp_path)
    status, said = execute(zygote, path)
    assert status == 0, said
    assert said.splitlines()[-1].startswith("OK: ")


def test_a_program_shows_what_is_raised_in_full_batches(zygote: Zygote, tmp_path: Path) -> None:
    """Where an instance has room for 64 requests and says so, the rule about room is broken."""
    specimen = boosts("LS-27", tmp_path, constructor="self.boosts = self.boosts.new_zeros(64)")
    path = write(specimen, failing(zygote, specimen, tmp_path), tmp_path)

    status, said = execute(zygote, path)
    assert status == 1, said
    assert "FAILS: with 1100 requests: IndexError" in said

    boosts("LS-27", tmp_path)
    assert execute(zygote, path)[0] == 0


def test_a_program_shows_where_a_call_hangs(zygote: Zygote, tmp_path: Path) -> None:
    """It says which call must return, and ends by itself with the place where it is."""
    specimen = SPECIMENS["waits_for_ever"]
    path = write(specimen, failing(zygote, specimen, tmp_path), tmp_path)
    source = path.read_text(encoding="utf-8")
    assert "traceback_later(20," in source
    path.write_text(source.replace("traceback_later(20,", "traceback_later(1,"), encoding="utf-8")

    status, said = execute(zygote, path)

    assert status == 1, said
    assert "calling apply(logits, ctx); expected: it returns" in said
    assert "waits_for_ever.py" in said


@pytest.mark.usefixtures("shared_zygote")
def test_what_a_program_does_not_show_has_none(zygote: Zygote, tmp_path: Path) -> None:
    """Three instances are made without harm in a program; the fault is replayed by its check."""
    late = "type(self).made += 1; assert self.made <= 4"
    specimen = boosts("LS-02", tmp_path, constructor=late)
    result = failing(zygote, specimen, tmp_path)
    path = write(specimen, result, tmp_path)

    assert not has_one(result)
    assert not path.exists()
    assert replay_case(path.with_suffix(".json"), python_path=())[0] is Outcome.STILL_FAILS


@pytest.mark.parametrize("seed", [5, 2**40])
def test_programs_are_made_of_the_seed(zygote: Zygote, seed: int, tmp_path: Path) -> None:
    """With another seed the logits and the mask are others, and the program fails as well."""
    specimen = SPECIMENS["clamps_logits"]
    rule = str(specimen.rule)
    results = certify(zygote, specimen, tmp_path, rules={rule}, seed=seed, budget=Budget.QUICK)
    result = results[rule]
    path = write(specimen, result, tmp_path)

    assert f"seed={seed})" in path.read_text(encoding="utf-8")
    assert execute(zygote, path)[0] == 1
