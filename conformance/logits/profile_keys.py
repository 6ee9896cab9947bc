# SPDX-License-Identifier: Apache-2.0
"""The keys that the profile of a logits processor may have, whatever its generation."""

from __future__ import annotations

from collections.abc import Mapping

from conformance.interface import Field, refuses

FIELDS: Mapping[str, Field] = {
    "on": Field(
        list,
        "Requests that it acts on: keywords of SamplingParams; [{}] if it acts on all, "
        "[] beside off if it acts on none.",
        "[{ extra_args = { KEYS } }]",
    ),
    "off": Field(
        list, "Requests that it must leave exactly as they are; [] if it acts on all.", "[{}]"
    ),
    "invalid": Field(
        list, "Requests that it must refuse at admission.", "[{ extra_args = { KEYS } }]"
    ),
    "tokens": Field(list, "Tokens that it waits for: ids, or texts of one token.", '["</think>"]'),
    "prompts": Field(list, "Prompts that it waits for: token ids, or texts.", '["Think first."]'),
    "outputs": Field(list, "Outputs that it waits for: token ids, or texts.", '["<think>hm"]'),
    "expected": Field(
        str,
        "What it means: a function of (params, prompt, output, logits) that returns the row.",
        '"my_module:expected"',
    ),
    "tolerance": Field(
        dict,
        "How near to `expected` rows must be: rtol, or how many of the likeliest tokens count.",
        "{ rtol = 1e-4, top_k = 20 }",
    ),
    "tokenizer": Field(
        str, "The folder of the model whose tokenizer and vocabulary it is for.", '"path/to/model"'
    ),
    "config": Field(dict, "What config.json of its model says besides, or instead.", "{}"),
    "additional_config": Field(dict, "VllmConfig.additional_config of its deployment.", "{}"),
    "environment": Field(dict, "Variables that are set before it is imported.", "{}"),
    "unsupported_configurations": refuses("pipeline-parallel-2"),
}
