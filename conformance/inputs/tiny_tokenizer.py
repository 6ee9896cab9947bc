# SPDX-License-Identifier: Apache-2.0
"""The tokenizer of tiny models: part of the programs of plugins that load it."""

from itertools import chain, islice, product
from typing import Any

#: No multiple of 64, to which vLLM pads the output layer: in float32 logits processors are handed
#: a view of the padded rows, as with many real models.
SIZE = 500
SPECIALS = ("<s>", "</s>", "<pad>")


def tokenizer_document() -> dict[str, Any]:
    """Return the ``tokenizer.json`` of tiny models: bytes, and pairs of letters."""
    merges = _merges()
    tokens = [*SPECIALS, *_byte_characters(), *(left + right for left, right in merges)]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": index,
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for index, token in enumerate(SPECIALS)
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": True,
        },
        "post_processor": None,
        "decoder": {
            "type": "ByteLevel",
            "add_prefix_space": True,
            "trim_offsets": True,
            "use_regex": True,
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": [f"{left} {right}" for left, right in merges],
        },
    }


def _byte_characters() -> list[str]:
    """Return the character that stands for each byte 0 to 255 in a byte-level vocabulary.

    A printable Latin-1 byte stands for itself, each of the others for the next character from 256.
    """
    printable = set(chain(range(0x21, 0x7F), range(0xA1, 0xAD), range(0xAE, 0x100)))
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def _merges() -> list[tuple[str, str]]:
    """Return the 241 pairs of characters that fill the vocabulary up to 500 tokens."""
    space = _byte_characters()[ord(" ")]
    letters = "abcdefghijklmnopqrstuvwxyz"
    vowels = "aeiou"
    consonants = [letter for letter in letters if letter not in vowels]
    pairs = chain(
        product(space, letters),
        product(consonants, vowels),
        product(vowels, consonants),
        ("th", "sh", "ch", "ph", "wh", "gh", "ck", "ng", "nd", "nt", "st", "tr", "br"),
        ("ll", "ss", "tt", "ee"),
    )
    room = SIZE - len(SPECIALS) - 256
    return [(pair[0], pair[1]) for pair in islice(pairs, room)]
