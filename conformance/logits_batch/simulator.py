# SPDX-License-Identifier: Apache-2.0
"""Evidence ``simulator``: the rules of a batch logits processor, without an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conformance.logits import effects as common
from conformance.logits import processes
from conformance.logits.memory import forgets
from conformance.logits.trial import Contract
from conformance.logits_batch import (
    batches,
    checks,
    costs,
    demonstrations,
    effects,
    memory,
    readiness,
    strata,
)
from conformance.logits_batch.bench import Bench
from conformance.logits_batch.parameters import rows_alone

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from conformance.findings import Finding
    from conformance.logits.trial import Trial

CHECKS: Mapping[str, Callable[[Trial], Finding]] = {
    "LB-01": checks.loads,
    "LB-02": checks.constructs,
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
    "LB-36": costs.grows,
    "LB-37": costs.fits,
}


def _follows_from(trial: Trial, rule: str) -> str | None:
    return "LB-29" if rule == "LB-16" and batches.minds_inference_mode(trial.bench) else None


CONTRACT = Contract(
    strata=strata.STRATA,
    checks=CHECKS,
    loads="LB-01",
    opt_out="LB-04",
    survives="LB-24",
    shape="LB-14",
    raises="LB-16",
    steady="LB-23",
    rule_of_call={
        "__init__": "LB-02",
        "is_argmax_invariant()": "LB-13",
        "update_state(None)": "LB-09",
    },
    comparing=frozenset(("LB-02", "LB-29", "LB-30", "LB-31")),
    leading=frozenset(("LB-04", "LB-09", "LB-14", "LB-16")),
    anywhere=frozenset(("LB-09",)),
    follows_from=_follows_from,
    bench=Bench,
    rows_alone=rows_alone,
    look=memory.look,
    tells=readiness.notes,
    show=demonstrations.shown,
)
