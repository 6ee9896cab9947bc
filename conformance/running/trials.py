# SPDX-License-Identifier: Apache-2.0
"""The processes in which the plugins of a run are tried: one per plugin and kind of evidence."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import attrs

from conformance.coverage import lines, reached
from conformance.engine.models import tiny_llama
from conformance.generations import named
from conformance.plugin.files import sources
from conformance.plugin.target import Plugin
from conformance.rules import Evidence
from conformance.running.zygotes import start_zygote
from conformance.settings import Settings, folder_name
from conformance.watching.elsewhere import Elsewhere
from conformance.worker import Job, JobDied, JobHung, Zygote

#: What the process that imports vLLM does before engines and servers are forked from it.
ENGINES = "conformance.engine.beforehand:modules"

#: A plugin by its target, and the evidence that a trial of it gives.
Key = tuple[str, Evidence]


@attrs.frozen
class Check:
    """One rule on one kind of evidence for one plugin."""

    plugin: Plugin
    rule: str
    evidence: Evidence

    @property
    def name(self) -> str:
        """The name of the pytest item."""
        return f"{self.rule}[{self.evidence.value}]"

    @property
    def key(self) -> Key:
        """The trial that is asked."""
        return self.plugin.target, self.evidence


@attrs.define
class Trials:
    """The trials of a run, what became of them, and what they say of plugins besides."""

    settings: Settings
    zygote: Zygote
    folder: Path  #: for what is not to be kept
    at_once: int
    #: What each plugin's certificate says about its surroundings, by target.
    contexts: dict[str, dict[str, Any]]
    #: How the process of a trial ended, where it did.
    ended: dict[Key, str] = attrs.field(init=False, factory=dict)
    #: Trials that got no further, with nothing of the plugin running.
    slow: dict[Key, str] = attrs.field(init=False, factory=dict)
    #: Plugins that loaded where they were looked for and not in a trial, as what does not load.
    unloaded: dict[str, Plugin] = attrs.field(init=False, factory=dict)
    #: Trials that have answered.
    known: set[Key] = attrs.field(init=False, factory=set)
    _jobs: dict[Key, Job] = attrs.field(init=False, factory=dict)
    #: Trials that were told to end.
    _leaving: list[Job] = attrs.field(init=False, factory=list)
    #: Where it is marked which lines of each plugin have run, by target.
    _sheets: dict[str, lines.Sheet] = attrs.field(init=False, factory=dict)
    #: What simulates on a machine whose engines run on another device than the CPU.
    _simulator: Zygote | None = attrs.field(init=False, default=None)
    #: What simulates for live trials there, by target, with the address of each.
    _errands: dict[str, tuple[Job, str]] = attrs.field(init=False, factory=dict)
    _served: int = attrs.field(init=False, default=0)  #: how many of them there were

    def job(self, plugin: Plugin, evidence: Evidence, rules: Collection[str]) -> Job:
        """Return a trial, which begins unless it has begun.

        Args:
            plugin: what is tried.
            evidence: the kind.
            rules: those that it will be asked for, and no others.

        """
        key = (plugin.target, evidence)
        if key not in self._jobs:
            folder = self.report(plugin)
            log = folder / f"{evidence.value}.log"
            log.unlink(missing_ok=True)
            arguments = {
                "plugin": plugin,
                "evidence": evidence,
                "settings": self.settings,
                "model": str(tiny_llama()),
                "folder": str(folder),
                "sheet": self._sheet(plugin, evidence),
                "rules": frozenset(rules),
            }
            simulates = evidence is Evidence.SIMULATOR
            if not simulates and named(plugin.generation).simulates_beside:
                arguments["elsewhere"] = self._elsewhere(plugin, folder)
            what = "conformance.worker.jobs:trial"
            self._jobs[key] = self.fork(plugin, what, arguments, log, simulates=simulates)
        return self._jobs[key]

    def fork(
        self,
        plugin: Plugin,
        what: str,
        arguments: dict[str, Any],
        log: Path,
        *,
        simulates: bool = False,
    ) -> Job:
        """Fork a job about a plugin, where what it imports is found.

        With ``simulates`` vLLM takes no device but the CPU there.
        """
        zygote, preload = self.zygote, named(plugin.generation).preload
        if not simulates:
            preload = (*preload, ENGINES)
        if simulates and not zygote.on_cpu:
            if self._simulator is None:
                self._simulator = start_zygote(simulates=True)
            zygote = self._simulator
        return zygote.fork(
            what,
            arguments,
            log=log,
            directory=self.settings.directory,
            python_path=self.settings.import_path(),
            preload=preload,
        )

    def open_next(self, evidence: Evidence, pending: Iterable[Check]) -> None:
        """Start the next trial of a kind in the background: one of each kind at a time."""
        if any(kind is evidence for _, kind in self._jobs):
            return
        pending = list(pending)
        for check in pending:
            key = (check.plugin.target, evidence)
            over = key in self.ended or key in self.slow or check.plugin.target in self.unloaded
            if check.evidence is evidence and not over and not check.plugin.broken:
                rules = [each.rule for each in pending if each.key == check.key]
                self.job(check.plugin, evidence, rules)
                return

    def lose(self, key: Key) -> None:
        """Forget a trial whose process is gone."""
        self._jobs.pop(key, None)

    def conclude(self, check: Check) -> None:
        """Ask a trial that has no more to judge what it says besides, and end it."""
        if (job := self._jobs.get(check.key)) is not None and check.key not in self.ended:
            # More can be said of a plugin that has been through everything.
            with contextlib.suppress(JobDied, JobHung):
                self.ask_context(job, check.plugin)
        self._note_lines(check.plugin)
        self._end(check.key)

    def leave_elsewhere(self, plugin: Plugin) -> None:
        """End what simulates for the live trials of a plugin, which have all ended."""
        if (errands := self._errands.pop(plugin.target, None)) is not None:
            self._leave(errands[0])

    def drop(self, plugin: Plugin) -> list[Evidence]:
        """End the trials of a plugin; return of which kinds they were."""
        keys = [key for key in self._jobs if key[0] == plugin.target]
        for key in keys:
            self._end(key)
        self.leave_elsewhere(plugin)
        return [evidence for _, evidence in keys]

    def ask_context(self, job: Job, plugin: Plugin) -> None:
        """Keep what a trial says of its surroundings, for the plugin's certificate."""
        told = job.ask("context", limit=60)
        if isinstance(told, Exception):  # it could not be opened, and nothing else was asked of it
            return
        known = self.contexts.setdefault(plugin.target, {})
        known |= {name: value for name, value in told.items() if value is not None}

    def report(self, plugin: Plugin) -> Path:
        """Return the folder of a plugin in the report."""
        folder = self.settings.directory / self.settings.report / folder_name(plugin.target)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def close(self, *, hurried: bool = False) -> None:
        """End all trials; hurried ones do not finish what they are doing."""
        for job in self._jobs.values():
            job.leave(hurried=hurried)
        beside = [job for job, _ in self._errands.values()]
        for job in (*self._leaving, *self._jobs.values(), *beside):
            job.close()
        self._leaving, self._jobs, self._errands = [], {}, {}
        if self._simulator is not None:
            self._simulator.close()
            self._simulator = None

    def _elsewhere(self, plugin: Plugin, folder: Path) -> Elsewhere | None:
        """Return what simulates for the live trials of a plugin; None where they can themselves."""
        if self.zygote.on_cpu:
            return None
        if plugin.target not in self._errands:
            address = str(self.folder / f"errands-{self._served}")
            arguments = {
                "plugin": plugin,
                "settings": self.settings,
                "address": address,
            }
            log = folder / "errands.log"
            log.unlink(missing_ok=True)
            what = "conformance.worker.simulating:serve"
            job = self.fork(plugin, what, arguments, log, simulates=True)
            self._errands[plugin.target] = job, address
            self._served += 1
        return Elsewhere(self._errands[plugin.target][1])

    def _end(self, key: Key) -> None:
        """Tell a trial to end; wait for it where there are others that have not ended."""
        if (job := self._jobs.pop(key, None)) is not None:
            self._leave(job)

    def _leave(self, job: Job) -> None:
        job.leave()
        self._leaving = [each for each in (*self._leaving, job) if not each.ended()]
        while len(self._leaving) >= self.at_once:
            self._leaving.pop(0).close()

    def _note_lines(self, plugin: Plugin) -> None:
        """Keep which lines of a plugin have run by now, for its certificate."""
        if (sheet := self._sheets.get(plugin.target)) is not None:
            known = self.contexts.setdefault(plugin.target, {})
            known["lines"] = reached.document(
                sheet.ran(), sheet.taken(), known.get("profile"), plugin.qualname
            )

    def _sheet(self, plugin: Plugin, evidence: Evidence) -> lines.Sheet | None:
        """Return where it is marked which lines of a plugin run, if that is watched.

        Engines call the plugin by themselves: all that they do would be traced.
        """
        if plugin.path is None or not (self.settings.lines or evidence is Evidence.SIMULATOR):
            return None
        if plugin.target not in self._sheets:
            place = self.folder / f"lines-{len(self._sheets)}"
            self._sheets[plugin.target] = lines.Sheet.laid(place, sources(plugin.path))
        return self._sheets[plugin.target]
