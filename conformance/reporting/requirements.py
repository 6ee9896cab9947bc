# SPDX-License-Identifier: Apache-2.0
"""What the source document of a generation demands, passage by passage.

A generation has a ``requirements.toml`` beside its rules, which takes its source document apart:
each passage belongs to rules, or is a requirement that no test can show,
or informs and demands nothing of a plugin.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from enum import Enum, StrEnum, auto
from importlib import resources
from itertools import takewhile
from typing import Any

import attrs

from conformance.interface import Generation


@attrs.frozen
class Passage:
    """The least part of a document that can demand something."""

    section: str  #: the nearest heading above it
    line: int  #: where its paragraph, item or code starts, counted from 1
    text: str  #: a sentence or a row of a table as written; of code its caption, or the code
    code: str = ""


class Fate(StrEnum):
    """What became of a passage; the values are the keys of ``requirements.toml``."""

    RULES = "rules"
    UNTESTABLE = "untestable"
    INFORMS = "informs"


@attrs.frozen
class Entry:
    """What one passage demands."""

    says: str  #: the words that the passage begins with, enough to tell it from all others
    fate: Fate
    rules: tuple[str, ...] = ()  #: ids of the rules that show it
    why: str = ""  #: why no test can show it, or what it informs about
    host: tuple[str, ...] = ()  #: ids of the rules that hold the host to it


@attrs.frozen
class Untestable:
    """A requirement from vLLM's code that no test of a plugin can show."""

    requirement: str
    where: str  #: ``file.py:symbol`` of vLLM
    why: str


@attrs.frozen
class Requirements:
    """A source document taken apart, and the requirements beyond it that no test can show."""

    document: str  #: its title, as in ``Source.where``
    file: str  #: its copy in ``fixtures/documents``
    url: str
    entries: tuple[Entry, ...]  #: in the order of the document
    beyond: tuple[Untestable, ...]


def load(generation: Generation) -> Requirements | None:
    """Read the requirements of a generation; None where it has no source document.

    Raises:
        ValueError: an entry has no fate or more than one, or a key that is none.

    """
    path = resources.files(generation.suite.rpartition(".")[0]) / "requirements.toml"
    if not path.is_file():
        return None
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    # Two generations may share a folder, and have a document for one of them.
    if document.get("generation", generation.name) != generation.name:
        return None
    return Requirements(
        document=document["document"],
        file=document["file"],
        url=document["url"],
        entries=tuple(read_entry(**table) for table in document["passage"]),
        beyond=tuple(Untestable(**table) for table in document.get("untestable", ())),
    )


def read_entry(*, says: str, host: Sequence[str] = (), **fates: Any) -> Entry:  # noqa: ANN401 - TOML
    """Return the entry that a table of ``requirements.toml`` stands for.

    Raises:
        ValueError: there is not exactly one of ``rules``, ``untestable`` and ``informs``.

    """
    if len(fates) != 1 or not fates.keys() <= set(Fate) or not all(fates.values()):
        raise ValueError(f"{says!r} needs one of {', '.join(Fate)}, got {', '.join(fates)}")
    ((name, value),) = fates.items()
    fate = Fate(name)
    if fate is Fate.RULES:
        return Entry(says, fate, rules=tuple(value), host=tuple(host))
    return Entry(says, fate, why=value, host=tuple(host))


def plain(text: str) -> str:
    """Return a text without its Markdown, on one line, so that words can be compared."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return " ".join(re.sub(r"[`*\\]", "", text).split())


def begins(passage: Passage, words: str) -> bool:
    """Tell whether a passage begins with these words."""
    return plain(passage.text).startswith(plain(words))


def quotes(passage: Passage, words: str) -> bool:
    """Tell whether words are quoted from a passage; `` ... `` stands for what is left out."""
    position = 0
    whole = plain(f"{passage.text} {passage.code}")
    for part in plain(words).split(" ... "):
        found = whole.find(part, position)
        if found < 0:
            return False
        position = found + len(part)
    return True


def account(passages: Sequence[Passage], entries: Sequence[Entry]) -> list[tuple[Passage, Entry]]:
    """Return each passage of a document with its entry.

    Raises:
        ValueError: a passage has no entry or several, an entry has no passage or several,
            or they are in another order than the document.

    """
    problems = [
        f"line {passage.line} needs one entry: {passage.text}"
        for passage in passages
        if sum(begins(passage, entry.says) for entry in entries) != 1
    ]
    problems += [
        f"this entry needs one passage: {entry.says}"
        for entry in entries
        if sum(begins(passage, entry.says) for passage in passages) != 1
    ]
    pairs = list(zip(passages, entries, strict=False))
    if not problems:
        problems = [
            f"line {passage.line} has its entry in another place: {passage.text}"
            for passage, entry in pairs
            if not begins(passage, entry.says)
        ]
    if problems:
        raise ValueError("\n".join(problems))
    return pairs


class _Part(Enum):
    """What a line of Markdown begins."""

    BLANK = auto()
    HEADING = auto()
    CAPTION = auto()  #: the title of an admonition, of which the next code is the content
    CODE = auto()
    CELLS = auto()
    ITEM = auto()
    TEXT = auto()


_HEADING = re.compile(r"#+ +(.*)")
_ITEM = re.compile(r"(?:[*+-]|\d+[.)]) +(.*)")
_ADMONITION = re.compile(r"(?:!!!|\?\?\?\+?) +[\w -]+?(?: +\"(.*)\")?$")
_TABLE_RULE = re.compile(r"\|[ :|-]+$")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_FENCE = "```"

#: The end of a sentence, with what closes after it, before something that can begin the next.
_END = re.compile(r"(?<=[.!?])([)\"'`*_]*)\s+(?=[\"'*_(\[]*[A-Z0-9`])")
_ABBREVIATION = re.compile(r"(?:\b(?:i\.e|e\.g|cf|vs|etc|resp)|\.\.)\.$")


def take_apart(document: str) -> list[Passage]:
    """Take a Markdown document apart, in its order.

    Headings and admonitions are no passages of their own: they say what passages are about.
    """
    found: list[Passage] = []
    section = caption = ""
    for line, part, text in _blocks(document):
        if part is _Part.HEADING:
            section = plain(text)
        elif part is _Part.CODE:
            found.append(Passage(section, line, caption or " ".join(text.split()), text))
        elif part is _Part.CELLS:
            found.append(Passage(section, line, text))
        elif part is not _Part.CAPTION:
            found += [Passage(section, line, sentence) for sentence in sentences(text)]
        caption = text if part is _Part.CAPTION else ""
    return found


def sentences(paragraph: str) -> list[str]:
    """Cut a paragraph into sentences; code in back quotes begins one as a capital does."""
    found = []
    start = 0
    for match in _END.finditer(paragraph):
        if not _ABBREVIATION.search(paragraph[start : match.start()]):
            found.append(paragraph[start : match.end(1)])
            start = match.end()
    return [*found, paragraph[start:]]


def _blocks(document: str) -> Iterator[tuple[int, _Part, str]]:
    """Yield what a document consists of, paragraphs and items on one line, with line numbers."""
    without_comments = _COMMENT.sub(lambda match: "\n" * match[0].count("\n"), document)
    lines = enumerate(without_comments.splitlines(), 1)
    paragraph: tuple[int, _Part, list[str]] | None = None
    for number, line in lines:
        part, text = _part(line.strip())
        if part is _Part.TEXT and paragraph:
            paragraph[2].append(text)
            continue
        if paragraph:
            yield paragraph[0], paragraph[1], " ".join(paragraph[2])
            paragraph = None
        if part is _Part.CODE:
            code = takewhile(lambda pair: not pair[1].strip().startswith(_FENCE), lines)
            yield number, part, "\n".join(text for _, text in code)
        elif part in (_Part.ITEM, _Part.TEXT):
            paragraph = number, part, [text]
        elif part is not _Part.BLANK:
            yield number, part, text
    if paragraph:
        yield paragraph[0], paragraph[1], " ".join(paragraph[2])


def _part(line: str) -> tuple[_Part, str]:
    """Tell what a line begins, and the text that it adds."""
    if not line or _TABLE_RULE.match(line):
        return _Part.BLANK, ""
    if line.startswith(_FENCE):
        return _Part.CODE, ""
    if line.startswith("|"):
        return _Part.CELLS, line
    for part, pattern in (
        (_Part.HEADING, _HEADING),
        (_Part.ITEM, _ITEM),
        (_Part.CAPTION, _ADMONITION),
    ):
        if match := pattern.match(line):
            return part, match[1] or ""
    return _Part.TEXT, line
