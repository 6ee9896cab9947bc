# SPDX-License-Identifier: Apache-2.0
"""What an answer says: reasoning, content and calls; and how two of them are compared."""

from __future__ import annotations

import json
from typing import Any

import attrs

#: Characters of a message that a sentence quotes.
QUOTED = 160


@attrs.frozen
class Call:
    """One call of a tool."""

    name: str
    arguments: str  #: JSON, as text

    @property
    def value(self) -> Any:  # noqa: ANN401 - whatever the JSON says
        """The arguments, or their text where that is no JSON."""
        try:
            return json.loads(self.arguments)
        except ValueError:
            return f"no JSON: {self.arguments}"


@attrs.frozen
class Message:
    """What came of an answer."""

    reasoning: str = ""
    content: str = ""
    calls: tuple[Call, ...] = ()
    raised: str | None = None  #: the parser raised instead

    @property
    def meaning(self) -> tuple[Any, ...]:
        """What two messages have in common that say the same.

        White space at the ends is the format's, and that of arguments is JSON's.
        """
        calls = [(call.name, json.dumps(call.value, sort_keys=True)) for call in self.calls]
        return self.reasoning.strip(), self.content.strip(), calls, self.raised

    @property
    def document(self) -> list[Any]:
        """The message as JSON has it."""
        calls = [[call.name, call.arguments] for call in self.calls]
        return [self.reasoning, self.content, calls]

    def same(self, other: Message) -> bool:
        """Tell whether two messages say the same."""
        return self.meaning == other.meaning

    def __str__(self) -> str:
        """Return the message in a few words."""
        if self.raised is not None:
            return f"raised {self.raised}"
        parts = [f"reasoning {self.reasoning!r}"] if self.reasoning else []
        parts += [f"content {self.content!r}"] if self.content else []
        parts += [f"{call.name}({call.arguments})" for call in self.calls]
        return shortened(" + ".join(parts) or "nothing")


def quoted(text: str) -> str:
    """Return a text as sentences quote it."""
    return shortened(repr(text))


def shortened(text: str) -> str:
    """Return a text without its middle, if it is long."""
    half = QUOTED // 2
    return text if len(text) <= QUOTED else f"{text[:half]} ... {text[-half:]}"
