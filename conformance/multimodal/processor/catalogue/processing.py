# SPDX-License-Identifier: Apache-2.0
"""Rules about what a processor makes of items."""

from __future__ import annotations

from conformance.multimodal.processor.catalogue.sources import ALL, CACHED, vllm
from conformance.rules import Rule, changes, ends, section, sentence

_ONE = vllm(
    "renderers/base.py:BaseRenderer.__init__",
    "one processor serves all requests of a front end",
)

RULES = section(
    "Processing",
    Rule(
        id="MM-30",
        title="The same prompt is processed the same way",
        statement="Another processor makes the same tokens, ranges and data of the same prompt.",
        sources=(changes(CACHED),),
        hint="Look for random crops, clocks, and state of the class.",
    ),
    Rule(
        id="MM-36",
        title="A prompt does not depend on those before it",
        statement="A processor makes of a prompt what it makes of it as its first one.",
        sources=(changes(_ONE),),
        hint=(
            "Look for attributes that processing changes, and for caches with too small a key, or "
            "with id(image), which is another image's as soon as this one is gone."
        ),
    ),
    Rule(
        id="MM-87",
        title="Processed items are forgotten",
        statement="After two thousand items, no two alike, the processor does not grow any more.",
        sources=(ends(_ONE),),
        hint="Look for lists and dictionaries that calls add to; a cache may have 1,000 entries.",
    ),
    Rule(
        id="MM-88",
        title="A sound takes what its seconds take, at any rate",
        statement=(
            "A sound that comes with its sampling rate has as many placeholders as the same "
            "seconds at another rate, give or take one or a tenth."
        ),
        sources=(
            sentence(
                vllm(
                    "multimodal/inputs.py:HfAudioItem",
                    "a tuple (audio, sampling_rate) ... these are resampled to the model's "
                    "sampling rate before being processed by HF",
                )
            ),
        ),
        hint="Give MultiModalDataParser target_sr, or resample by the rate that comes along.",
    ),
    Rule(
        id="MM-31",
        title="What clients hand over is not changed",
        statement="The prompt, the items and mm_processor_kwargs are afterwards what they were.",
        sources=(
            vllm(
                "multimodal/processing/inputs.py:ProcessorInputs",
                "what the caller of LLM.generate handed over, which it may use again",
            ),
        ),
        hint="Look for operations in place on arrays and images, and for pop() on kwargs.",
    ),
    Rule(
        id="MM-32",
        title="The data of an item do not depend on the others",
        statement="What is handed to the model for an item is the same among others as alone.",
        sources=(
            CACHED,
            vllm(
                "model_executor/models/llava.py:PixtralHFMultiModalProcessor",
                "Avoid padding since we need the output for each image to be independent of other "
                "images for the cache to work correctly",
            ),
        ),
        hint="Cut off padding in _postprocess_hf_mm_data, or pad to a fixed size.",
        resembles=("vllm-project/vllm#51827",),
    ),
    Rule(
        id="MM-34",
        title="A cache changes nothing",
        statement=(
            "With a cache that is too small for all items, in the front end alone or in front end "
            "and engine, prompts get the tokens, ranges and data that they get without one."
        ),
        evidence=ALL,
        sources=(changes(CACHED),),
        hint=(
            "_get_prompt_updates gets only the items that are missing from the cache: look them "
            "up in the replacement function, and by its index.  Where all are cached, there is no "
            "list of them at all."
        ),
    ),
)
