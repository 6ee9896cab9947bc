# SPDX-License-Identifier: Apache-2.0
"""Evidence ``simulator``: the rules of a slot logits processor, without an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conformance.logits import effects as common
from conformance.logits import processes
from conformance.logits.memory import forgets
from conformance.logits.trial import Contract
from conformance.logits_slot import checks, costs, demonstrations, effects, memory, strata
from conformance.logits_slot.bench import Bench, PluginAnswered, PluginWrote
from conformance.logits_slot.parameters import rows_alone

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from conformance.findings import Finding
    from conformance.logits.trial import Trial

CHECKS: Mapping[str, Callable[[Trial], Finding]] = {
    "LS-01": checks.loads,
    "LS-02": checks.constructs,
    "LS-05": common.acts,
    "LS-13": checks.warms_up,
    "LS-15": common.deterministic,
    "LS-19": effects.keeps_masks,
    "LS-21": effects.leaves_a_token,
    "LS-23": checks.admits,
    "LS-25": processes.same_on_every_rank,
    "LS-26": forgets,
    "LS-27": checks.serves_full_batches,
    "LS-28": effects.never_waits,
    "LS-29": checks.says_no,
    "LS-31": checks.agrees_with_itself,
    "LS-32": costs.grows,
    "LS-33": costs.fits,
    "LS-34": checks.takes_padded_batches,
}

CONTRACT = Contract(
    strata=strata.STRATA,
    checks=CHECKS,
    loads="LS-01",
    opt_out="LS-04",
    survives="LS-24",
    shape="LS-20",
    raises="LS-22",
    steady="LS-15",
    rule_of_call={"__init__": "LS-02"},
    rule_of_error={PluginAnswered: "LS-14", PluginWrote: "LS-16"},
    comparing=frozenset(("LS-02", "LS-13", "LS-23", "LS-27", "LS-31", "LS-34")),
    leading=frozenset(("LS-04", "LS-14", "LS-17", "LS-18", "LS-20", "LS-22")),
    both=frozenset(("LS-21",)),
    anywhere=strata.ANYWHERE,
    bench=Bench,
    rows_alone=rows_alone,
    look=memory.look,
    show=demonstrations.shown,
)
