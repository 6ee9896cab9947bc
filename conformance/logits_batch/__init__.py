# SPDX-License-Identifier: Apache-2.0
"""``logits/batch``: the V1 model runner's logits processors, driven by ``BatchUpdate``."""

from conformance.interface import ClassSource, Generation
from conformance.logits import CASES
from conformance.logits.profile_keys import FIELDS
from conformance.logits_batch import host_rules
from conformance.logits_batch.catalogue import RULES


def _likely(source: ClassSource) -> bool:
    return bool(source.bases & {"LogitsProcessor", "AdapterLogitsProcessor"})


generations = (
    Generation(
        interface="logits-processor",
        name="logits/batch",
        title="Batch logits processor (V1 model runner)",
        loading_rule="LB-01",
        survival_rule="LB-24",
        meaning_rule="LB-46",
        rules=RULES,
        configured="LB-47",
        host_rules=host_rules.RULES,
        fields=FIELDS,
        suite="conformance.logits_batch.suite",
        cases=CASES,
        program="conformance.counterexample.logits_program:program",
        loader="_load_logitsprocs_by_fqcns",
        likely=_likely,
        # A layer of models has the name as well.
        sign=r"\bAdapterLogitsProcessor\b|\bBatchUpdate\b|\bvllm\.v1\.sample\b|\(LogitsProcessor\)",
        early=("conformance.logits_batch.suite",),
        simulates_beside=True,
        order=0,
    ),
)
