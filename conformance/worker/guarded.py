# SPDX-License-Identifier: Apache-2.0
"""A trial that goes on, or ends with a verdict, where the plugin broke the process it runs in."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import attrs

from conformance import foreign_build
from conformance.counterexample import FIELDS
from conformance.engine.environment import cache_directory
from conformance.engine.models import TOKENIZER_FILES
from conformance.generations import named
from conformance.plugin import missing, vocabulary
from conformance.plugin.loader import LoadFailure
from conformance.plugin.target import Plugin
from conformance.rules import Evidence
from conformance.settings import UsageError
from conformance.suite import Trial, Unopened
from conformance.verdict import Cause, RuleResult, Verdict, must_wait, unjudged
from conformance.watching import interruption
from conformance.worker import hindrances, limits, private

#: Verdicts on a plugin whose host lacks what it was asked for.
_SHOWS_NOTHING = (Verdict.FAIL, Verdict.ERROR, Verdict.NOT_VERIFIED)

#: The way out for a plugin that was handed a tokenizer which has little.
_INVENTED = (
    "it asked a tokenizer that was made up, which has few tokens; name the folder of the model "
    'that it is for in the profile: [{}] tokenizer = "path/to/model"'
)

#: What is called a constructor in a sentence.
_MAKING = "making an instance"


@attrs.define
class Guarded:
    """A trial that goes on where the plugin replaced what the host or the harness needs.

    That is put back and the rule tried again: what still goes wrong has another reason.
    """

    plugin: Plugin
    evidence: Evidence
    _opening: Callable[[], Trial]
    _surroundings: private.Surroundings
    #: Says why vLLM does not start without the plugin either, if it does not.
    _control: Callable[[], str | None] = lambda: None
    #: Writes down what only the log with the plugin says, and returns where that is.
    _difference: Callable[[], str | None] = lambda: None
    #: What judges rules in place of the trial, by the id of each.
    _others: Mapping[str, Callable[[], RuleResult]] = attrs.field(factory=dict)
    #: The variables of the environment that the profile has set.
    _variables: Mapping[str, str] = attrs.field(factory=dict)
    #: Whether the trial judges those rules as well, by what serving does.
    _serves: bool = False
    #: Whether the tokenizer is made up, and the profile could name the model's own.
    _invented: bool = False
    opened: Trial = attrs.field(init=False)
    _asked: set[str] = attrs.field(factory=set)
    #: What no instance can be made without on this machine, and the way out.
    _unavailable: str | None = None
    _unmakable: bool = False
    #: Whether that is a file of the model that it is for.
    _unread: bool = False
    _unmade: str | None = None  #: the rule that says so
    #: What the host lacks on this machine for something that the plugin was asked for.
    _lacking: str | None = None
    #: Why the host does not start at all, once that was asked.
    _host: str | None = None
    _host_asked: bool = False

    @opened.default
    def _none_yet(self) -> Trial:
        return Unopened("the trial was not opened", self.evidence)

    def open(self) -> None:
        """Open the trial.

        Raises:
            UsageError: the profile or the installation is wrong.
            LoadFailure: importing the plugin raised.

        """
        interruption.tell_raised(self._heard)
        try:
            try:
                self.opened = self._opening()
            except (UsageError, LoadFailure):
                raise
            except Exception as error:  # noqa: BLE001 - raised again unless the plugin is to blame
                self._recover(error, None)
        except (UsageError, LoadFailure):
            raise
        except Exception as error:  # noqa: BLE001 - reported as whose fault it is
            traceback.print_exc()
            if not self._give_up(error, None):
                self.opened = _unopened(error, self.plugin, self.evidence)

    def check(self, rule: str) -> RuleResult:
        """Judge one rule."""
        result = self._judged(rule)
        # What waits for a rule that cannot be judged here has the same reason.
        if self._lacking is not None and result.verdict in _SHOWS_NOTHING:
            return unjudged(rule, self.evidence, Cause("the host lacks", self._lacking))
        generation = named(self.plugin.generation)
        if result.verdict not in (Verdict.FAIL, Verdict.ERROR):
            # Nothing acts, and nothing switches it on, where it cannot be made.
            idle = result.verdict is Verdict.NOT_VERIFIED and not result.waits_for
            unmoved = self._unmakable or (self._unread and not result.acted)
            if not unmoved or not idle or rule == generation.loading_rule:
                return result
        # Nothing can be wrong with an instance that cannot be made here.
        if self._unavailable is not None and rule != generation.loading_rule:
            return self._without_instance(rule)
        # Whatever is broken by what does not start: nothing may start without the plugin either.
        if result.unstarted or rule in (generation.loading_rule, generation.survival_rule):
            if not self._host_asked:
                self._host_asked = True
                self._host = self._control()
            if self._host is not None:
                return unjudged(rule, self.evidence, Cause("no host", self._host))
        if result.unstarted:
            said = f"{result.message}; without the plugin vLLM starts"
            if (where := self._difference()) is not None:
                said = f"{said} (what only the log with it says: {where})"
            return attrs.evolve(result, message=said)
        return result

    def _without_instance(self, rule: str) -> RuleResult:
        """Return the result of a rule where no instance can be made; the others wait for it."""
        if self._unmade in (None, rule):
            self._unmade = rule
            why = Cause("missing here", str(self._unavailable))
            return attrs.evolve(unjudged(rule, self.evidence, why), unavailable=True)
        return unjudged(rule, self.evidence, must_wait([str(self._unmade)]))

    def _judged(self, rule: str) -> RuleResult:
        try:
            try:
                return self._check(rule)
            except Exception as error:  # noqa: BLE001 - raised again unless the plugin is to blame
                self._recover(error, rule)
                return self._check(rule)
        except Exception as error:  # noqa: BLE001 - reported as whose fault it is
            traceback.print_exc()
            if self._give_up(error, rule):
                return self._check(rule)
            if (why := _hindrance(error)) is not None:
                return unjudged(rule, self.evidence, Cause.of(error, why))
            result = unjudged(rule, self.evidence, Cause.of(error, _named(error)))
            return attrs.evolve(result, verdict=Verdict.ERROR)
        finally:
            self._asked.add(rule)

    def _heard(self, call: str, error: BaseException) -> None:
        """Take note of what an instance needs, and this machine does not have."""
        if self._lacking is None and (lacking := foreign_build.lacks(error)) is not None:
            self._lacking = f"{call} raised {type(error).__name__}: {error}: {lacking}"
            return
        if self._unavailable is not None:
            return
        making = call in interruption.CONSTRUCTORS
        if (out := self._not_of_model(error, by_itself=making)) is not None:
            self._unread = True
        elif making:
            out = missing.way_out(error, self.plugin.module, self.plugin.path)
            if out is None and self._invented and vocabulary.depends_on_it(error):
                interface = named(self.plugin.generation).interface
                out = _INVENTED.format(interface)
        else:
            out = missing.device(error, self.plugin.path)
        what = _MAKING if making else call
        if out is not None:
            self._unmakable = making
            raised = error.__cause__ if isinstance(error, missing.ModelLacks) else error
            self._unavailable = f"{what} raised {type(raised).__name__}: {raised}: {out}"

    def _not_of_model(self, error: BaseException, *, by_itself: bool) -> str | None:
        """Tell what a plugin wants of its own model, and none of the tiny ones has.

        Unless a file is wanted without a request, its name stands in the source: it is no client's.
        """
        for cause in missing.chain(error):
            if isinstance(cause, missing.Unsuited):
                return self._other_model()
            if isinstance(cause, missing.ModelLacks):
                return self._own_model(str(cause), "model")
            file = cause.filename if isinstance(cause, FileNotFoundError) else None
            if not isinstance(file, str) or not Path(file).is_relative_to(cache_directory()):
                continue
            name = Path(file).name
            if not by_itself and not missing.names(cause, name):
                continue
            keys = ("model", "tokenizer" if name in TOKENIZER_FILES else "")
            return self._own_model(f"no {name}", *keys)
        return None

    def _own_model(self, lacking: str, *keys: str) -> str:
        """Say what the tiny model has not, and by which of some keys a profile names another."""
        generation = named(self.plugin.generation)
        told = f"the model that it is tried with has {lacking}"
        key = next((key for key in keys if key in generation.fields), None)
        if key is None:
            return told
        way = f'[{generation.interface}] {key} = "FOLDER"'
        return f"{told}; name the folder of one that has it in the profile: {way}"

    def _other_model(self) -> str:
        """Say how a profile names a model for a constructor that does not take the harness's."""
        interface = named(self.plugin.generation).interface
        return (
            "it needs another model, or other arguments, than the harness chose; name the folder "
            f'of a model that it takes in the profile: [{interface}] model = "FOLDER"'
        )

    def close(self) -> None:
        """End what the trial has started."""
        self.opened.close()

    def _check(self, rule: str) -> RuleResult:
        other = self._others.get(rule)
        result = self.opened.check(rule) if other is None else other()
        if other is not None and self._serves and result.verdict is Verdict.PASS:
            served = self.opened.check(rule)
            # Where nothing can be served, other rules say so.
            result = served if served.verdict is Verdict.FAIL else result
        if not isinstance(result, RuleResult):
            cause = Cause(f"no result: {type(result).__qualname__}", f"the check gave {result!r}")
            result = unjudged(rule, self.evidence, cause)
            return attrs.evolve(result, verdict=Verdict.ERROR)
        shown = _shown(plain(result.counterexample), self._variables)
        return attrs.evolve(result, counterexample=shown)

    def _recover(self, error: Exception, rule: str | None) -> None:
        """Open the trial anew without what the plugin replaced; raise the error if that is nothing.

        What vLLM itself raised for it, and does not raise without it, is the plugin's fault.
        """
        if limits.out_of_memory(error):
            traceback.print_exception(error)
            self._blame(f"the plugin left no memory: the trial {limits.explained(error)}", rule)
            return
        replaced = self._surroundings.put_back(self.plugin.path)
        if not replaced:
            raise error
        traceback.print_exception(error)
        self.close()
        self.opened = self._opening()
        if not private.raised_by_tools(error):
            if rule is not None:
                self._check(rule)
            self._blame(_harm(replaced, error), rule)

    def _give_up(self, error: Exception, rule: str | None) -> bool:
        """End a trial whose plugin replaces things again and again; tell whether it does."""
        replaced = self._surroundings.put_back(self.plugin.path)
        if replaced and private.raised_by_tools(error):
            self.close()
            sentence = (
                f"the plugin replaces {_listed(replaced)} in its process whenever it is used: "
                f"the harness then raised {_named(error, lines=1)}"
            )
            self.opened = Unopened(sentence, self.evidence)
        elif replaced:
            self._blame(_harm(replaced, error), rule)
        return bool(replaced)

    def _blame(self, harm: str, rule: str | None) -> None:
        """Let the rule about survival, or this one where it is too late, fail for the harm."""
        self.close()
        survival = named(self.plugin.generation).survival_rule
        owner = rule if rule and survival in self._asked else survival
        self.opened = Unopened(harm, self.evidence, owner)


def _hindrance(error: BaseException) -> str | None:
    """Return what of the host kept a rule from being judged, if anything did."""
    return foreign_build.lacks(error) or hindrances.host(error)


def _shown(
    counterexample: dict[str, Any] | None, environment: Mapping[str, str]
) -> dict[str, Any] | None:
    """Add what a program needs to run vLLM and the plugin as this process does."""
    variables = {**foreign_build.variables(), **environment}
    if not variables or not counterexample or not FIELDS & counterexample.keys():
        return counterexample
    return {**counterexample, "variables": variables}


def _harm(replaced: Sequence[str], error: Exception) -> str:
    return (
        f"the plugin replaced {_listed(replaced)} in its process: "
        f"code of vLLM then raised {_named(error, lines=1)}"
    )


def _listed(names: Sequence[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _unopened(error: Exception, plugin: Plugin, evidence: Evidence) -> Unopened:
    """Return a trial that could not be opened, and whose fault that is.

    Raises:
        UsageError: that of what else is installed.

    """
    if (lacking := foreign_build.lacks(error)) is not None:
        return Unopened(lacking, evidence)
    try:
        hindrances.explain(error, plugin)
    except LoadFailure as failure:
        return Unopened(str(failure), evidence, named(plugin.generation).loading_rule)
    if (why := hindrances.platform(error) or hindrances.host(error)) is not None:
        return Unopened(why, evidence)
    message = f"the trial could not be opened: {_named(error)}"
    return Unopened(message, evidence, verdict=Verdict.ERROR, cause=Cause.of(error, message))


def plain(value: object) -> Any:  # noqa: ANN401 - any value of a counterexample or a profile
    """Return a value as JSON has it; what JSON cannot say becomes a string.

    A type of vLLM, torch or a generation would make the caller import it, and so would an enum.
    """
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no infinity, and float() reads it back
    return value if isinstance(value, str | int | float | bool | None) else repr(value)


def _named(error: BaseException, lines: int | None = None) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    said = "\n".join(str(error).splitlines()[:lines])
    return f"{type(error).__name__}: {said} ({Path(frame.filename).name}:{frame.lineno})"
