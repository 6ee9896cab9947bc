# SPDX-License-Identifier: Apache-2.0
"""Markers that a parser says it looks for, and what its author is told to say of them.

It says so by vLLM's own base class, and in its source.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from conformance.inputs import literals
from conformance.parser.formats import REASONING_FORMATS, Format
from conformance.parser.roles import TOOL
from conformance.watching.interruption import limited

#: A text as the tokenizers of models write their own tokens.
_MARKER = re.compile(r"<[^<>\s\\]{1,40}>|\[/?[A-Z][A-Z_ ]{2,40}\]")

#: What a format is called that a class itself tells.
OWN = "start_token and end_token"

#: Texts of a source with which reasoning may begin, and how long those are at most.
MOST_TEXTS, LONGEST_TEXT = 8, 40

#: Tokens that are tried, and named in a message.
MOST, NAMED = 40, 4


def thinking(cls: type[Any]) -> Format | None:
    """Return how reasoning is written where a class has the two tokens of vLLM's base class for it.

    ``BaseThinkingReasoningParser`` asks subclasses for them as properties, which need no instance
    that was made; None for tokens of a known format.
    """
    found: list[Any] = []
    with suppress(Exception), limited():
        bare = object.__new__(cls)
        found = [getattr(bare, name) for name in ("start_token", "end_token")]
    if len(set(map(str, found))) < 2 or not all(isinstance(each, str) and each for each in found):  # noqa: PLR2004 - a start and an end
        return None
    start, end = found
    if any(known.thinks and known.thinks[:2] == (start, end) for known in REASONING_FORMATS):
        return None
    return Format(
        name=OWN,
        source="vllm/reasoning/basic_parsers.py:BaseThinkingReasoningParser",
        special=(start, end),
        thinks=(start, end, ""),
    )


def texts(cls: type[Any]) -> tuple[str, ...]:
    """Return texts of the source of a class that models may write: no markers, names or documents.

    A parser may look for one of them, such as a label that a model writes before its thoughts.
    """
    found = (text for text in literals.texts(cls) if 1 < len(text) <= LONGEST_TEXT)
    told = (text for text in found if not text.replace(".", "_").isidentifier())
    return tuple(dict.fromkeys(text for text in told if not _MARKER.search(text)))[:MOST_TEXTS]


def of_source(cls: type[Any], most: int | None = None) -> tuple[str, ...]:
    """Return markers that stand in the source of a class, and of what its package has loaded.

    *most*: files that are read, of which its own is the first.
    """
    found = (text for path in islice(_files(cls), most) for text in literals.of_file(path))
    return tuple(dict.fromkeys(filter(_MARKER.fullmatch, found)))[:MOST]


def _files(cls: type[Any]) -> Iterator[Path]:
    """Yield the source files of a class and its package, its own first."""
    package = cls.__module__.partition(".")[0]
    if package == "vllm":
        return
    names = [name for name in sys.modules if name.partition(".")[0] == package]
    for name in dict.fromkeys((cls.__module__, *sorted(names))):
        file = getattr(sys.modules.get(name), "__file__", None)
        if file is not None and file.endswith(".py"):
            yield Path(file)


def way_out(
    cls: type[Any], role: str, where: str, raised: str | None = None, made: str | None = None
) -> str:
    """Say that the parser found nothing, or what it *made*, and what a profile would have to say.

    *raised*: by making an instance.
    """
    example = (
        'text = "..."\ntool_calls = [{ name = "f", arguments = { x = "y" } }]'
        if role == TOOL
        else 'text = "<r>...</r>..."\nreasoning = "..."\ncontent = "..."'
    )
    special = special_tokens(cls, '"..."')
    what = "call" if role == TOOL else "reasoning"
    makes = f"; making an instance raised {raised}" if raised else ""
    return (
        f"{made or f'no {what} was found in {where}'}{makes}; give answers of the model in a "
        f"profile such as\n[parser]\nspecial_tokens = [{special}]"
        + ("  # those that are one token of the model's tokenizer" if of_source(cls) else "")
        + f"\n[[parser.samples]]\n{example}"
    )


def its_own_tokens(error: Exception) -> str:
    """Say that a parser refuses a tokenizer that was made up."""
    return (
        f"making an instance raised {error}, with a tokenizer of the profile's special_tokens that "
        "has no other; name all tokens that it looks for, or the folder with the tokenizer of its "
        'model, where it wants them at their ids: [parser] tokenizer = "path/to/model"'
    )


def special_tokens(cls: type[Any], otherwise: str) -> str:
    """Return tokens that a profile may name: those of the source, of which some are told."""
    found = [f'"{each}"' for each in of_source(cls)]
    more = ["..."] if len(found) > NAMED else []
    return ", ".join([*found[:NAMED], *more]) or otherwise
