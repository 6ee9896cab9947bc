# SPDX-License-Identifier: Apache-2.0
"""The format of a model's answers, taken from its chat template: what that writes of a message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import attrs

from conformance.parser.formats import Format
from conformance.parser.messages import Message
from conformance.parser.roles import TOOL
from conformance.parser.tokens import of_model, tokenizer
from conformance.settings import UsageError

#: The key of a profile, and the name of the format.
KEY = "chat_template"

#: Content behind which a template writes nothing that is a part of the answer.
_WORD = "xyzzy"

_USER: Mapping[str, Any] = {"role": "user", "content": "x"}


def _assistant(**said: object) -> dict[str, Any]:
    return {"role": "assistant", **said}


def _thinking(reasoning: str) -> dict[str, Any]:
    """Return reasoning under its name, and under that of earlier releases."""
    return {"reasoning_content": reasoning, "reasoning": reasoning}


def _calling(functions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    calls = [
        {"type": "function", "id": f"callnum{n:02}", "function": each}
        for n, each in enumerate(functions)
    ]
    return {"tool_calls": calls} if calls else {}


@attrs.frozen
class Template:
    """A chat template, and what it is called with."""

    where: str  #: what sentences about it begin with
    text: str
    role: str
    special: Any  #: texts that are one token each
    tokenizer: Any  #: of transformers
    chat: Mapping[str, Any]

    @classmethod
    def of(
        cls, section: Mapping[str, Any], origin: str | None, role: str, model: str | None
    ) -> Self:
        """Read the one that a profile names.

        Raises:
            UsageError: there is no such file.

        """
        where = f"profile {origin}: [parser] {KEY} = {section[KEY]!r}"
        try:
            text = Path(section[KEY]).read_text(encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{where}: {error.strerror}.") from None
        special = tuple(map(str, section.get("special_tokens", ())))
        made = tokenizer(special) if model is None else of_model(model)
        return cls(where, text, role, special, made, section.get("chat_template_kwargs", {}))

    def format(self) -> Format:
        """Return the format in which it writes answers.

        Raises:
            UsageError: it writes none that a parser could read.

        """
        if not self._holds("", "f1"):
            what = "calls" if self.role == TOOL else "reasoning"
            raise UsageError(f"{self.where}: the template writes no {what} of an answer.")
        return Format(
            name=KEY,
            special=self.special,
            thinks=None if self.role == TOOL else ("", "", ""),
            turn=self._render(add_generation_prompt=True),
            chat=self.chat,
            content=self._holds(_WORD, "f1"),
            several=self.role == TOOL and self._holds("", "f1", "f2"),
            serialise=self.answer,
            behind=None if self.role == TOOL else self._behind,
        )

    def answer(self, content: str, second: Any) -> str:  # noqa: ANN401 - calls, or reasoning
        """Return what it writes of an answer with content, and with calls or reasoning.

        Raises:
            UsageError: it raised, or does not go on where its generation prompt ends.

        """
        said = _calling(second) if self.role == TOOL else _thinking(second)
        prompt = self._render(add_generation_prompt=True)
        found = self._render(_assistant(content=content, **said))
        if not found.startswith(prompt):
            raise UsageError(f"{self.where}: no answer begins where its generation prompt ends.")
        plain = self._render(_assistant(content=_WORD))
        begin, _, end = plain.removeprefix(prompt).rpartition(_WORD)
        # Reasoning, even none, is not for the parser of calls.
        thought = begin if self.role == TOOL and begin.strip() else ""
        return found.removeprefix(prompt).removesuffix(end).removeprefix(thought)

    def _behind(self, said: Message) -> tuple[str, ...]:
        """Return the prompts of the turns that may follow an answer.

        Behind the result of a tool, many templates keep the reasoning of the turn that called it.
        """
        thought = {"content": said.content, **_thinking(said.reasoning)}
        called = _assistant(**thought, **_calling([{"name": "f", "arguments": {}}]))
        result = {"role": "tool", "tool_call_id": "callnum00", "name": "f", "content": "12:00"}
        found = []
        for turns in ((called, result), (_assistant(**thought), _USER)):
            with suppress(UsageError):  # a template may know no tools
                found.append(self._render(*turns, add_generation_prompt=True))
        return tuple(found)

    def _holds(self, content: str, *names: str) -> bool:
        """Tell whether an answer has its content, and its calls, or a name as its reasoning."""
        calls = [{"name": name, "arguments": {}} for name in names]
        try:
            text = self.answer(content, calls if self.role == TOOL else names[0])
        except UsageError:
            if len(names) > 1:
                return False  # some raise at more than one call
            raise
        return all(each in text for each in (content, *names))

    def _render(self, *turns: Mapping[str, Any], add_generation_prompt: bool = False) -> str:
        messages = [dict(each) for each in (_USER, *turns)]
        more: dict[str, Any] = {"add_generation_prompt": add_generation_prompt, **self.chat}
        try:
            found: str = self.tokenizer.apply_chat_template(
                messages, chat_template=self.text, tokenize=False, **more
            )
        except Exception as error:  # noqa: BLE001 - whatever a template raises
            raise UsageError(f"{self.where} raised {type(error).__name__}: {error}.") from None
        return found
