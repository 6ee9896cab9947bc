# SPDX-License-Identifier: Apache-2.0
"""A tokenizer made on the spot, and the tokens of answers as vLLM streams them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import attrs
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from vllm.tokenizers.hf import get_cached_tokenizer

END = "<|end|>"

#: What merges are learnt from: words and JSON, so that tokens cross the borders of both.
_TEXT = (
    'the weather in Paris is fine, I will look {"name": "get_weather", "arguments": {"city": '
    '"Paris", "unit": "c", "days": 3}} and get_time(city="Rome") think first, then say it. '
    "</parameter> <function=get_weather> <tool_call> [TOOL_CALLS] é 漢字 "
)


@cache
def tokenizer(
    special: tuple[str, ...], skipped: tuple[str, ...] = (), *, pieces: bool = False
) -> Any:  # noqa: ANN401 - a transformers tokenizer
    """Return a BPE tokenizer in which each of *special* is one token.

    Args:
        special: texts.
        skipped: those that are special in the tokenizer's sense: their text may be skipped.
        pieces: it is one of pieces of words, spaces in them and bytes beside them, as those of
            SentencePiece are; else one of bytes.

    """
    made = Tokenizer(models.BPE(byte_fallback=pieces))
    if pieces:
        made.normalizer = normalizers.Replace(" ", "▁")
        made.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
        )
    else:
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        initial_alphabet=[] if pieces else sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=[f"<0x{byte:02X}>" for byte in range(256)] if pieces else [],
        show_progress=False,
        max_token_length=6,
    )
    made.train_from_iterator([_TEXT] * 3, trainer)
    # The trainer takes bytes for special tokens, of which the text may be skipped.
    made = Tokenizer.from_str(json.dumps({**json.loads(made.to_str()), "added_tokens": []}))
    made.add_tokens([AddedToken(text, special=False, normalized=False) for text in special])
    made.add_special_tokens(
        [AddedToken(text, special=True, normalized=False) for text in (*skipped, END)]
    )
    # As in a server, where each get_vocab() returns the same dict.
    return _known(
        get_cached_tokenizer(PreTrainedTokenizerFast(tokenizer_object=made, eos_token=END))
    )


@cache
def of_model(folder: str) -> Any:  # noqa: ANN401 - a transformers tokenizer
    """Return the tokenizer of a model, which ends answers with a token of its own.

    Raises:
        ValueError: the folder has no ``tokenizer.json``, or an unreadable one.

    """
    try:
        made = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # noqa: BLE001 - whatever transformers raises at what it cannot read
        raise ValueError(str(error)) from None
    if not made.is_fast:
        raise ValueError("it has no tokenizer.json")
    if made.eos_token is None:
        made.add_special_tokens({"eos_token": END})
    return _known(get_cached_tokenizer(made))


#: The special tokens of each tokenizer, as it was made.
_SPECIAL: dict[int, frozenset[str]] = {}


def _known(made: Any) -> Any:  # noqa: ANN401 - a transformers tokenizer
    _SPECIAL[id(made)] = _special(made)
    return made


def _special(made: Any) -> frozenset[str]:  # noqa: ANN401 - a transformers tokenizer
    """Return the tokens whose text ``skip_special_tokens`` leaves out."""
    added = made.backend_tokenizer.get_added_tokens_decoder().values()
    return frozenset(token.content for token in added if token.special)


def altered(made: Any) -> str | None:  # noqa: ANN401 - a transformers tokenizer
    """Say by which token the tokenizer that all parsers of a server share is another one now."""
    shown, real = made.get_vocab(), made.backend_tokenizer.get_vocab()
    if changed := shown.items() ^ real.items():
        return (
            "the vocabulary that get_vocab() of the tokenizer returns to all parsers of a server "
            f"is another one now: {min(changed)[0]!r}, for one, was added, removed or numbered anew"
        )
    if others := _special(made) ^ _SPECIAL[id(made)]:
        return (
            f"the tokenizer that all requests share skips other tokens now: {min(others)!r}, for "
            "one, is special, or no longer"
        )
    return None


@attrs.frozen
class Answer:
    """The tokens of an answer, and the text that each adds to what the client has."""

    ids: tuple[int, ...]
    texts: tuple[str, ...]

    @property
    def text(self) -> str:
        """The text of the whole answer."""
        return "".join(self.texts)

    def __len__(self) -> int:
        """Return the number of tokens."""
        return len(self.ids)

    def first(self, count: int) -> Answer:
        """Return what is left of the answer when it ends after so many tokens."""
        return Answer(self.ids[:count], self.texts[:count])

    def deltas(self, cuts: Sequence[int], held: int = 0) -> Iterator[tuple[str, list[int]]]:
        """Return text and tokens of each part of the answer; it is cut before these tokens.

        The text may lag behind by some letters, as vLLM's detokenizer holds them back for a stop
        string; the last part brings all that is left.
        """
        borders = [0, *sorted({cut for cut in cuts if 0 < cut < len(self.ids)}), len(self.ids)]
        text = ""
        for start, stop in pairwise(borders):
            text += "".join(self.texts[start:stop])
            ready = len(text) if stop == len(self.ids) else max(0, len(text) - held)
            yield text[:ready], list(self.ids[start:stop])
            text = text[ready:]


def answer(made: Any, text: str, *, skip: bool = False) -> Answer:  # noqa: ANN401 - as above
    """Return the tokens of a text as the engine streams them, with one at the end that adds none.

    A token that ends within a character adds nothing; the one that completes it adds it.
    With *skip* those that are special add nothing either.
    """
    stream = decoders.DecodeStream(skip_special_tokens=skip)
    ids = made.encode(text, add_special_tokens=False)
    texts = [stream.step(made._tokenizer, each) or "" for each in ids]  # noqa: SLF001 - as vLLM
    return Answer((*ids, made.eos_token_id), (*texts, ""))
