# SPDX-License-Identifier: Apache-2.0
"""What workers ask about reasoning parsers."""

from __future__ import annotations

from conformance.parser.bench import REASONING
from conformance.parser.suite import suite

SUITE = suite(
    REASONING,
    "ReasoningParser",
    "vllm.reasoning.abs_reasoning_parsers",
    "extract_reasoning_streaming",
    ("RP-14", "RP-01"),
)
