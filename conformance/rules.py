# SPDX-License-Identifier: Apache-2.0
"""What a rule is.

A rule is data: the pytest ids, the reference pages, the certificate
and ``vllm-conformance explain`` are all drawn from it.
The check that decides a rule lives in the folder of its generation and is found by the rule's id.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from enum import StrEnum

import attrs


class Level(StrEnum):
    """How binding a rule is: only a MUST decides the verdict, and has a :class:`Reason`."""

    MUST = "MUST"
    SHOULD = "SHOULD"


class Evidence(StrEnum):
    """Where a rule was shown, from the cheapest to the most real."""

    SIMULATOR = "simulator"
    OFFLINE = "offline"
    SERVER = "server"


#: Where a rule is shown besides the simulator: in engines, by servers, or in both.
IN_ENGINES = (Evidence.SIMULATOR, Evidence.OFFLINE)
SERVED = (Evidence.SIMULATOR, Evidence.SERVER)
EVERYWHERE = (Evidence.SIMULATOR, Evidence.OFFLINE, Evidence.SERVER)


class Reason(StrEnum):
    """What makes a rule a MUST: the interface says so, or others come to harm in vLLM."""

    SENTENCE = "the interface's own words"
    ENDS = "the engine or the server ends or hangs"
    ANSWERS = "another request's answer changes"
    DATA = "another tenant's data appears"


@attrs.frozen
class Source:
    """Where a rule comes from: a sentence of a document, or a symbol of vLLM."""

    where: str  #: document title, or ``file.py:symbol`` of vLLM
    says: str  #: the requirement there, in a few words
    since: str | None = None  #: first vLLM release known to have it
    #: What this source makes a MUST of the rule by; None where it only tells more.
    reason: Reason | None = None


def sentence(source: Source) -> Source:
    """Mark words, a type or a signature of the interface's own document as why a rule is a MUST."""
    return attrs.evolve(source, reason=Reason.SENTENCE)


def ends(source: Source) -> Source:
    """Mark the place in vLLM where a broken rule ends or hangs the engine or the server."""
    return attrs.evolve(source, reason=Reason.ENDS)


def changes(source: Source) -> Source:
    """Mark the place in vLLM by which a broken rule changes another request's answer."""
    return attrs.evolve(source, reason=Reason.ANSWERS)


def leaks(source: Source) -> Source:
    """Mark the place in vLLM by which a broken rule shows one tenant's data to another."""
    return attrs.evolve(source, reason=Reason.DATA)


@attrs.frozen
class Rule:
    """One normative statement about a plugin."""

    id: str
    title: str
    statement: str
    sources: tuple[Source, ...]
    hint: str  #: what to check first when the rule fails
    #: The heading that reports and reference pages put it under; :func:`section` sets it, too.
    section: str = ""
    evidence: tuple[Evidence, ...] = (Evidence.SIMULATOR,)
    resembles: tuple[str, ...] = ()  #: historical defects that the rule would have caught
    level: Level = attrs.field(init=False)  #: MUST where a source is a reason for it

    @level.default
    def _level(self) -> Level:
        return Level.MUST if self.reasons else Level.SHOULD

    @property
    def reasons(self) -> tuple[Source, ...]:
        """The sources that make the rule a MUST."""
        return tuple(source for source in self.sources if source.reason)

    @property
    def further(self) -> tuple[Source, ...]:
        """The sources that only tell more."""
        return tuple(source for source in self.sources if not source.reason)


def section(title: str, *rules: Rule) -> tuple[Rule, ...]:
    """Put rules under a heading."""
    return tuple(attrs.evolve(rule, section=title) for rule in rules)


def by_id(rules: Iterable[Rule]) -> Mapping[str, Rule]:
    """Index rules by id."""
    return {rule.id: rule for rule in rules}


def nearest(word: str, candidates: Iterable[str], *, likeness: float = 0.5) -> str:
    """Return `` Did you mean 'x'?`` for a likely misspelling, else an empty string."""
    found = difflib.get_close_matches(word, list(candidates), n=1, cutoff=likeness)
    # An enum's own representation would name its class.
    return f" Did you mean {str(found[0])!r}?" if found else ""
