# SPDX-License-Identifier: Apache-2.0
"""What workers ask about tool parsers."""

from __future__ import annotations

from conformance.parser.bench import TOOL
from conformance.parser.suite import suite

SUITE = suite(
    TOOL,
    "ToolParser",
    "vllm.tool_parsers.abstract_tool_parser",
    "extract_tool_calls_streaming",
    ("TP-17", "TP-01"),
)
