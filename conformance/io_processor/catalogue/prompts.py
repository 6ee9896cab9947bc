# SPDX-License-Identifier: Apache-2.0
"""Rules about prompts and their parameters."""

from __future__ import annotations

from conformance.io_processor.catalogue.sources import document, interface, vllm
from conformance.rules import Level, Rule

SECTION = "Prompts and parameters"

PROMPTS = Rule(
    id="IO-13",
    title="pre_process gives prompts that vLLM takes",
    statement=(
        "pre_process returns one prompt or a sequence of at least one, and vLLM renders each of "
        "them."
    ),
    level=Level.MUST,
    section=SECTION,
    sources=(
        interface("pre_process(...) -> PromptType | Sequence[PromptType]"),
        vllm("renderers/inputs/preprocess.py:prompt_to_seq", "asks for the length"),
        vllm(
            "entrypoints/pooling/base/serving.py:PoolingBaseServing._preprocessing",
            "You must pass at least one prompt",
        ),
    ),
    hint="Return text, token ids or a prompt dictionary, or a list of these; no generator, and "
    "never an empty list.",
)

PARAMS = Rule(
    id="IO-14",
    title="Pooling parameters are always returned",
    statement=(
        "validate_or_generate_params and merge_pooling_params return PoolingParams with a task "
        "that vLLM knows, whether they are given some or none."
    ),
    level=Level.MUST,
    section=SECTION,
    sources=(
        document("The function always returns the validated/generated parameters"),
        interface("merge_pooling_params(params=None) -> PoolingParams"),
    ),
    hint="End with return params; online the method is called without an argument.",
)

KEPT = Rule(
    id="IO-15",
    title="Parameters that were asked for are not dropped",
    statement=(
        "What the caller set (use_activation, dimensions) is in the parameters that are returned, "
        "or the request is refused."
    ),
    level=Level.MUST,
    section=SECTION,
    sources=(
        document("validating with the plugin any parameters received with the user request, or to "
                 "generate new ones if none are specified"),
        interface("return params or PoolingParams(task='plugin')"),
    ),
    hint="Change the parameters that were given; make new ones only where there are none.",
)  # fmt: skip

FRESH = Rule(
    id="IO-16",
    title="Requests do not share parameters",
    statement="Two requests never get the same parameters object.",
    level=Level.MUST,
    section=SECTION,
    sources=(
        vllm(
            "entrypoints/pooling/pooling/io_processor.py:PluginWithIOProcessorPlugins",
            "sets pooling_params.task on what it was given",
        ),
        vllm("pooling_params.py:PoolingParams.verify", "fills in defaults of the model"),
    ),
    hint="Make the parameters in the method, not in the class or the constructor.",
)
