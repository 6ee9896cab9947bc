# SPDX-License-Identifier: Apache-2.0
"""A certification: from targets to certificates, rule by rule.

Knows neither pytest nor a terminal: both adapters ask for the checks, run them one by one
in whatever order, and hand the results on to ``reporting``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, Self

import attrs

from conformance.configuration import table
from conformance.configuration.judgement import Row
from conformance.configuration.run import Configured
from conformance.engine.environment import temporary_directory
from conformance.engine.models import tiny_llama
from conformance.generations import named
from conformance.plugin import target as targets
from conformance.plugin.loader import LoadFailure, Unavailable
from conformance.plugin.target import Plugin
from conformance.rules import Evidence
from conformance.running import baseline, zygotes
from conformance.running.description import describe, where
from conformance.running.foregone import after_the_end, foregone
from conformance.running.trials import Check, Trials
from conformance.running.validation import validate
from conformance.settings import Budget, Settings, UsageError
from conformance.verdict import Cause, RuleResult, Verdict, unjudged
from conformance.worker import (
    NOT_YET,
    TICK_SECONDS,
    Job,
    JobDied,
    JobHung,
    Zygote,
    ZygoteFailed,
    first_heard,
)

#: Seconds that one rule may take before its process is given up, by evidence.
LIMITS = {Evidence.SIMULATOR: 300.0, Evidence.OFFLINE: 300.0, Evidence.SERVER: 420.0}
DEEP_FACTOR = 10

_WAITING_FOR = {Evidence.OFFLINE: "a real offline engine", Evidence.SERVER: "vllm serve"}


class HarnessError(Exception):
    """The harness could not do its work: one sentence."""


@attrs.define
class Certification:
    """One run over one or more targets.

    A zygote that is handed in is left running for its owner.
    """

    settings: Settings
    notify: Callable[[str], None] = attrs.field(default=lambda _: None)
    #: How many plugins are judged at the same time, each by one rule after another.  With one,
    #: nothing is asked before :meth:`run` is called for it.
    at_once: int = attrs.field(default=1, kw_only=True)
    #: Seconds that one rule may take instead of :data:`LIMITS`.
    limit: float | None = attrs.field(default=None, kw_only=True)
    #: Why trials could not be opened, by target: kept for whoever hands in a dictionary, where
    #: otherwise the run ends.
    unopened: dict[str, str] | None = attrs.field(default=None, kw_only=True)
    _zygote: Zygote | None = attrs.field(default=None, alias="zygote")
    plugins: tuple[Plugin, ...] = attrs.field(init=False, default=())
    results: dict[Check, RuleResult] = attrs.field(init=False, factory=dict)
    #: What each plugin's certificate says about its surroundings, by target.
    contexts: dict[str, dict[str, Any]] = attrs.field(init=False, factory=dict)
    _trials: Trials | None = attrs.field(init=False, default=None)
    _configured: dict[str, Configured] = attrs.field(init=False, factory=dict)
    _owns_zygote: bool = attrs.field(init=False, default=False)
    #: What nobody has asked a trial yet, in the order in which it will be.
    _pending: list[Check] = attrs.field(init=False, factory=list)
    #: What trials were asked and have not answered, one question for each plugin.
    _asked: dict[Check, Job] = attrs.field(init=False, factory=dict)
    #: Results that were not fetched yet.
    _ready: dict[Check, RuleResult] = attrs.field(init=False, factory=dict)
    _temporary: tempfile.TemporaryDirectory[str] | None = attrs.field(init=False, default=None)

    def start(self) -> None:
        """Begin to import vLLM in the background; returns at once.

        Raises:
            UsageError: see :func:`conformance.running.validation.validate`.

        """
        validate(self.settings)
        self._temporary = tempfile.TemporaryDirectory(
            prefix="vllm-conformance-", dir=temporary_directory()
        )
        if self._zygote is None:
            self._zygote = zygotes.start_zygote()
            self._owns_zygote = True
        folder = Path(self._temporary.name)
        self._trials = Trials(self.settings, self._zygote, folder, self.at_once, self.contexts)

    def load(self) -> tuple[Plugin, ...]:
        """Import vLLM and find the plugins of all targets.

        Raises:
            UsageError: a target does not exist, or has no plugin.
            HarnessError: vLLM could not be imported.

        """
        if self._trials is None:
            self.start()
        zygote, folder = self.trials.zygote, self.trials.folder
        self.notify("importing vLLM")
        try:
            seconds = zygote.wait_ready()
        except ZygoteFailed as error:
            # Kernels for another processor may end the process that imports them.
            if sentence := zygotes.no_device():
                raise UsageError(sentence) from None
            raise HarnessError(str(error)) from None
        self.notify(f"imported vLLM in {seconds:.1f} s")
        settings = self.settings
        places = [
            place for text in settings.targets for place in targets.parse(text, settings.directory)
        ]
        found = describe(
            places, zygote, settings, folder=folder, notify=self.notify, at_once=self.at_once
        )
        # The same class named twice is certified once.
        self.plugins = tuple({plugin.target: plugin for plugin in found}.values())
        return self.plugins

    def checks(self) -> list[Check]:
        """Return every check of this run, cheapest evidence first."""
        return [
            Check(plugin, rule.id, evidence)
            for evidence in self.settings.evidence
            for plugin in self.plugins
            for rule in named(plugin.generation).rules
            if evidence in rule.evidence and rule.id != named(plugin.generation).configured
        ]

    def select(self, checks: Iterable[Check]) -> None:
        """Say which checks will be run, so that engines and servers can start early."""
        self._pending = list(checks)
        self.trials.open_next(Evidence.SIMULATOR, self._pending)
        simulated = (each for each in self._pending if each.evidence is Evidence.SIMULATOR)
        if self.at_once > 1 and (first := next(simulated, None)):
            # They need nothing but vLLM; what the others need is imported for some seconds.
            self._ask(first)
        for evidence in (Evidence.SERVER, Evidence.OFFLINE):  # the slowest to start comes first
            self.trials.open_next(evidence, self._pending)

    def run(self, check: Check) -> RuleResult:
        """Run one check, unless that was done ahead, and keep its result."""
        if not self._pending and check not in self._asked and check not in self._ready:
            self.select([check])
        while check not in self._ready:
            self._ask(check)
            self._hear()
        return self._ready.pop(check)

    def drop(self, plugin: Plugin) -> None:
        """Ask nothing more about a plugin, and end its trials."""
        self._pending = [check for check in self._pending if check.plugin != plugin]
        for check in [check for check in self._asked if check.plugin == plugin]:
            del self._asked[check]
        self._ready = {c: found for c, found in self._ready.items() if c.plugin != plugin}
        for evidence in self.trials.drop(plugin):
            self.trials.open_next(evidence, self._pending)

    def finished(self, plugin: Plugin) -> bool:
        """Tell whether nothing of a plugin is left to run."""
        left = (*self._pending, *self._asked, *self._ready)
        missing = set(self.configurations(plugin)) - {row["name"] for row in self.rows(plugin)}
        return not missing and not any(check.plugin == plugin for check in left)

    def known(self, check: Check) -> baseline.Entry | None:
        """Return the entry of the baseline for a check, unless it has expired."""
        return baseline.known(self.settings, check.rule, check.plugin.target)

    def configurations(self, plugin: Plugin) -> list[str]:
        """Return the names of the configurations under which a plugin is to be judged."""
        chosen = table.chosen(self.settings.configurations, plugin.generation)
        return [] if plugin.broken else [each.name for each in chosen]

    def configured(self, plugin: Plugin, name: str) -> Row:
        """Judge a plugin under one configuration.

        Raises:
            UsageError: its profile is wrong.

        """
        row = self.configurations_of(plugin).row(name)
        kept = self.contexts.setdefault(plugin.target, {}).setdefault("configurations", [])
        kept.append(attrs.asdict(row, value_serializer=_plain))
        return row

    def configurations_of(self, plugin: Plugin) -> Configured:
        """Return what runs a plugin in engines and servers of many configurations."""
        if plugin.target not in self._configured:
            self._configured[plugin.target] = Configured(
                plugin,
                self.settings,
                partial(self.trials.fork, plugin),
                self.trials.report(plugin),
                str(tiny_llama()),
                self.notify,
            )
        return self._configured[plugin.target]

    def rows(self, plugin: Plugin) -> list[dict[str, Any]]:
        """Return what was shown of a plugin under configurations, as a certificate has it."""
        found: list[dict[str, Any]] = self.contexts.get(plugin.target, {}).get("configurations", [])
        return found

    def close(self, *, hurried: bool = False) -> None:
        """End every process of this run; hurried ones do not finish what they are doing."""
        if self._trials is not None:
            self._trials.close(hurried=hurried)
            self._trials = None
        if self._zygote is not None and self._owns_zygote:
            self._zygote.close()
        self._zygote = None
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def trials(self) -> Trials:
        """What plugins are tried in.

        Raises:
            HarnessError: the run is closed.

        """
        if self._trials is None:
            raise HarnessError("the run is closed")
        return self._trials

    def _ask(self, first: Check) -> None:
        """Put as many questions as may be under way, that about one check first."""
        for check in [first, *(self._pending if self.at_once > 1 else ())]:
            if len(self._asked) >= self.at_once:
                return
            free = all(check.plugin != asked.plugin for asked in self._asked)
            if free and check not in self._ready and check not in self._asked:
                self._begin(check)
                if first in self._ready:
                    return

    def _begin(self, check: Check) -> None:
        """Ask a trial about one check, unless it need not, or cannot, be asked."""
        self._pending = [pending for pending in self._pending if pending != check]
        if (known := self._foregone(check)) is not None:
            self._keep(check, known)
            return
        plugin, evidence = check.plugin, check.evidence
        if check.key not in self.trials.known and evidence is not Evidence.SIMULATOR:
            self.notify(f"{plugin.target}: waiting for {_WAITING_FOR[evidence]}")
        rules = [each.rule for each in (check, *self._pending) if each.key == check.key]
        job = self.trials.job(plugin, evidence, rules)
        limit = self.limit or LIMITS[evidence]
        if self.settings.budget is Budget.DEEP:
            limit *= DEEP_FACTOR
        job.put(check.rule, limit=limit)
        self._asked[check] = job

    def _foregone(self, check: Check) -> RuleResult | None:
        """Judge a check for which the plugin need not, or cannot, be asked any more."""
        if (plugin := self.trials.unloaded.get(check.plugin.target)) is not None:
            check = attrs.evolve(check, plugin=plugin)
        if (found := foregone(check, self.results)) is not None:
            return found
        if (slow := self.trials.slow.get(check.key)) is not None:
            return unjudged(check.rule, check.evidence, _too_slow(check, slow))
        if (how := self.trials.ended.get(check.key)) is not None:
            return after_the_end(check, how, self.results, self._pending)
        return None

    def _hear(self) -> None:
        """Wait until a trial says something, and keep the results that there are then."""
        if not self._asked or self._ready_now():
            return
        first_heard(self._asked.values(), TICK_SECONDS)
        self._ready_now()

    def _ready_now(self) -> bool:
        """Keep the results that there are; tell whether there were any."""
        found = False
        for check in list(self._asked):
            if (result := self._answer(check)) is not None:
                del self._asked[check]
                self._keep(check, result)
                found = True
        return found

    def _keep(self, check: Check, result: RuleResult) -> None:
        """Keep a result, and end the trial whose last one it is."""
        self.results[check] = self._ready[check] = result
        if not any(pending.key == check.key for pending in self._pending):
            self.trials.conclude(check)
            left = (*self._pending, *self._asked)
            if not any(each.plugin == check.plugin for each in left):
                self.trials.leave_elsewhere(check.plugin)
            self.trials.open_next(check.evidence, self._pending)

    def _answer(self, check: Check) -> RuleResult | None:
        """Return what a trial that was asked about a check says, if it says anything yet."""
        plugin, job, trials = check.plugin, self._asked[check], self.trials
        try:
            answer = job.hear(self.notify if self.at_once == 1 else partial(self._tell, plugin))
            if answer is NOT_YET:
                return None
            if isinstance(answer, UsageError):
                self._keep_unopened(plugin, answer)
            if isinstance(answer, LoadFailure):
                return self._unloaded(check, answer)
            if check.key not in trials.known:
                trials.ask_context(job, plugin)
                trials.known.add(check.key)
        except JobDied as error:
            return self._lost(check, f"the plugin's process: {error}")
        except JobHung as error:
            return self._late(check, error)
        return answer if isinstance(answer, RuleResult) else _without_result(check, answer)

    def _tell(self, plugin: Plugin, sentence: str) -> None:
        """Hand on what a trial says of its progress, where there are several."""
        several = len(self.plugins) > 1
        self.notify(f"{plugin.target}: {sentence}" if several else sentence)

    def _late(self, check: Check, error: JobHung) -> RuleResult:
        """Judge a check whose trial did not answer in time."""
        if error.returning:
            many = "each of its calls returned, but there were too many of them to wait for"
            return self._slow(check, f"the plugin is too slow: {many}; the trial {error}")
        if place := where(error.stack, check.plugin.path):
            return self._lost(check, f"the plugin {error}{place}")
        idle = "with nothing of the plugin running"
        return self._slow(check, f"this machine is too slow: a trial {error}, {idle}")

    def _slow(self, check: Check, message: str) -> RuleResult:
        """Leave a check open whose trial takes too long, and remember it for those that follow."""
        self.trials.slow[check.key] = message
        self.trials.lose(check.key)
        return unjudged(check.rule, check.evidence, _too_slow(check, message))

    def _lost(self, check: Check, message: str) -> RuleResult:
        """Judge a check whose process is gone, and remember it for those that follow."""
        self.trials.ended[check.key] = message
        self.trials.lose(check.key)
        return after_the_end(check, message, self.results, self._pending)

    def _unloaded(self, check: Check, why: LoadFailure) -> RuleResult | None:
        """Judge a check of a plugin that does not load any more, and remember it."""
        lacks = isinstance(why, Unavailable)
        plugin = attrs.evolve(check.plugin, broken=str(why), unavailable=lacks)
        self.trials.unloaded[plugin.target] = plugin
        if self.unopened is not None:
            self.unopened[plugin.target] = str(why)
        self.trials.lose(check.key)
        return self._foregone(check)

    def _keep_unopened(self, plugin: Plugin, why: UsageError) -> NoReturn:
        """Remember a plugin whose trial cannot be opened, if somebody wants to know."""
        if self.unopened is None:
            raise why
        self.unopened[plugin.target] = str(why)
        raise JobDied(str(why), exit_status=None)


def _too_slow(check: Check, says: str) -> Cause:
    """Return the cause that a trial got no further: once, whatever is asked of it."""
    return Cause(f"too slow: {check.evidence}", says)


def _without_result(check: Check, answer: object) -> RuleResult:
    """Return the error that a trial gave something else than a result."""
    cause = Cause(f"no result: {type(answer).__qualname__}", repr(answer))
    if isinstance(answer, BaseException):
        cause = Cause.of(answer, repr(answer))
    found = unjudged(check.rule, check.evidence, cause)
    return attrs.evolve(found, verdict=Verdict.ERROR)


def _plain(_owner: object, _field: object, value: object) -> object:
    """Return a value as JSON has it."""
    return value.value if isinstance(value, Verdict) else value
