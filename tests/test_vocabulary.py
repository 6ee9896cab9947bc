# SPDX-License-Identifier: Apache-2.0
"""What an error says of a tokenizer that was made up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from conformance.plugin import vocabulary

if TYPE_CHECKING:
    from collections.abc import Callable


class Tokenizer:
    """Has what plugins ask a tokenizer for."""

    def encode(self, text: str) -> list[int]:
        """One token, whatever the text is."""
        return [len(text)]

    def decode(self, ids: list[int]) -> str:
        """As many letters as tokens."""
        return "x" * len(ids)

    def get_vocab(self) -> dict[str, int]:
        """One token."""
        return {"x": 0}


def _finds(tokenizer: Tokenizer) -> int:
    return tokenizer.get_vocab()["<|call|>"]


def _finds_a_word(tokenizer: Tokenizer) -> int:
    vocab = tokenizer.get_vocab()
    return vocab["assistant"]


def _refuses(tokenizer: Tokenizer) -> None:
    raise RuntimeError(f"no <|call|> among {len(tokenizer.get_vocab())} tokens")


def _says_nothing(_: Tokenizer) -> None:
    raise KeyError


def _counts(tokenizer: Tokenizer) -> int:
    return tokenizer.encode("<|call|>")[2]


def _reads_a_setting(_: Tokenizer) -> object:
    settings: dict[str, object] = {}
    return settings["chat_template_kwargs"]


def _is_not_there(_: Tokenizer) -> None:
    raise NotImplementedError


def _misspells(tokenizer: Tokenizer) -> object:
    return getattr(tokenizer, "encoed")  # noqa: B009 - as a plugin that has the name wrong


@pytest.mark.parametrize(
    ("function", "depends"),
    [
        (_finds, True),
        (_finds_a_word, True),
        (_refuses, True),
        (_says_nothing, True),
        (_counts, True),
        (_reads_a_setting, False),
        (_is_not_there, False),
        (_misspells, False),
    ],
)
def test_an_error_depends_on_the_tokens(function: Callable[[Any], object], depends: bool) -> None:
    """A name that is looked up is of a token where a vocabulary is asked; others are faults."""
    with pytest.raises(Exception) as raised:  # noqa: PT011 - of several types
        function(Tokenizer())

    assert vocabulary.depends_on_it(raised.value) is depends


def test_without_an_error_nothing_depends() -> None:
    """What raised nothing needs no other tokenizer."""
    assert not vocabulary.depends_on_it(None)
