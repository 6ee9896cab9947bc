# SPDX-License-Identifier: Apache-2.0
"""What a rule is.

A rule is data: the pytest ids, the reference pages, the certificate
and ``vllm-conformance explain`` are all drawn from it.
The check that decides a rule lives in the folder of its generation and is found by the rule's id.
"""

from __future__ import annotations

import difflib
from enum import StrEnum
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Level(StrEnum):
    """How binding a rule is: only a MUST decides the verdict."""

    MUST = "MUST"
    SHOULD = "SHOULD"


class Evidence(StrEnum):
    """Where a rule was shown, from the cheapest to the most real."""

    SIMULATOR = "simulator"
    OFFLINE = "offline"
    SERVER = "server"


@attrs.frozen
class Source:
    """Where a rule comes from: a sentence of a document, or a symbol of vLLM."""

    where: str  #: document title, or ``file.py:symbol`` of vLLM
    says: str  #: the requirement there, in a few words
    since: str | None = None  #: first vLLM release known to have it


@attrs.frozen
class Rule:
    """One normative statement about a plugin."""

    id: str
    title: str
    statement: str
    level: Level
    section: str  #: the heading that reports and reference pages put it under
    sources: tuple[Source, ...]
    hint: str  #: what to check first when the rule fails
    evidence: tuple[Evidence, ...] = (Evidence.SIMULATOR,)
    resembles: tuple[str, ...] = ()  #: historical defects that the rule would have caught


@attrs.frozen
class Generation:
    """One version of an interface's contract, and the rules that belong to it."""

    interface: str  #: for example ``logits``
    name: str  #: for example ``logits/batch``
    title: str
    loading_rule: str  #: id of the rule that a class breaks when it cannot even be loaded
    survival_rule: str  #: id of the rule that a class breaks when it hangs or ends its process
    rules: tuple[Rule, ...]
    #: Module that recognises a class and opens its suites; imported in workers only, it needs vLLM.
    suite: str
    #: Rules about what runs the plugins: vLLM, a fork of it or a hardware plugin.
    host_rules: tuple[Rule, ...] = ()

    def rule(self, rule_id: str) -> Rule:
        """Return the rule with this id, or raise ``KeyError``."""
        return by_id(self.rules)[rule_id]


def by_id(rules: Iterable[Rule]) -> Mapping[str, Rule]:
    """Index rules by id."""
    return {rule.id: rule for rule in rules}


def nearest(word: str, candidates: Iterable[str], *, likeness: float = 0.5) -> str:
    """Return `` Did you mean 'x'?`` for a likely misspelling, else an empty string."""
    found = difflib.get_close_matches(word, list(candidates), n=1, cutoff=likeness)
    # An enum's own representation would name its class.
    return f" Did you mean {str(found[0])!r}?" if found else ""
