# SPDX-License-Identifier: Apache-2.0
"""Evidence ``simulator``: the rules of a batch logits processor, without an engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from vllm.v1.sample.logits_processor import LogitsProcessor, _load_logitsprocs_by_fqcns

from conformance.findings import Finding
from conformance.logits import combinations, judgement, past, processes
from conformance.logits import costs as work
from conformance.logits import effects as common
from conformance.logits.contract import Contract
from conformance.logits.fuzzing import requests
from conformance.logits.memory import forgets
from conformance.logits.trial import Trial
from conformance.logits_batch import (
    batches,
    checks,
    costs,
    demonstrations,
    devices,
    effects,
    parameters,
    readiness,
    strata,
)
from conformance.logits_batch.bench import Bench, Call
from conformance.logits_batch.excerpts import Shown
from conformance.logits_batch.play import play
from conformance.logits_batch.scenes import Record
from conformance.watching.untouched import ERRANDS

CHECKS: Mapping[str, Callable[[Trial], Finding]] = {
    "LB-01": partial(common.loads, loader=_load_logitsprocs_by_fqcns),
    "LB-02": checks.constructs,
    "LB-03": past.independent,
    "LB-05": common.acts,
    "LB-10": effects.live_list,
    "LB-12": checks.claim_is_true,
    "LB-13": checks.claim_is_stable,
    "LB-15": common.refuses,
    "LB-23": common.deterministic,
    "LB-25": effects.does_without_prompt,
    "LB-27": forgets,
    "LB-28": batches.comes_back,
    "LB-29": batches.takes_views,
    "LB-30": batches.serves_full_batches,
    "LB-31": processes.needs_no_instance,
    "LB-33": processes.same_on_every_rank,
    "LB-34": effects.keeps_masks,
    "LB-35": costs.idles,
    "LB-36": partial(work.grows, start=costs.start),
    "LB-37": partial(work.fits, start=costs.start),
    "LB-38": requests.harmless,
    "LB-42": requests.refuses_with_400,
    "LB-39": partial(combinations.judge, harmful="LB-39", harms=True),
    "LB-41": partial(combinations.judge, harmful="LB-39", harms=False),
    "LB-46": combinations.meant,
    "LB-40": processes.leaves_others_alone,
    "LB-44": devices.keeps_to_device,
    "LB-48": common.answers_nothing,
    "LB-49": batches.serves_long_requests,
    "LB-50": batches.serves_wider_logits,
    "LB-51": batches.serves_later,
}


def _follows_from(trial: Trial, rule: str) -> str | None:
    broken = {each for example in trial.examples() for each in example.rules()}
    if rule == "LB-45" and (first := {"LB-02", "LB-43"} & broken):
        return min(first)  # shows with and without tokens that stay unknown
    if rule == "LB-11" and "LB-43" in broken:
        return "LB-43"  # what was taken out of the parameters is gone when a request resumes
    return "LB-29" if rule == "LB-16" and batches.minds_inference_mode(trial.bench) else None


CONTRACT = Contract(
    generation="logits/batch",
    strata=strata.STRATA,
    judge=judgement.judge,
    at_random=processes.at_random,
    raised_again=processes.raised_again,
    aside=(
        combinations.explored,
        *(CHECKS[rule] for rule in ("LB-10", "LB-30", "LB-36", "LB-37", "LB-44")),
    ),
    ahead=processes.begin,
    checks=CHECKS,
    loads="LB-01",
    survives="LB-24",
    shape="LB-14",
    raises="LB-16",
    steady="LB-23",
    apart="LB-02",
    leaves="LB-40",
    forgets="LB-27",
    means="LB-46",
    rule_of_call={
        Call.CONSTRUCTOR: "LB-02",
        Call.CLAIM: "LB-13",
        Call.NO_UPDATE: "LB-09",
    },
    comparing=frozenset(
        ("LB-02", "LB-03", "LB-10", "LB-25", "LB-29", "LB-30", "LB-31", "LB-33", "LB-39")
    ),
    both=frozenset(("LB-03", "LB-46")),
    leading=frozenset(("LB-04", "LB-09", "LB-14", "LB-16")),
    anywhere=frozenset(("LB-06", "LB-09")),
    follows_from=_follows_from,
    bench=Bench,
    rows_alone=parameters.rows_alone,
    begin=parameters.begin,
    observe=parameters.observe,
    look=costs.look,
    tells=readiness.notes,
    play=play,
    show=demonstrations.shown,
)


def _record(plugin: type[LogitsProcessor], errand: Record) -> Shown | None:
    """Go through a failure again; return all calls and the expectation, or None if it holds."""
    return demonstrations.record(plugin, errand, CONTRACT)


ERRANDS["record"] = _record
