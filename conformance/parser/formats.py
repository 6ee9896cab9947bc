# SPDX-License-Identifier: Apache-2.0
"""Formats in which models write calls and reasoning: from a message to the text of an answer.

They are in ``formats.toml``, each with the source that it was checked against.
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from conformance.parser.bench import REASONING, TOOL
from conformance.parser.messages import Call, Message

if TYPE_CHECKING:
    from collections.abc import Mapping

_TAG = re.compile(r"</?[^<>\s=]+>?")


@attrs.frozen(eq=False, kw_only=True)
class Format:
    """How a family of models writes a message; ``formats.toml`` says what each field is."""

    name: str
    source: str = ""
    parsers: tuple[str, ...] = attrs.field(default=(), converter=tuple)
    special: tuple[str, ...] = attrs.field(default=(), converter=tuple)
    before: str = ""
    each: str = ""
    between: str = ""
    after: str = ""
    python: bool = False
    tagged: tuple[str, ...] | None = None
    thinks: tuple[str, str, str] | None = None
    opened: bool = False
    turn: str = "user: x"
    chat: Mapping[str, Any] = attrs.field(factory=dict)
    #: What was found of a parser: it takes text before calls, and more calls than one.
    content: bool = True
    several: bool = True

    @property
    def letters(self) -> bool:
        """Whether arguments are strings of letters alone: tags do not tell other values apart."""
        return self.tagged is not None

    @property
    def markers(self) -> tuple[str, ...]:
        """Texts that mean something in the format: tags up to their names, and special tokens."""
        around = self.thinks or (self.before, self.each, self.after)
        tags = [tag for text in around for tag in _TAG.findall(text)]
        plain = [text.strip() for text in self.thinks or (self.before,) if not _TAG.search(text)]
        found = (*self.special, *tags, *plain)
        return tuple(dict.fromkeys(text for text in found if len(text) > 1))

    @property
    def marked(self) -> bool:
        """Whether a call is told from text by more than a bracket."""
        return any(len(marker) > 3 for marker in self.markers)  # noqa: PLR2004 - "[{" and the like

    def write(self, message: Message) -> str:
        """Return an answer that says a message."""
        if self.thinks is not None:
            start, middle, end = self.thinks
            if self.opened:
                start = ""
            return f"{start}{message.reasoning}{middle}{message.content}{end}"
        if not message.calls:
            return message.content
        calls = self.between.join(
            self.each.replace("INDEX", str(index))
            .replace("NAME", call.name)
            .replace("ARGUMENTS", self._arguments(json.loads(call.arguments)))
            for index, call in enumerate(message.calls)
        )
        return f"{message.content}{self.before}{calls}{self.after}"

    def _arguments(self, arguments: Mapping[str, Any]) -> str:
        if self.python:
            return ", ".join(f"{key}={value!r}" for key, value in arguments.items())
        if self.tagged is None:
            return json.dumps(arguments, ensure_ascii=False)
        opening, closing, *between = self.tagged
        return "".join(between).join(
            f"{opening}VALUE{closing}".replace("KEY", key).replace("VALUE", str(value))
            for key, value in arguments.items()
        )

    def prompt(self) -> str:
        """Return the end of the prompt that the model continues."""
        return self.thinks[0] if self.thinks is not None and self.opened else self.turn


def _known() -> Mapping[str, tuple[Format, ...]]:
    document = tomllib.loads(Path(__file__).with_name("formats.toml").read_text(encoding="utf-8"))
    return {
        role: tuple(Format(name=name, **table) for name, table in document[role].items())
        for role in (TOOL, REASONING)
    }


#: The known formats, by what a parser is for.
KNOWN = _known()
TOOL_FORMATS, REASONING_FORMATS = KNOWN[TOOL], KNOWN[REASONING]

#: A call by which a format is recognised.
PROBE = Call("get_weather", '{"city": "Paris"}')
