# SPDX-License-Identifier: Apache-2.0
"""Rules about limits, refusals and what memory is reserved for."""

from __future__ import annotations

from conformance.multimodal.processor.catalogue.sources import (
    ALL,
    RAISES,
    article,
    processing,
    vllm,
)
from conformance.rules import Rule, ends, section, sentence

_VALIDATE = processing(
    "context.py:BaseProcessingInfo.validate_num_items",
    "Raise ValueError if the number of input items for the given modality is invalid",
    "0.16",
)
_ERRORS = vllm(
    "entrypoints/openai", "ValueError is the client's error, HTTP 400; any other is HTTP 500"
)
_TRUST = vllm(
    "renderers/online_renderer.py:OnlineRenderer",
    "trust_request_mm_kwargs: requests of clients may have mm_processor_kwargs; those of "
    "LLM.generate always may",
    "0.32",
)
_MOST = processing(
    "context.py:BaseProcessingInfo.get_mm_max_tokens_per_item",
    "Return the maximum number of tokens per item of for each modality; agree with dummy inputs at "
    "maximum possible sizes",
)

RULES = section(
    "Limits and memory",
    Rule(
        id="MM-04",
        title="Too many items are refused",
        statement="More items than are allowed in a prompt are refused with a ValueError.",
        evidence=ALL,
        sources=(
            sentence(_VALIDATE),
            article("exceeding limits raises ValueError before processing"),
        ),
        hint="Leave validate_num_items and parse_mm_data to the base class.",
    ),
    Rule(
        id="MM-05",
        title="Too many items are refused before work is done",
        statement="More items than are allowed are refused before the HF processor is called.",
        sources=(_VALIDATE, sentence(article("capability asked before any expensive work"))),
        hint="A client who sends four hundred images must not have them resized first.",
    ),
    Rule(
        id="MM-06",
        title="Other modalities are refused",
        statement="An item of a modality that is not declared is refused with a ValueError.",
        evidence=ALL,
        sources=(
            vllm(
                "multimodal/parse.py:MultiModalDataParser.parse_mm_data",
                "raise ValueError(Unsupported modality)",
            ),
            _VALIDATE,
        ),
        hint="Do not look modalities up in dictionaries without asking whether they are there.",
    ),
    Rule(
        id="MM-07",
        title="Odd items are processed or refused",
        statement=(
            "An item of an unusual size (one pixel, one sample, one frame, very long and thin) or "
            "form (arrays, alpha, 16 bits, several channels, other rates) is processed, or refused "
            "with a ValueError."
        ),
        sources=(_ERRORS,),
        hint=(
            "Look for divisions by a size that is rounded down to zero, for assertions, and for "
            "modes that are looked up."
        ),
    ),
    Rule(
        id="MM-82",
        title="No option ends the engine",
        statement=(
            "With any mm_processor_kwargs an item is refused before it reaches the engine, or "
            "encoded, into no fewer rows than it has placeholders."
        ),
        sources=(RAISES, _TRUST),
        hint="Options are a client's: check type and range before placeholders are counted.",
    ),
    Rule(
        id="MM-83",
        title="Options that are none are refused",
        statement=(
            "mm_processor_kwargs with an unknown key, or with a value of another type, sign or "
            "name, are processed or refused with a ValueError or TypeError; those in "
            "invalid_options of the profile are refused."
        ),
        evidence=ALL,
        sources=(_ERRORS, _TRUST),
        hint="Look for options that are looked up in a table, asserted or divided by.",
    ),
    Rule(
        id="MM-08",
        title="Dummy inputs hold what is asked for",
        statement=(
            "Dummy text and dummy data for any allowed number of items are processed, and give "
            "that many."
        ),
        sources=(
            processing(
                "processor.py:BaseMultiModalProcessor.get_dummy_mm_inputs",
                "Create dummy data for profiling the memory usage of a model",
            ),
            sentence(
                processing(
                    "dummy_inputs.py:BaseDummyInputsBuilder.get_dummy_text",
                    "Build the text input corresponding to `mm_counts`",
                )
            ),
        ),
        hint="get_dummy_text needs a placeholder for each item, and get_dummy_mm_data each item.",
    ),
    Rule(
        id="MM-29",
        title="No item has more embeddings than memory is reserved for",
        statement=(
            "No item that is processed has more embeddings than get_mm_max_tokens_per_item says, "
            "or than the dummy item has where that says None."
        ),
        sources=(
            vllm(
                "multimodal/encoder_budget.py:MultiModalBudget",
                "the encoder cache and the encoder's batch are as large as the largest item",
            ),
            sentence(_MOST),
        ),
        hint="Refuse what is longer than the dummy item. The largest picture is often not the "
        "widest: try all shapes with as many pixels. What get_mm_max_tokens_per_item inherits may "
        "be None.",
    ),
    Rule(
        id="MM-35",
        title="The estimate agrees with the dummy item",
        statement=(
            "get_mm_max_tokens_per_item, where it gives a number, gives that of the dummy item's "
            "embeddings."
        ),
        sources=(_MOST,),
        hint="Profiling encodes the dummy item: memory is measured with that many rows.",
    ),
    Rule(
        id="MM-39",
        title="The dummy item can be encoded",
        statement="The dummy item gets as many rows of embeddings as it has placeholders.",
        sources=(
            ends(
                vllm(
                    "v1/worker/gpu_model_runner.py:GPUModelRunner.profile_run",
                    "dummy items are encoded before the first request",
                )
            ),
        ),
        hint="The largest item may take another way through the model than ordinary ones.",
    ),
)
