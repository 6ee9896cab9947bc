# SPDX-License-Identifier: Apache-2.0
"""Rules about placeholders and the text around them."""

from __future__ import annotations

from conformance.multimodal.processor.catalogue.sources import (
    ALL,
    COUNTS,
    OFFLINE,
    RAISES,
    SERVER,
    SUPPORTED,
    processing,
    vllm,
)
from conformance.rules import Rule, Source, changes, section, sentence

_RANGE = vllm(
    "multimodal/inputs.py:PlaceholderRange",
    "offset: the start index of the placeholder in the prompt; length: the length of the "
    "placeholder; is_embed: a boolean mask of shape (length,)",
)

RULES = section(
    "Prompts and placeholders",
    Rule(
        id="MM-10",
        title="Items that are taken alone are taken together",
        statement=(
            "A prompt with as many items as are allowed is processed, and each item gets one "
            "range, one hash and one entry in mm_kwargs; several modalities in one prompt, or "
            "forms such as arrays beside pictures, may be refused with a ValueError."
        ),
        evidence=ALL,
        sources=(
            processing(
                "processor.py:BaseMultiModalProcessor._validate_mm_placeholders",
                "Expected there to be N prompt placeholders corresponding to N items",
            ),
            sentence(SUPPORTED),
        ),
        hint="Items differ in size: check what is stacked, and _get_mm_fields_config.",
        resembles=("vllm-project/vllm#15338", "vllm-project/vllm#12031"),
    ),
    Rule(
        id="MM-12",
        title="Ranges lie within the prompt and apart",
        statement=(
            "Every range lies within the processed prompt and is not empty, its mask has its "
            "length, and no position gets embeddings of two items."
        ),
        sources=(sentence(_RANGE),),
        hint="Leave offsets to the base class; is_embed gets the whole content and masks it.",
    ),
    Rule(
        id="MM-13",
        title="Placeholders come in the order of the items",
        statement=(
            "The ranges have the order of the items in the prompt, and each has the placeholders "
            "that its own item needs."
        ),
        sources=(
            sentence(
                processing(
                    "processor.py:ResolvedPromptUpdate.item_idx",
                    "The index within modality of the item this update pertains to",
                )
            ),
        ),
        hint="The replacement is called with the index of the item: compute its size from that.",
    ),
    Rule(
        id="MM-33",
        title="An item has as many placeholders among others as alone",
        statement="The number of an item's placeholders does not depend on the other items.",
        sources=(
            changes(
                processing(
                    "processor.py:BaseMultiModalProcessor._merge_mm_kwargs",
                    "an item's prompt updates are kept with it and used again beside other items",
                )
            ),
            COUNTS,
        ),
        hint="Look for maxima and sums over all items, and for the last or first being special.",
        resembles=("vllm-project/vllm#15144",),
    ),
    Rule(
        id="MM-14",
        title="The text stays, and outside of the ranges",
        statement=(
            "The text before, between and after items is in the processed prompt, in its place "
            "and not covered by any range."
        ),
        sources=(
            sentence(_RANGE),
            processing(
                "processor.py:BaseMultiModalProcessor.apply",
                "Find and update sequences in the token IDs with placeholder tokens",
            ),
        ),
        hint="Look at offsets that are off by one, and at _postprocess_prompt.",
    ),
    Rule(
        id="MM-15",
        title="A placeholder too many is text",
        statement=(
            "A prompt with one more placeholder than items is refused with a ValueError, or "
            "processed like one without it and embedded."
        ),
        sources=(
            vllm(
                "model_executor/models/interfaces.py:SupportsMultiModal.embed_input_ids",
                "scatter them into input_ids according to the mask is_multimodal",
                "0.11",
            ),
            RAISES,
        ),
        hint="Users can type the placeholder: use is_multimodal, not input_ids == token.",
        resembles=("studio-dots-ai/dots.ocr#126",),
    ),
    Rule(
        id="MM-16",
        title="Chats have the placeholders that the processor looks for",
        statement=(
            "get_placeholder_str gives the text that stands for an item, or None where none is "
            "needed; tokenized with the text around it, it becomes the item's placeholders."
        ),
        evidence=SERVER,
        sources=(
            vllm(
                "model_executor/models/interfaces.py:SupportsMultiModal.get_placeholder_str",
                "Get the placeholder text for the ith modality item in the prompt",
            ),
        ),
        hint="Make the placeholder a special token, or it merges with the text around it.",
        resembles=("vllm-project/vllm#18556",),
    ),
    Rule(
        id="MM-17",
        title="A text is processed like its tokens",
        statement="The processor makes the same of a text as of the tokens of that text.",
        evidence=OFFLINE,
        sources=(
            processing(
                "processor.py:BaseMultiModalProcessor.__call__",
                "prompt = tokenizer.encode(prompt, **default_tok_params.get_encode_kwargs())",
            ),
        ),
        hint="Do not treat texts apart: since 0.29 all that arrives in apply is tokens.",
    ),
    Rule(
        id="MM-81",
        title="Items have the placeholders and data that the author says",
        statement=(
            "Where a profile has `expected`, every item that is processed has as many "
            "placeholders for embeddings as this function returns for it, alone and among others, "
            "and in its data what the function returns by name."
        ),
        evidence=OFFLINE,
        sources=(sentence(Source("the plugin's profile", "expected: what an item takes")),),
        hint="One of the two is wrong: the processor, or the function.",
    ),
    Rule(
        id="MM-18",
        title="A prompt with an empty list of items stays text",
        statement="A prompt with an empty list of items is processed and gets no placeholders.",
        evidence=ALL,
        sources=(
            processing(
                "processor.py:BaseMultiModalProcessor._get_hf_mm_inputs",
                "if not items: continue",
            ),
        ),
        hint="hf_inputs is empty there, and when all items come from the cache.",
    ),
)
