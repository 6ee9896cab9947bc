# SPDX-License-Identifier: Apache-2.0
"""``logits/slot``: the logits processors of Model Runner V2, whose state is kept by slot."""

from __future__ import annotations

import re

from conformance.interface import ClassSource, Generation, Since
from conformance.logits import CASES
from conformance.logits.profile_keys import FIELDS
from conformance.logits_slot.catalogue import RULES

_MODULE = "vllm.v1.worker.gpu.sample.logits_processor"


def _likely(source: ClassSource) -> bool:
    return "LogitsProcessor" in source.bases and (
        _MODULE in source.imports or "add_request" in source.defines
    )


generations = (
    Generation(
        interface="logits-processor",
        name="logits/slot",
        title="Slot logits processor (Model Runner V2)",
        loading_rule="LS-01",
        survival_rule="LS-24",
        meaning_rule="LS-43",
        rules=RULES,
        configured="LS-44",
        fields=FIELDS,
        suite="conformance.logits_slot.suite",
        cases=CASES,
        program="conformance.counterexample.logits_program:program",
        loader="_load_v2_logitsprocs_by_fqcns",
        likely=_likely,
        sign=re.escape(_MODULE),
        since=Since("0.31", _MODULE),
        early=("conformance.logits_slot.suite",),
        preload=("conformance.logits_slot.suite:beforehand",),
        simulates_beside=True,
        order=1,
    ),
)
