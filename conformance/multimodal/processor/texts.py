# SPDX-License-Identifier: Apache-2.0
"""What stands in a prompt of a model: text, and for each item what the model calls it by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import attrs

from conformance.multimodal.processor.answers import answer
from conformance.multimodal.processor.host import Host
from conformance.multimodal.processor.stock import Item

#: Tokens that stand for text.
WORDS = 40

#: Tokens of text that a part of a prompt may have, so that no two parts share one.
STRIDE = 3

#: Texts around an item, by which one finds what a template writes for it.
_AROUND = ("before", "after")


@attrs.define(eq=False)
class Texts:
    """The texts of prompts for one model."""

    host: Host
    items: Mapping[str, Sequence[Item]]  #: of each modality that it supports, to try a text with
    _words: tuple[int, ...] | None = attrs.field(init=False, default=None)
    _placeholders: dict[tuple[str, int], str | None] = attrs.field(init=False, factory=dict)
    _templates: dict[str, str | None] = attrs.field(init=False, factory=dict)

    def words(self) -> tuple[int, ...]:
        """Return tokens that stand for themselves, to tell texts from placeholders."""
        if self._words is None:
            tokenizer = self.host.tokenizer()
            special = set(tokenizer.all_special_ids) | set(self._placeholder_tokens())
            plain = (
                token
                for text, token in sorted(tokenizer.get_vocab().items(), key=lambda one: one[1])
                if token not in special
                and text.isascii()
                and text.isalpha()
                and tokenizer.encode(text, add_special_tokens=False) == [token]
            )
            self._words = tuple(token for token, _ in zip(plain, range(WORDS), strict=False))
        return self._words

    def _placeholder_tokens(self) -> list[int]:
        found: list[int] = []
        for modality in self.items:
            text = self.placeholder(modality, 1)
            if text:
                found += self.host.tokenizer().encode(text, add_special_tokens=False)
        return found

    def placeholder(self, modality: str, number: int) -> str | None:
        """Return the text that stands for an item; None where nothing says what it is."""
        key = (modality, number)
        if key not in self._placeholders:
            self._placeholders[key] = self._placeholder(modality, number)
        return self._placeholders[key]

    def _placeholder(self, modality: str, number: int) -> str | None:
        # The text that the model is profiled with has what an item needs, if it needs anything.
        dummy = answer(lambda: self.host.processor().dummy_inputs.get_dummy_text({modality: 1}))
        profiled = dummy.value if dummy.good and isinstance(dummy.value, str) else None
        said = self.in_chats(modality, number)
        if profiled is None or profiled == said:
            return said
        if said is None or (not self._works(modality, said) and self._works(modality, profiled)):
            return self._bare(modality, profiled)
        return said

    def _bare(self, modality: str, text: str) -> str:
        """Return what of a text an item needs: ordinary words around it are like any other text.

        Of a processor that inserts, nothing of it is needed.
        """
        tokenizer = self.host.tokenizer()
        tokens = list(tokenizer.encode(text, add_special_tokens=False))
        known = {*tokenizer.all_special_ids, *tokenizer.get_added_vocab().values()}
        for end, rest in ((0, slice(1, None)), (-1, slice(-1))):
            while tokens and tokens[end] not in known:
                shorter = str(tokenizer.decode(tokens[rest]))
                if not self._works(modality, shorter):
                    break
                tokens, text = tokens[rest], shorter
        return text

    def in_chats(self, modality: str, number: int) -> str | None:
        """Return the text that stands for an item in chats; None where there is none.

        A template of the checkpoint that takes parts of messages writes it itself.
        """
        if (templated := self.templated(modality)) is not None:
            return templated
        found = answer(lambda: self.host.cls.get_placeholder_str(modality, number))
        return found.value if found.good and isinstance(found.value, str) else None

    def templated(self, modality: str) -> str | None:
        """Return what the checkpoint's template writes for an item; None where it is nothing."""
        if modality not in self._templates:
            before, after = _AROUND
            parts = [{"type": "text", "text": before}, {"type": modality}]
            content = [*parts, {"type": "text", "text": after}]
            chat = [{"role": "user", "content": content}]
            tokenizer = self.host.tokenizer()
            found = answer(lambda: tokenizer.apply_chat_template(chat, tokenize=False))
            written = str(found.value) if found.good else ""
            # A template for plain texts writes the list of parts as it is.
            whole = before in written and after in written and str(content) not in written
            text = written.partition(before)[2].partition(after)[0] if whole else ""
            self._templates[modality] = text or None
        return self._templates[modality]

    def _works(self, modality: str, text: str) -> bool:
        """Tell whether any item is processed with this text for it."""
        tokens = self.host.tokenizer().encode(text, add_special_tokens=False)
        items = self.items.get(modality, ())

        def process(item: Item) -> object:
            data = {modality: [item.make()]}
            return self.host.process(self.host.processor(), list(tokens), data, {})

        return any(answer(partial(process, item)).good for item in items[:2])

    def text(self, place: int, count: int) -> list[int]:
        """Return the tokens of a text at some place of a prompt; none where no token has a text."""
        words = self.words()
        count = count if words else 0
        return [words[(place * STRIDE + index) % len(words)] for index in range(count)]
