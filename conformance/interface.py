# SPDX-License-Identifier: Apache-2.0
"""What a family of plugins tells the harness about itself, without importing vLLM.

A distribution registers a family under the entry point group ``vllm_conformance.suites``; the
value names a module whose ``generations`` are :class:`Generation` objects.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs

from conformance.rules import Rule, by_id

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")

#: What the counterexample of a check has that is made again, and that of calls made in order.
CHECK_CASE = frozenset(("rule", "seed", "parameters", "invalid"))
CALLS_CASE = frozenset(("rule", "seed", "logits", "calls", "expect", "bare"))


@attrs.frozen
class Field:
    """One key of an interface's section in a profile."""

    type: type
    says: str  #: for somebody who sees it for the first time
    example: str  #: TOML, in which KEYS stands for those that the plugin reads

    def template(self, keys: Iterable[str] = (), tables: Mapping[str, Iterable[str]] = {}) -> str:
        """Return a value to complete, of the keys that the plugin was seen to read.

        ``tables`` has those that it reads of a table under one of them.
        """
        return self.example.replace("KEYS", placeholders(tuple(keys) or ("your_key",), tables))


def refuses(example: str) -> Field:
    """Return the key with which a profile names configurations that its plugin does not support."""
    return Field(list, "Configurations in which it refuses to start.", f'["{example}"]')


def placeholders(keys: Iterable[str], tables: Mapping[str, Iterable[str]] = {}) -> str:
    """Return keys as an inline table of TOML has them, each with a value to fill in."""
    return ", ".join(
        f"{key if _BARE_KEY.fullmatch(key) else json.dumps(key)} = "
        + (f"{{ {placeholders(inner)} }}" if (inner := tables.get(key)) else '"..."')
        for key in keys
    )


@attrs.frozen
class ClassSource:
    """What the source of a class says, read without importing it."""

    bases: frozenset[str]  #: last parts of their names
    decorators: frozenset[str]  #: last parts of their names
    defines: frozenset[str]  #: methods
    sets: frozenset[str]  #: attributes and variables
    imports: frozenset[str]  #: modules from which its file imports something


@attrs.frozen
class Registry:
    """Where vLLM keeps plugins by their names."""

    form: str  #: what stands before such a name, in ``FORM:NAME``
    module: str
    manager: str  #: a class in it
    classes: str  #: its dictionary of classes that were registered
    places: str  #: that of modules and names in them, of classes that are imported later


@attrs.frozen
class Since:
    """Where vLLM has an interface that came later than others."""

    release: str  #: the first that has it
    module: str


@attrs.frozen(kw_only=True)
class Generation:
    """One version of an interface's contract, and the rules that belong to it."""

    interface: str  #: section of a profile, for example ``logits-processor``
    name: str  #: for example ``logits/batch``
    title: str
    loading_rule: str  #: id of the rule that a class breaks when it cannot even be loaded
    survival_rule: str  #: id of the rule that a class breaks when it hangs or ends its process
    rules: tuple[Rule, ...]
    #: Id of the rule about configurations of engines, which is asked where a run names some.
    configured: str | None = None
    #: Id of the rule that holds a plugin to what its author says it means, if there is one.
    meaning_rule: str | None = None
    #: Rules about what runs the plugins: vLLM, a fork of it or a hardware plugin.
    host_rules: tuple[Rule, ...] = ()
    #: Keys of the section in a profile, in the order in which a new one has them.
    fields: Mapping[str, Field]
    #: Module with a :class:`conformance.suite.Suite` called ``SUITE``; imported in workers only.
    suite: str
    #: The kinds of counterexamples that a saved case may have, and the keys that each has.
    cases: Mapping[str, frozenset[str]]
    #: ``module:function`` that returns the source of a stand-alone program for a case, if any.
    program: str | None = None
    #: vLLM's function that finds a class by its name, where a program can call it.
    loader: str | None = None
    #: Whether a class is plainly of this generation, and what else in a file is a sign of it.
    likely: Callable[[ClassSource], bool] = lambda _: False
    sign: str | None = None  #: a regular expression
    group: str | None = None  #: entry point group of vLLM that loads such plugins by a function
    since: Since | None = None  #: where releases that other generations support lack the interface
    #: The registry that vLLM has for such plugins: the suite's ``resolved`` finds classes in it.
    registry: Registry | None = None
    #: What most trials import, whatever the plugin: imported before anything is known of it.
    early: tuple[str, ...] = ()
    #: What trials import and other generations do not need: imported once, before the first one.
    preload: tuple[str, ...] = ()
    #: Whether live trials simulate, too, in processes of their own.
    simulates_beside: bool = False
    #: Place in lists and among those that are asked whose a class is.
    order: int = 100

    def rule(self, rule_id: str) -> Rule:
        """Return the rule with this id, or raise ``KeyError``."""
        return by_id(self.rules)[rule_id]

    def document(self) -> dict[str, Any]:
        """Return what the generation is for whoever uses the harness, as JSON has it."""
        names = ("interface", "name", "title", "loading_rule", "survival_rule")
        return {name: getattr(self, name) for name in names} | {
            "rules": [attrs.asdict(rule) for rule in self.rules],
            "host_rules": [attrs.asdict(rule) for rule in self.host_rules],
            "fields": {name: field.says for name, field in self.fields.items()},
        }
