# SPDX-License-Identifier: Apache-2.0
"""What is different from generation to generation of logits processors.

Functions that take ``Any`` first take the trial, or the bench of the generation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
from vllm.sampling_params import SamplingParams

from conformance.findings import Finding
from conformance.inputs.history import Choice, History, Shape
from conformance.logits.aside import Question
from conformance.logits.errands import Explore, Find
from conformance.logits.fuzzing.exploration import explore
from conformance.logits.fuzzing.explorer import Explored
from conformance.logits.keywords import admitted
from conformance.logits.parameters import Parameters, find
from conformance.logits.played import UNSAMPLED, Played
from conformance.logits.requests import Stock
from conformance.logits.rows import RowsAlone
from conformance.logits.sweeps import Strata
from conformance.logits.tried import Tried
from conformance.logits.waiting import Observed
from conformance.settings import Budget


@attrs.frozen(kw_only=True)
class Contract:
    """What is different from generation to generation."""

    generation: str
    strata: Strata
    #: Judges a rule by the histories that are about it.
    judge: Callable[[Any, str], tuple[Finding, dict[str, Any] | None]]
    #: Tells whether rows are drawn at random.
    at_random: Callable[[Any], bool]
    #: Says what is raised for requests that instances have been asked for before, and else is not.
    raised_again: Callable[[Any], str | None]
    #: Rules that a function decides, instead of the histories.
    checks: Mapping[str, Callable[[Any], Finding]]
    #: What is asked for checks while histories are played.
    aside: tuple[Question, ...]
    #: Begins what checks want of other processes.
    ahead: Callable[[Any], None]
    loads: str  #: the rule that a class breaks which is not complete
    survives: str
    shape: str  #: the rule about what ``apply`` returns
    raises: str  #: the rule about what a call raises
    steady: str  #: the rule that a random plugin breaks
    apart: str  #: the rule that one breaks whose instances share state
    leaves: str  #: the rule about what all requests share
    forgets: str  #: the rule about what finished requests leave behind
    means: str  #: the rule about what the author says of rows
    #: The rules about calls that a check may fail to get over.
    rule_of_call: Mapping[str, str]
    #: The rules about what a call gives back, where they are not about its shape.
    rule_of_error: Mapping[type[Exception], str] = attrs.field(factory=dict)
    #: Rules that compare rows under two conditions.
    comparing: frozenset[str]
    #: Rules of which an example may break several strata; each counts where strata are built on it.
    leading: frozenset[str]
    #: Rules that histories decide first, and then a function.
    both: frozenset[str] = frozenset()
    #: Rules whose trouble shows in any stratum.
    anywhere: frozenset[str] = frozenset()
    #: The rule that a failure of another one follows from.
    follows_from: Callable[[Any, str], str | None] = lambda *_: None
    #: Why a rule that histories decide says nothing about a plugin.
    inapplicable: Callable[[Any, str], str | None] = lambda *_: None
    bench: Callable[..., Stock]
    rows_alone: RowsAlone
    #: Other ways to see that a request switches a plugin on, where it does nothing alone.
    rows_beside: tuple[RowsAlone, ...] = ()
    begin: Callable[[Any, SamplingParams], object]  #: gives a request to an instance
    observe: Callable[[Any, Choice], Observed]  #: serves a request whose tokens note what is read
    #: Looks for leaks; in a process of its own, while the strata are played.
    look: Callable[[Any, Budget], Finding]
    #: What else a certificate says about the plugin, without a verdict.
    tells: Callable[[Any], dict[str, Any]] = lambda _: {}
    #: Plays a history of a shape with what a bench has.
    play: Callable[[Any, History, Shape], Played]
    #: Makes a counterexample that stands by itself.
    show: Callable[[Any, str, Finding, dict[str, Any] | None], Any]

    @property
    def unsampled(self) -> frozenset[str]:
        """The rules about rows that no token can be sampled from."""
        return frozenset(self.strata.rule_of_kind[kind] for kind in UNSAMPLED)

    @property
    def judged(self) -> frozenset[str]:
        """The rules that histories decide; the plain ones are about opting out as well."""
        strata = self.strata
        kinds = strata.rule_of_kind.values()
        return frozenset({*strata.rule_of.values(), *kinds, *self.anywhere, strata.opt_out})

    @property
    def shown_by_all(self) -> frozenset[str]:
        """The rules that requests show which a plugin does nothing for."""
        kinds = {*self.strata.rule_of_kind.values()} - {*self.strata.rule_of.values(), self.means}
        return frozenset({*kinds, self.strata.opt_out})

    def stocked(self, plugin: type, model: str, parameters: Parameters, seed: int) -> Stock:
        """Return what a plugin is tried on in the simulator.

        Requests that it refuses reach no engine; the rule about admission speaks of them.
        """
        sets = parameters.simulated()
        taken = {choice: said for choice, said in sets.items() if admitted(plugin, said)}
        if {choice[0] for choice in taken} != {choice[0] for choice in sets}:
            taken = sets  # nothing else stands for them
        bench = self.bench(plugin, model, taken, seed, parameters.waits)
        bench.meaning = parameters.meaning
        return bench

    def found(self, plugin: type, errand: Find) -> Parameters:
        """Return the parameters a plugin is tried with, whatever the plugin does meanwhile.

        Raises:
            UsageError: the profile's keywords are not those of ``SamplingParams``.

        """
        tried = Tried(
            plugin,
            bench=lambda sets, waits: self.bench(plugin, errand.model, sets, errand.seed, waits),
            begin=self.begin,
            rows_alone=self.rows_alone,
            rows_beside=self.rows_beside,
            observe=self.observe,
        )
        return find(errand.section, origin=errand.origin, seed=errand.seed, tried=tried)

    def explored(self, plugin: type, errand: Explore) -> Explored:
        """Return what becomes of the requests that any client may send."""
        sets, waits = errand.parameters.choices(), errand.parameters.waits
        bench = self.bench(plugin, errand.model, sets, errand.seed, waits)
        exploring = explore(self.strata, self.play, bench, errand.parameters, Budget.QUICK)
        return exploring.result()
