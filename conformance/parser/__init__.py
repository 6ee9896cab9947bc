# SPDX-License-Identifier: Apache-2.0
"""``parser/tool`` and ``parser/reasoning``: what a model says, as a client gets it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conformance.interface import CHECK_CASE, Field, Generation, Registry
from conformance.parser.catalogue import reasoning, tool
from conformance.parser.roles import REASONING, ROLES, TOOL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from conformance.interface import ClassSource
    from conformance.rules import Rule

FIELDS: Mapping[str, Field] = {
    "samples": Field(
        list,
        "Answers of the model, and what each says: content, tool_calls, reasoning.",
        '[{ text = "...", content = "...", tool_calls = [{ name = "...", arguments = {} }] }]',
    ),
    "tools": Field(list, "Tools of requests, as a client sends them.", '[{ name = "..." }]'),
    "special_tokens": Field(list, "Texts that are one token each.", '["<tool_call>"]'),
    "tokenizer": Field(
        str,
        "A folder with the model's tokenizer (tokenizer.json), for a parser that wants its ids.",
        '"path/to/model"',
    ),
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
    "chat_template": Field(
        str,
        "A file with the model's chat template: what it writes of a message is an answer.",
        '"template.jinja"',
    ),
    "partner": Field(
        str,
        "The parser of reasoning, or of calls, that serves the same model.",
        '"reasoning-parser:..."',
    ),
    "format": Field(str, "A known format, in which answers are drawn.", '"hermes"'),
}


def _generation(role: str, rules: tuple[Rule, ...], order: int) -> Generation:
    names = ROLES[role]

    def likely(source: ClassSource) -> bool:
        return names.base in source.bases or names.streamed in source.defines

    return Generation(
        interface="parser",
        name=f"parser/{role}",
        title=f"{role.capitalize()} parser (--{role}-parser-plugin)",
        loading_rule=names.rule(1),
        survival_rule=names.rule(2),
        rules=rules,
        fields=FIELDS,
        suite=f"conformance.parser.{role}_suite",
        cases={"check": CHECK_CASE},
        program="conformance.parser.program:program",
        registry=Registry(
            form=f"{role}-parser",
            module=names.package,
            manager=f"{names.base}Manager",
            classes=f"{role}_parsers",
            places="lazy_parsers",
        ),
        likely=likely,
        sign=rf"\b{names.base}(Manager)?\b",
        preload=("conformance.parser.bench",),
        order=order,
    )


generations = (_generation(TOOL, tool.RULES, 7), _generation(REASONING, reasoning.RULES, 8))
