# SPDX-License-Identifier: Apache-2.0
"""Evidence ``simulator``: the rules of a slot logits processor, without an engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from vllm.v1.worker.gpu.sample.logits_processor.loader import _load_v2_logitsprocs_by_fqcns

from conformance.findings import Finding
from conformance.logits import combinations, judgement, past, processes
from conformance.logits import costs as work
from conformance.logits import effects as common
from conformance.logits.contract import Contract
from conformance.logits.fuzzing import requests
from conformance.logits.memory import forgets
from conformance.logits.trial import Trial
from conformance.logits_slot import (
    checks,
    costs,
    demonstrations,
    devices,
    effects,
    parameters,
    strata,
)
from conformance.logits_slot.bench import Bench, PluginAnswered, PluginWrote
from conformance.logits_slot.play import play

CHECKS: Mapping[str, Callable[[Trial], Finding]] = {
    "LS-01": partial(common.loads, loader=_load_v2_logitsprocs_by_fqcns),
    "LS-02": checks.constructs,
    "LS-03": past.independent,
    "LS-05": common.acts,
    "LS-13": checks.warms_up,
    "LS-15": common.deterministic,
    "LS-19": effects.keeps_masks,
    "LS-21": effects.leaves_a_token,
    "LS-23": common.refuses,
    "LS-25": processes.same_on_every_rank,
    "LS-26": forgets,
    "LS-27": checks.serves_full_batches,
    "LS-28": effects.never_waits,
    "LS-29": checks.says_no,
    "LS-31": checks.agrees_with_itself,
    "LS-32": partial(work.grows, start=costs.start),
    "LS-33": partial(work.fits, start=costs.start),
    "LS-34": checks.takes_padded_batches,
    "LS-35": requests.harmless,
    "LS-39": requests.refuses_with_400,
    "LS-36": partial(combinations.judge, harmful="LS-36", harms=True),
    "LS-38": partial(combinations.judge, harmful="LS-36", harms=False),
    "LS-43": combinations.meant,
    "LS-37": processes.leaves_others_alone,
    "LS-41": processes.needs_no_instance,
    "LS-42": devices.keeps_to_device,
    "LS-45": common.answers_nothing,
    "LS-46": checks.serves_long_requests,
    "LS-47": checks.serves_wider_logits,
    "LS-48": checks.serves_later,
}


def _follows_from(trial: Trial, rule: str) -> str | None:
    if rule == "LS-08" and any("LS-40" in example.rules() for example in trial.examples()):
        return "LS-40"  # what was taken out of the parameters is gone when a request resumes
    return None


def _inapplicable(trial: Trial, rule: str) -> str | None:
    # Only under speculative decoding are logits processed in parts.
    if rule in {"LS-10", "LS-11"} and not trial.bench.speculates:
        return "it refuses engines with speculative decoding"
    return None


CONTRACT = Contract(
    generation="logits/slot",
    strata=strata.STRATA,
    judge=judgement.judge,
    at_random=processes.at_random,
    raised_again=processes.raised_again,
    aside=(
        combinations.explored,
        *(CHECKS[rule] for rule in ("LS-13", "LS-27", "LS-28", "LS-32", "LS-33", "LS-42")),
    ),
    ahead=processes.begin,
    checks=CHECKS,
    loads="LS-01",
    survives="LS-24",
    shape="LS-20",
    raises="LS-22",
    steady="LS-15",
    apart="LS-02",
    leaves="LS-37",
    forgets="LS-26",
    means="LS-43",
    rule_of_call={"__init__": "LS-02"},
    rule_of_error={PluginAnswered: "LS-14", PluginWrote: "LS-16"},
    comparing=frozenset(
        ("LS-02", "LS-03", "LS-13", "LS-25", "LS-27", "LS-31", "LS-34", "LS-36", "LS-41")
    ),
    leading=frozenset(("LS-04", "LS-14", "LS-17", "LS-18", "LS-20", "LS-22")),
    both=frozenset(("LS-03", "LS-21", "LS-43")),
    anywhere=strata.ANYWHERE,
    follows_from=_follows_from,
    inapplicable=_inapplicable,
    bench=Bench,
    rows_alone=parameters.rows_alone,
    rows_beside=(parameters.rows_in_all_slots,),
    begin=parameters.begin,
    observe=parameters.observe,
    look=costs.look,
    play=play,
    show=demonstrations.shown,
)
