# SPDX-License-Identifier: Apache-2.0
"""The rules of IO processor plugins: most hold for both generations."""

from __future__ import annotations

from conformance.io_processor.catalogue import loading, outputs, parsing, prompts, traffic
from conformance.io_processor.catalogue.sources import vllm
from conformance.rules import changes
from conformance.watching import sharing

SECTIONS = (loading, parsing, prompts, outputs, traffic)

#: Those of the documented generation alone.
_REQUEST_ONLY = frozenset(("IO-03", "IO-12", "IO-23"))

REQUEST_RULES = (
    *(rule for section in SECTIONS for rule in section.RULES),
    loading.SURVIVES,
    sharing.leaves_others_alone(
        "IO-39",
        *sharing.FRONT_END,
        vllm(
            "entrypoints/pooling/pooling/io_processor.py:PluginWithIOProcessorPlugins",
            "the API server's process loads the plugin and makes an instance",
        ),
        changes(
            vllm(
                "renderers/params.py:TokenizeParams.get_encode_kwargs",
                "a text that is too long is cut on the tokenizer's own side where a request names "
                "none: one tokenizer makes the prompts of all requests",
            )
        ),
        title=sharing.BOTH,
        where=f"{sharing.IN_FRONT_END}{sharing.SERVING} It leaves the renderer's tokenizer as it "
        "is, too.",
        heading="Loading and calling",
    ),
    sharing.leaves_the_process("IO-42", heading="Loading and calling"),
    sharing.same_in_servers("IO-41", heading="Many requests"),
)

DATA_RULES = tuple(rule for rule in REQUEST_RULES if rule.id not in _REQUEST_ONLY)
