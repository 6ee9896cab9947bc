# SPDX-License-Identifier: Apache-2.0
"""Rules about prompts and their parameters."""

from __future__ import annotations

from conformance.io_processor.catalogue.sources import document, interface, vllm
from conformance.rules import Rule, section, sentence

RULES = section(
    "Prompts and parameters",
    Rule(
        id="IO-13",
        title="pre_process gives prompts that vLLM takes",
        statement=(
            "pre_process returns one prompt or a sequence of at least one, and vLLM takes each of "
            "them: it is not empty, and all its tokens are of the vocabulary and fit the model."
        ),
        sources=(
            sentence(interface("pre_process(...) -> PromptType | Sequence[PromptType]")),
            vllm("renderers/inputs/preprocess.py:prompt_to_seq", "asks for the length"),
            vllm(
                "entrypoints/pooling/base/serving.py:PoolingBaseServing._preprocessing",
                "You must pass at least one prompt",
            ),
            vllm(
                "v1/engine/input_processor.py:InputProcessor._validate_model_inputs",
                "refuses prompts without tokens, tokens out of vocabulary, and more than the model "
                "takes",
            ),
        ),
        hint="Return text, token ids or a prompt dictionary, or a list of these; no generator, "
        "and never an empty list. Where the plugin needs a model of other modalities, another "
        "vocabulary or a longer context than the harness's tiny models have, name it: "
        "[io-processor] model.",
    ),
    Rule(
        id="IO-14",
        title="Pooling parameters are always returned",
        statement=(
            "validate_or_generate_params and merge_pooling_params return PoolingParams with a task "
            "that vLLM knows, and no other task where they are given empty ones (offline) than "
            "where they are given none (online); the same for each prompt of a request."
        ),
        sources=(
            sentence(document("The function always returns the validated/generated parameters")),
            interface("merge_pooling_params(params=None) -> PoolingParams"),
            vllm(
                "entrypoints/pooling/pooling/io_processor.py:PluginWithIOProcessorPlugins",
                "online merge_pooling_params(), offline merge_pooling_params(PoolingParams()) for "
                "each prompt; a task of None becomes 'plugin'",
            ),
        ),
        hint="End with return params; online the method is called without an argument.",
    ),
    Rule(
        id="IO-15",
        title="Parameters that were asked for are not dropped",
        statement=(
            "What the caller set is in the parameters that are returned (use_activation and "
            "dimensions as they were; of the others the plugin may have values of its own), or the "
            "request is refused."
        ),
        sources=(
            sentence(
                document(
                    "validating with the plugin any ... received with the user request, or "
                    "to generate new ones if none are specified"
                )
            ),
            interface("return params or PoolingParams(task='plugin')"),
        ),
        hint="Change the parameters that were given; make new ones only where there are none.",
    ),
    Rule(
        id="IO-16",
        title="Requests do not share parameters",
        statement="Two requests never get the same parameters object.",
        sources=(
            vllm(
                "entrypoints/pooling/pooling/io_processor.py:PluginWithIOProcessorPlugins",
                "sets pooling_params.task on what it was given",
            ),
            vllm("pooling_params.py:PoolingParams.verify", "fills in defaults of the model"),
        ),
        hint="Make the parameters in the method, not in the class or the constructor.",
    ),
    Rule(
        id="IO-43",
        title="Offline requests need not name the task",
        statement=(
            "The task that the plugin sets where it is given no parameters (online) it also sets "
            "in parameters that leave it open (offline)."
        ),
        sources=(
            vllm(
                "entrypoints/pooling/pooling/io_processor.py:PluginWithIOProcessorPlugins",
                "offline merge_pooling_params(PoolingParams()): a task of None becomes 'plugin'",
            ),
            vllm(
                "v1/engine/input_processor.py:InputProcessor",
                "refuses tasks that the model has no pooler for",
            ),
        ),
        hint="Set params.task whether params are given or made. Until then a caller must name it: "
        "LLM.encode(..., pooling_params=PoolingParams(task=...), pooling_task='plugin').",
    ),
)
