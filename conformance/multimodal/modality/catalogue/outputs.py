# SPDX-License-Identifier: Apache-2.0
"""Rules about counts of tokens, and about the arrays that a model is given."""

from __future__ import annotations

from conformance.multimodal.modality.catalogue.sources import (
    ALL,
    ALONE,
    EXACT,
    SHARED,
    article,
    library,
)
from conformance.rules import Rule, changes, sentence

TOKENS, ARRAYS = "Tokens", "Arrays"

_ESTIMATE = article(
    "Over-estimation wastes capacity; under-estimation can cause OOM. Estimation happens BEFORE "
    "encoding"
)
_FEATURES = library(
    "interface.py:MultiModalPlugin.preprocess",
    "an item's arrays by the names of the model's arguments",
)

RULES = (
    Rule(
        id="MM-63",
        title="Counts are whole numbers, one or more",
        statement=(
            "estimate_tokens and count_tokens return a whole number above 0, and the same one when "
            "they are asked again."
        ),
        section=TOKENS,
        sources=(_ESTIMATE, sentence(EXACT)),
        hint="Round up, with -(-a // b); do not take anything out of the arrays while counting.",
    ),
    Rule(
        id="MM-64",
        title="The estimate is never below the count",
        statement="No item of any size takes more tokens than estimate_tokens said.",
        section=TOKENS,
        sources=(
            sentence(_ESTIMATE),
            library("errors.py:EstimateError", "the scheduler made room for too few"),
        ),
        hint="Let the estimate and the resizing call the same function.",
    ),
    Rule(
        id="MM-65",
        title="Where every item takes the same, the estimate is exact",
        statement=(
            "For a model whose items all take one number of tokens, the estimate is that number."
        ),
        section=TOKENS,
        sources=(
            article("For LLaVA (fixed resolution): image_tokens = 576 per image (always the same)"),
            _ESTIMATE,
        ),
        hint="Add no safety margin: it is kept free for every item.",
    ),
    Rule(
        id="MM-66",
        title="Placeholders are as many as embeddings",
        statement=(
            "For every item of a prompt the encoder makes as many rows as count_tokens said, so "
            "that embeddings fit their placeholders one by one."
        ),
        section=TOKENS,
        sources=(
            sentence(EXACT),
            library("placeholders.py:replace", "every count is checked for every item"),
        ),
        hint="Count from the shapes of the arrays, and merge patches as the encoder does.",
        resembles=("vllm-project/vllm#15144", "vllm-project/vllm#15764"),
        evidence=ALL,
    ),
    Rule(
        id="MM-67",
        title="In the pipeline items keep their order and their limit",
        statement=(
            "A prompt with as many items as may be has each of them in its place as it is alone; "
            "one item more is refused before parse_input is called."
        ),
        section=TOKENS,
        sources=(article("The MultiModalProcessor coordinates the full pipeline"), sentence(EXACT)),
        hint="The pipeline freezes the arrays of preprocess before it counts: only read them.",
    ),
    Rule(
        id="MM-68",
        title="A model is given arrays of numbers",
        statement="preprocess returns a mapping from texts to arrays of numbers, one or more.",
        section=ARRAYS,
        sources=(_FEATURES,),
        hint="Convert lists and pictures with numpy.asarray; arrays of objects cannot be sent.",
    ),
    Rule(
        id="MM-69",
        title="Arrays hold finite numbers",
        statement="Whatever was sent, no array that a model is given holds NaN or an infinity.",
        section=ARRAYS,
        sources=(
            library(
                "arrays.py:require_finite",
                "one of them spreads over every token that attends to it",
            ),
        ),
        hint="Refuse what is not finite, and look for divisions by a deviation of 0.",
    ),
    Rule(
        id="MM-70",
        title="The same item gives the same arrays",
        statement="An item that is sent again gives the same arrays and the same counts.",
        section=ARRAYS,
        sources=(ALONE, changes(SHARED)),
        hint="Take no random crops, and draw no noise: embeddings are kept under the item's hash.",
        evidence=ALL,
    ),
    Rule(
        id="MM-78",
        title="Every item has the same arrays",
        statement=(
            "The names, dtypes and numbers of dimensions of the arrays are those of every item."
        ),
        section=ARRAYS,
        sources=(_FEATURES,),
        hint="Convert to one dtype whatever was sent, and leave no array out.",
    ),
)
