# SPDX-License-Identifier: Apache-2.0
"""``mm/processor`` and ``mm/modality``: processors of vLLM's registry, plugins of one modality."""

from __future__ import annotations

from collections.abc import Mapping

from conformance.interface import CHECK_CASE, ClassSource, Field, Generation, refuses
from conformance.multimodal.host.rules import RULES as HOST_RULES
from conformance.multimodal.modality.catalogue import RULES as MODALITY_RULES
from conformance.multimodal.processor.catalogue import RULES

FIELDS: Mapping[str, Field] = {
    "model": Field(str, "A folder with a tiny model of the class.", '"path/to/model"'),
    "engine": Field(
        dict,
        "Arguments of the engine that the model needs, as vllm.EngineArgs has them.",
        "{ enable_mm_embeds = true }",
    ),
    "items": Field(dict, "Items by modality, where made-up ones cannot do.", "{ image = [] }"),
    "options": Field(list, "Values of mm_processor_kwargs to try.", "[{}]"),
    "expected": Field(
        str,
        "What it means: a function of an item that returns how many placeholders it has.",
        '"my_module:expected"',
    ),
    "invalid_options": Field(list, "Values of mm_processor_kwargs to refuse.", "[{}]"),
    "forms": Field(
        list, "Forms in which every ordinary item is taken; others may be.", '["array"]'
    ),
    "valid": Field(list, "Input that it takes.", '["path/to/file"]'),
    "invalid": Field(list, "Input that it must refuse as the client's error.", '["nonsense"]'),
    "unsupported_configurations": refuses("tensor-parallel-2"),
}


def _of_processor(source: ClassSource) -> bool:
    return "register_processor" in source.decorators


def _of_modality(source: ClassSource) -> bool:
    return {"parse_input", "validate", "get_max_per_prompt"} <= source.defines


generations = (
    Generation(
        interface="multimodal",
        name="mm/processor",
        title="Multi-modal processor (MULTIMODAL_REGISTRY)",
        loading_rule="MM-01",
        survival_rule="MM-09",
        configured="MM-86",
        meaning_rule="MM-81",
        rules=RULES,
        host_rules=HOST_RULES,
        fields=FIELDS,
        suite="conformance.multimodal.processor.suite",
        cases={
            "check": CHECK_CASE,
            "prompt": frozenset(
                ("rule", "seed", "model", "parts", "options", "backwards", "trouble")
            ),
        },
        program="conformance.multimodal.processor.program:program",
        likely=_of_processor,
        sign=r"\bMULTIMODAL_REGISTRY\b|\bBaseMultiModalProcessor\b|\bvllm\.model_executor\.models\b",
        group="vllm.general_plugins",
        preload=("conformance.multimodal.processor.trial",),
        order=5,
    ),
    Generation(
        interface="multimodal",
        name="mm/modality",
        title="Plugin of one modality (multi-modal internals article)",
        loading_rule="MM-41",
        survival_rule="MM-43",
        rules=MODALITY_RULES,
        fields=FIELDS,
        suite="conformance.multimodal.modality.suite",
        cases={"check": CHECK_CASE},
        likely=_of_modality,
        sign=r"\bdef get_max_per_prompt\b",
        order=6,
    ),
)
