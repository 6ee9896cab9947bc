# SPDX-License-Identifier: Apache-2.0
"""``parser/tool`` and ``parser/reasoning``: what a model says, as a client gets it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conformance.interface import CHECK_CASE, Field, Generation
from conformance.parser.catalogue import reasoning, tool

if TYPE_CHECKING:
    from collections.abc import Mapping

    from conformance.interface import ClassSource

FIELDS: Mapping[str, Field] = {
    "samples": Field(
        list,
        "Answers of the model, and what each says: content, tool_calls, reasoning.",
        '[{ text = "...", content = "...", tool_calls = [{ name = "...", arguments = {} }] }]',
    ),
    "tools": Field(list, "Tools of requests, as a client sends them.", '[{ name = "..." }]'),
    "special_tokens": Field(list, "Texts that are one token each.", '["<tool_call>"]'),
    "skipped_tokens": Field(
        list,
        "Those of them that are special tokens: skip_special_tokens leaves them out.",
        '["<tool_call>"]',
    ),
    "chat_template_kwargs": Field(
        dict, "What requests hand to the chat template, and parsers.", "{ enable_thinking = true }"
    ),
    "serialise": Field(
        str,
        "Returns the text of an answer that says (content, calls), or (content, reasoning).",
        '"my_module:serialise"',
    ),
    "partner": Field(
        str,
        "The parser of reasoning, or of calls, that serves the same model.",
        '"reasoning-parser:..."',
    ),
    "format": Field(str, "A known format, in which answers are drawn.", '"hermes"'),
}


def _of_tools(source: ClassSource) -> bool:
    return "ToolParser" in source.bases or "extract_tool_calls_streaming" in source.defines


def _of_reasoning(source: ClassSource) -> bool:
    return "ReasoningParser" in source.bases or "extract_reasoning_streaming" in source.defines


generations = (
    Generation(
        interface="parser",
        name="parser/tool",
        title="Tool parser (--tool-parser-plugin)",
        loading_rule="TP-01",
        survival_rule="TP-02",
        rules=tool.RULES,
        fields=FIELDS,
        suite="conformance.parser.tool_suite",
        cases={"check": CHECK_CASE},
        program="conformance.parser.program:program",
        registered=("tool-parser", "vllm.tool_parsers"),
        likely=_of_tools,
        sign=r"\bToolParserManager\b|\bToolParser\b",
        preload=("conformance.parser.bench",),
        order=7,
    ),
    Generation(
        interface="parser",
        name="parser/reasoning",
        title="Reasoning parser (--reasoning-parser-plugin)",
        loading_rule="RP-01",
        survival_rule="RP-02",
        rules=reasoning.RULES,
        fields=FIELDS,
        suite="conformance.parser.reasoning_suite",
        cases={"check": CHECK_CASE},
        program="conformance.parser.program:program",
        registered=("reasoning-parser", "vllm.reasoning"),
        likely=_of_reasoning,
        sign=r"\bReasoningParserManager\b|\bReasoningParser\b",
        preload=("conformance.parser.bench",),
        order=8,
    ),
)
