# SPDX-License-Identifier: Apache-2.0
"""The trial of a logits processor in engines or on servers, of either generation."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable
from typing import Any

import attrs

from conformance.engine import model_runner
from conformance.engine.server import ExternalServer
from conformance.generations import named
from conformance.inputs.history import Choice, label
from conformance.live_trial import LiveTrial
from conformance.logits.fuzzing.explorer import Explored
from conformance.logits.parameters import INERT, Parameters
from conformance.logits.requests import Stock
from conformance.logits.roles import Roles
from conformance.rules import Evidence
from conformance.settings import Budget


@attrs.define(eq=False)
class LogitsTrial(LiveTrial):
    """The trial of one plugin on live evidence of either kind."""

    roles: Roles
    parameters: Parameters
    bench: Stock
    explore: Callable[[], Explored]
    acted: set[Choice] = attrs.field(init=False, factory=set)  #: what had an effect
    #: The parameter sets that cannot be asked here, those of ``invalid`` among them.
    uncarried: tuple[tuple[str, int], ...] = attrs.field(init=False, default=())
    #: Whether nothing switches the plugin on, as its author says, and nothing was seen to.
    inert: bool = attrs.field(init=False, default=False)

    def run(self) -> None:
        """Note what the plugin has nothing of, ask, and judge what had an effect."""
        self.ledger.failing_is_acting = False
        if not self.parameters.off:
            self.ledger.beside[self.roles.opt_out] = "the plugin has no opt-in"
        if not self.parameters.invalid:
            self.ledger.beside[self.roles.refuses] = "the profile names no invalid requests"
        if self.bench.meaning is None:
            self.ledger.beside[self.roles.means] = "the profile has no `expected`"
        self.ask()
        if not self.ledger.over:
            if self.inert:
                unseen = self._seen_of_effects() - self.ledger.out_of_reach.keys()
                self.ledger.beside |= dict.fromkeys(unseen, INERT)
            self.judge_effect()

    def _seen_of_effects(self) -> frozenset[str]:
        """Return the rules that the simulator judges as well; here they are seen of changed rows.

        What no simulator shows is to be seen of every plugin.
        """
        known = named(self.opening.plugin.generation).rules
        return self.opening.rules & {r.id for r in known if Evidence.SIMULATOR in r.evidence}

    @abc.abstractmethod
    def ask(self) -> None:
        """Ask engines or servers, and note what they show."""

    @property
    def shared(self) -> bool:
        """Whether offline engines and servers of our own share the ways to load the plugin.

        A way is the same for every AsyncLLM, that of ``vllm serve`` among them, and each takes
        seconds to start: but for budget ``deep``, one of them is enough.
        """
        settings = self.opening.settings
        return (
            {Evidence.OFFLINE, Evidence.SERVER} <= set(settings.evidence)
            and settings.server_url is None
            and settings.budget is not Budget.DEEP
        )

    def explored(self) -> Explored:
        """Find out what becomes of the requests that any client may send."""
        explored = self.explore()
        explored.settle(self.ledger, self.roles)
        self.inert = self.parameters.inert and not explored.acted
        return explored

    def judge_effect(self) -> None:
        """Judge which parameter sets had an effect.

        What is asked of an engine is little: not everything that has an effect has one there,
        and what has none anywhere shows in the simulator.
        """
        evidence, rule = self.ledger.evidence, self.roles.acts
        choices: list[Choice] = [("on", index) for index in range(len(self.parameters.on))]
        idle = [each for each in choices if each not in {*self.acted, *self.uncarried}]
        self.ledger.saw(rule, len(self.acted))
        beyond = [each for each in self.uncarried if each in choices]
        if idle or not (self.acted or beyond):
            what = ", ".join(map(label, idle)) or "no known parameter"
            remark = f"{what} had no effect here ({evidence})"
            self.ledger.remarks[rule] = remark
            if not self.acted and self.bench.words.phrases:
                # Where its tokens are no part of prompts, only a model says them.
                self.ledger.out_of_reach[rule] = f"{remark}: no model of random weights says much"
        elif beyond:
            self.ledger.remarks[rule] = cannot_be_sent(beyond)

    def document(self) -> dict[str, Any]:
        """Return what the plugin is tried with."""
        return self.parameters.document()

    def context(self) -> dict[str, Any]:
        """Return what a certificate says about this trial."""
        there = isinstance(self._server, ExternalServer)
        return {
            "profile": self.document(),
            "device": "as the server's" if there else self.device,
            "runner": None if there else model_runner.described(self.roles.runner, self.device),
            "model": self.server.model_name if there else self.model_name,
        }


def cannot_be_sent(choices: Iterable[tuple[str, int]]) -> str:
    """Return why servers are not asked about these parameter sets."""
    return f"{Evidence.SERVER}: {', '.join(map(label, choices))} cannot be sent over HTTP"
