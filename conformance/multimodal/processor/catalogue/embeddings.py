# SPDX-License-Identifier: Apache-2.0
"""Rules about the rows that ``embed_multimodal`` makes."""

from __future__ import annotations

from conformance.multimodal.processor.catalogue.sources import (
    ALL,
    COUNTS,
    EMBED,
    GATHER,
    MERGE,
    OFFLINE,
    RAISES,
    vllm,
)
from conformance.rules import Rule, changes, ends, section, sentence

_CACHE = vllm(
    "v1/worker/gpu_model_runner.py:GPUModelRunner._execute_mm_encoder",
    "items of several requests are encoded in one batch, and cached by their hash",
)

RULES = section(
    "Embeddings",
    Rule(
        id="MM-20",
        title="Every item gets one tensor of rows",
        statement=(
            "embed_multimodal returns a list or tuple with a tensor of two dimensions for each "
            "item that was processed, or one tensor of three dimensions."
        ),
        evidence=OFFLINE,
        sources=(
            sentence(
                vllm(
                    "v1/worker/utils.py:sanity_check_mm_encoder_outputs",
                    "a list/tuple of 2D tensors, or a single 3D tensor, one for each input item",
                )
            ),
            RAISES,
        ),
        hint=(
            "Split flattened rows by the sizes of the items; do not return None, and encode "
            "whatever is processed: items of one patch, of one row, of an odd number of them."
        ),
    ),
    Rule(
        id="MM-25",
        title="Rows come in the order of the items",
        statement="The n-th result belongs to the n-th item of the batch.",
        sources=(sentence(EMBED),),
        hint="Whoever sorts or groups items by size has to put the results back.",
    ),
    Rule(
        id="MM-21",
        title="No rows are missing",
        statement="An item gets no fewer rows of embeddings than it has placeholders.",
        evidence=ALL,
        sources=(ends(MERGE), sentence(COUNTS)),
        hint=(
            "Compute the number of placeholders from the processed data, as the model does: the "
            "engine dies of this with 'Attempted to assign N multimodal tokens to M placeholders'."
        ),
        resembles=(
            "vllm-project/vllm#11704",
            "vllm-project/vllm#15144",
            "vllm-project/vllm#15764",
            "vllm-project/vllm#18572",
            "vllm-project/vllm-ascend#1045",
        ),
    ),
    Rule(
        id="MM-22",
        title="No rows are left over",
        statement="An item gets no more rows of embeddings than it has placeholders.",
        evidence=OFFLINE,
        sources=(GATHER, sentence(COUNTS)),
        hint="vLLM cuts off what is too much, so the model does not see the end of the item.",
        resembles=("vllm-project/vllm#15144",),
    ),
    Rule(
        id="MM-23",
        title="No single row stands for several placeholders",
        statement="An item with several placeholders gets more than one row of embeddings.",
        evidence=OFFLINE,
        sources=(MERGE, sentence(COUNTS)),
        hint="vLLM copies one row to all placeholders: look for a pooled output.",
    ),
    Rule(
        id="MM-24",
        title="Rows can be used as embeddings",
        statement="Rows are floating-point, finite and as wide as the embeddings of the model.",
        sources=(
            vllm(
                "config/model.py:ModelConfig.get_inputs_embeds_size",
                "the size of the embeddings that rows are written over",
            ),
            RAISES,
        ),
        hint="Look at the projector's output size, and at divisions by zero for small items.",
    ),
    Rule(
        id="MM-27",
        title="The same items get the same rows",
        statement="Encoding the same items again gives the same rows, also after other items.",
        sources=(changes(_CACHE),),
        hint=(
            "Look for dropout, random numbers and state that encoding changes, such as a table of "
            "rows whose key does not tell all items apart."
        ),
    ),
    Rule(
        id="MM-26",
        title="Rows of an item do not depend on the others",
        statement="An item gets the same rows in a batch with others as alone.",
        evidence=ALL,
        sources=(changes(_CACHE),),
        hint="Look at padding without a mask, and at means over the batch.",
    ),
    Rule(
        id="MM-28",
        title="Rows are put in the places of the placeholders",
        statement=(
            "embed_input_ids writes the rows over the positions of is_multimodal, in their order, "
            "and leaves the embeddings of text as they are."
        ),
        sources=(
            sentence(
                vllm(
                    "model_executor/models/interfaces.py:SupportsMultiModal.embed_input_ids",
                    "Apply token embeddings to input_ids; scatter multimodal_embeddings according "
                    "to the mask is_multimodal",
                    "0.11",
                )
            ),
        ),
        hint="Inherit embed_input_ids, or merge by the mask that it is given.",
    ),
    Rule(
        id="MM-84",
        title="Given rows are what the model sees",
        statement=(
            "Where operators allow rows of embeddings in place of items and a processor takes "
            "them, an item has as many placeholders as rows, and embed_multimodal returns those."
        ),
        sources=(
            sentence(COUNTS),
            vllm(
                "config/multimodal.py:MultiModalConfig.enable_mm_embeds",
                "enables passing multimodal embeddings: they go into the prompt as they are",
                "0.11",
            ),
            RAISES,
        ),
        hint="Count with get_feature_size of the embedding items, and do not project rows again.",
    ),
)
