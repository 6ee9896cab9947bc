# SPDX-License-Identifier: Apache-2.0
"""The format of a model's answers, taken from its chat template: what that writes of a message."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import attrs

from conformance.parser.formats import Format
from conformance.parser.roles import TOOL
from conformance.parser.tokens import tokenizer
from conformance.settings import UsageError

#: The key of a profile, and the name of the format.
KEY = "chat_template"

#: Content behind which a template writes nothing that is a part of the answer.
_WORD = "xyzzy"


def located(section: Mapping[str, Any], origin: str | None, folder: str) -> Mapping[str, Any]:
    """Return a section with the whole path of its template, which lies beside the profile."""
    if KEY not in section:
        return section
    beside = Path(origin or "")
    parent = beside.parent if beside.is_file() else Path(folder)
    return {**section, KEY: str((parent / section[KEY]).resolve())}


@attrs.frozen
class Template:
    """A chat template, and what it is called with."""

    where: str  #: what sentences about it begin with
    text: str
    role: str
    special: Any  #: texts that are one token each
    chat: Mapping[str, Any]

    @classmethod
    def of(cls, section: Mapping[str, Any], origin: str | None, role: str) -> Self:
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
        return cls(where, text, role, special, section.get("chat_template_kwargs", {}))

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
        )

    def answer(self, content: str, second: Any) -> str:  # noqa: ANN401 - calls, or reasoning
        """Return what it writes of an answer with content, and with calls or reasoning.

        Raises:
            UsageError: it raised, or does not go on where its generation prompt ends.

        """
        message: dict[str, Any] = {"content": content}
        if self.role == TOOL:
            calls = [{"type": "function", "id": f"callnum{n:02}"} for n in range(len(second))]
            calls = [call | {"function": each} for call, each in zip(calls, second, strict=True)]
            message |= {"tool_calls": calls} if calls else {}
        else:
            message |= {"reasoning_content": second, "reasoning": second}
        prompt, found = self._render(add_generation_prompt=True), self._render(**message)
        if not found.startswith(prompt):
            raise UsageError(f"{self.where}: no answer begins where its generation prompt ends.")
        end = self._render(content=_WORD).rpartition(_WORD)[2]
        return found.removeprefix(prompt).removesuffix(end)

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

    def _render(self, *, add_generation_prompt: bool = False, **said: object) -> str:
        messages: list[dict[str, Any]] = [{"role": "user", "content": "x"}]
        messages += [{"role": "assistant", **said}] if said else []
        more: dict[str, Any] = {"add_generation_prompt": add_generation_prompt, **self.chat}
        made = tokenizer(self.special)
        try:
            found: str = made.apply_chat_template(
                messages, chat_template=self.text, tokenize=False, **more
            )
        except Exception as error:  # noqa: BLE001 - whatever a template raises
            raise UsageError(f"{self.where} raised {type(error).__name__}: {error}.") from None
        return found
