# SPDX-License-Identifier: Apache-2.0
"""A certification: from targets to certificates, rule by rule.

Knows neither pytest nor a terminal: both adapters ask for the checks, run them one by one
in whatever order, and hand the results on to ``reporting``.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, Self

import attrs
import psutil

from conformance import baseline, likeness, lines, profile, reached
from conformance import target as targets
from conformance.configuration import table
from conformance.configuration.judgement import Row
from conformance.configuration.run import Configured
from conformance.counterexample import of_loading
from conformance.engine.environment import host_environment
from conformance.engine.models import tiny_llama
from conformance.generations import all_generations, named
from conformance.interruption import innermost
from conformance.plugin_files import sources
from conformance.rules import Evidence
from conformance.settings import Budget, Device, Settings, UsageError, require_writable
from conformance.target import Plugin
from conformance.verdict import RuleResult, Verdict, must_wait, unjudged
from conformance.worker import (
    NOT_YET,
    TICK_SECONDS,
    Job,
    JobDied,
    JobHung,
    Patience,
    Zygote,
    ZygoteFailed,
    first_heard,
    nursery,
)

#: A line of a stack as ``faulthandler`` writes it.
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')

#: Imported once, before anything is known about the targets; so is what suites name.
PRELOAD = (
    "hypothesis",
    "conformance.foreign_build:prepare",  # before vLLM settles what it runs on
    "vllm.v1.worker.gpu_input_batch",
    "vllm.engine.arg_utils",
    "conformance.jobs",
    "conformance.generations:all_generations",  # reads all metadata: once, and not in each job
)

#: Seconds that one rule may take before its process is given up, by evidence.
LIMITS = {Evidence.SIMULATOR: 300.0, Evidence.OFFLINE: 300.0, Evidence.SERVER: 420.0}
DEEP_FACTOR = 10

#: How many plugins are judged at the same time, at most, and the bytes of memory that the engines
#: and servers of each may take.
MOST_AT_ONCE = 4
MEMORY_EACH = 3 << 30

#: The environment variable that says how many it shall be instead.
AT_ONCE = "VLLM_CONFORMANCE_AT_ONCE"

_WAITING_FOR = {Evidence.OFFLINE: "a real offline engine", Evidence.SERVER: "vllm serve"}


class HarnessError(Exception):
    """The harness could not do its work: one sentence."""


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


def validate(settings: Settings) -> None:
    """Check what can be checked before vLLM is imported.

    Raises:
        UsageError: a target cannot be parsed, a profile is broken, an option contradicts
            another, or nothing can be written where reports go.

    """
    if not settings.targets:
        raise UsageError(f"name at least one target: --plugin-path {targets.forms()}.")
    _validate_server(settings)
    report = settings.directory / settings.report
    require_writable(report, settings.report)
    baseline.entries(settings)
    for text in settings.targets:
        for target in targets.parse(text, settings.directory):
            if target.root and settings.profile is None:  # a file, which is found without imports
                profile.find(targets.find_source(target))
        if (report / folder_name(text)).exists():
            require_writable(report / folder_name(text), settings.report)
    if settings.profile is not None and ":" not in settings.profile:
        profile.load(settings.profile, settings.directory)


def _validate_server(settings: Settings) -> None:
    """Check what is said of a running server."""
    if settings.server_url and Evidence.SERVER not in settings.evidence:
        raise UsageError(
            "--server-url is only for server evidence: add --evidence server (or all)."
        )
    url = settings.server_url
    if url is None and (settings.server_headers or settings.server_hostile):
        raise UsageError(
            "--server-header and --server-hostile are about a running server: name it with "
            "--server-url."
        )
    if settings.server_load < 1:
        raise UsageError(
            f"--server-load {settings.server_load} is too few: it takes 1 request, or more."
        )
    if url and "@" in url.partition("://")[2].partition("/")[0]:
        raise UsageError(
            "--server-url holds a password, which certificates would show: give it with "
            "--server-header 'Authorization: Basic ...'."
        )
    if url and not url.startswith(("http://", "https://")):
        guess = url.partition("://")[2] or url
        raise UsageError(f"--server-url {url!r} is no URL: did you mean 'http://{guess}'?")


def start_zygote() -> Zygote:
    """Start the process that imports vLLM; returns at once."""
    descriptor, log = tempfile.mkstemp(prefix="vllm-conformance-", suffix=".log")
    os.close(descriptor)
    return Zygote(preload=_preload(), environment=_environment(), log=Path(log))


def start_nursery(address: Path) -> subprocess.Popen[bytes]:
    """Start a process that saves runs below this one the import of vLLM; returns at once.

    Those runs find it that have its address in :data:`conformance.worker.nursery.ADDRESS`.
    """
    return nursery.start(address, _preload(), _environment())


def _preload() -> tuple[str, ...]:
    """Return what a zygote imports."""
    return (*PRELOAD, *(name for each in all_generations() for name in each.early))


def _environment() -> dict[str, str]:
    """Return the environment of the process that imports vLLM."""
    return host_environment(
        python_path=[str(Path(__file__).parents[1])],
        extra={"VLLM_LOGGING_LEVEL": "WARNING"},
    )


def _no_device() -> str | None:
    """Say that vLLM knows no device here, asked in a process that imports nothing else of it."""
    program = "from conformance import hindrances; print(hindrances.no_device() or '')"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.strip().splitlines()
    return lines[-1] if done.returncode == 0 and lines else None


def affordable(settings: Settings) -> int:
    """Return how many plugins this machine can judge at the same time.

    Raises:
        UsageError: ``$VLLM_CONFORMANCE_AT_ONCE`` is no number above 0.

    """
    if chosen := os.environ.get(AT_ONCE):
        if not (chosen.isascii() and chosen.isdigit() and int(chosen)):
            raise UsageError(f"{AT_ONCE}={chosen!r} is no number of plugins: give 1 or more.")
        return int(chosen)
    if settings.device is not Device.CPU and any(Path("/dev").glob("nvidia[0-9]*")):
        return 1  # an engine of each takes its share of the GPU, and it may be a small one
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1
    room = psutil.virtual_memory().available // MEMORY_EACH
    return max(1, min(cores, room, MOST_AT_ONCE))


def folder_name(target: str) -> str:
    """Return the name of a plugin's folder under the report directory."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "_.-") else "-" for c in target)


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
    #: Where it is marked which lines of each plugin have run, by target.
    _sheets: dict[str, lines.Sheet] = attrs.field(init=False, factory=dict)
    _configured: dict[str, Configured] = attrs.field(init=False, factory=dict)
    _jobs: dict[tuple[str, Evidence], Job] = attrs.field(init=False, factory=dict)
    _ended: dict[tuple[str, Evidence], str] = attrs.field(init=False, factory=dict)
    #: Trials that got no further, with nothing of the plugin running.
    _slow: dict[tuple[str, Evidence], str] = attrs.field(init=False, factory=dict)
    _owns_zygote: bool = attrs.field(init=False, default=False)
    _known: set[tuple[str, Evidence]] = attrs.field(init=False, factory=set)
    #: What nobody has asked a trial yet, in the order in which it will be.
    _pending: list[Check] = attrs.field(init=False, factory=list)
    #: What trials were asked and have not answered, one question for each plugin.
    _asked: dict[Check, Job] = attrs.field(init=False, factory=dict)
    #: Results that were not fetched yet.
    _ready: dict[Check, RuleResult] = attrs.field(init=False, factory=dict)
    #: Trials that were told to end.
    _leaving: list[Job] = attrs.field(init=False, factory=list)
    _temporary: tempfile.TemporaryDirectory[str] | None = attrs.field(init=False, default=None)

    def start(self) -> None:
        """Begin to import vLLM in the background; returns at once.

        Raises:
            UsageError: see :func:`validate`.

        """
        validate(self.settings)
        self._temporary = tempfile.TemporaryDirectory(prefix="vllm-conformance-")
        if self._zygote is None:
            self._zygote = start_zygote()
            self._owns_zygote = True

    def load(self) -> tuple[Plugin, ...]:
        """Import vLLM and find the plugins of all targets.

        Raises:
            UsageError: a target does not exist, or has no plugin.
            HarnessError: vLLM could not be imported.

        """
        if self._temporary is None:
            self.start()
        zygote = self._live_zygote()
        self.notify("importing vLLM")
        try:
            seconds = zygote.wait_ready()
        except ZygoteFailed as error:
            # Kernels for another processor may end the process that imports them.
            if sentence := _no_device():
                raise UsageError(sentence) from None
            raise HarnessError(str(error)) from None
        self.notify(f"imported vLLM in {seconds:.1f} s")
        found: list[Plugin] = []
        for text in self.settings.targets:
            for place in targets.parse(text, self.settings.directory):
                found += self._describe(place)
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
        # The slowest to start goes first.
        for evidence in (Evidence.SERVER, Evidence.OFFLINE, Evidence.SIMULATOR):
            self._open_next(evidence)

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
        for key in [key for key in self._jobs if key[0] == plugin.target]:
            self._close_job(key)
            self._open_next(key[1])

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
        if (foregone := self._foregone(check)) is not None:
            self._keep(check, foregone)
            return
        plugin, evidence = check.plugin, check.evidence
        key = (plugin.target, evidence)
        if key not in self._known and evidence is not Evidence.SIMULATOR:
            self.notify(f"{plugin.target}: waiting for {_WAITING_FOR[evidence]}")
        job = self._job(plugin, evidence)
        limit = self.limit or LIMITS[evidence]
        if self.settings.budget is Budget.DEEP:
            limit *= DEEP_FACTOR
        job.put(check.rule, limit=limit)
        self._asked[check] = job

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
        key = (check.plugin.target, check.evidence)
        if not any((p.plugin.target, p.evidence) == key for p in self._pending):
            if (job := self._jobs.get(key)) is not None and key not in self._ended:
                # More can be said of a plugin that has been through everything.
                with contextlib.suppress(JobDied, JobHung):
                    self._ask_context(job, check.plugin)
            self._note_lines(check.plugin)
            self._close_job(key)
            self._open_next(check.evidence)

    def finished(self, plugin: Plugin) -> bool:
        """Tell whether nothing of a plugin is left to run."""
        left = (*self._pending, *self._asked, *self._ready)
        missing = set(self.configurations(plugin)) - {row["name"] for row in self.rows(plugin)}
        return not missing and not any(check.plugin == plugin for check in left)

    def known(self, check: Check) -> baseline.Entry | None:
        """Return the entry of the baseline for a check, unless it has expired."""
        return baseline.known(self.settings, check.rule, check.plugin.target)

    def fork_replay(self, plugin: Plugin, case: dict[str, Any], folder: Path) -> Job:
        """Fork a job that plays a counterexample again."""
        arguments = {
            "plugin": plugin,
            "case": case,
            "model": str(tiny_llama()),
            "settings": self.settings,
        }
        return self.fork(plugin, "conformance.jobs:replay", arguments, folder / "replay.log")

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
                partial(self.fork, plugin),
                self._folder(plugin),
                str(tiny_llama()),
                self.notify,
            )
        return self._configured[plugin.target]

    def rows(self, plugin: Plugin) -> list[dict[str, Any]]:
        """Return what was shown of a plugin under configurations, as a certificate has it."""
        found: list[dict[str, Any]] = self.contexts.get(plugin.target, {}).get("configurations", [])
        return found

    def fork(self, plugin: Plugin, what: str, arguments: dict[str, Any], log: Path) -> Job:
        """Fork a job about a plugin, where what it imports is found."""
        return self._live_zygote().fork(
            what,
            arguments,
            log=log,
            directory=self.settings.directory,
            python_path=self._python_path(),
            preload=named(plugin.generation).preload,
        )

    def close(self) -> None:
        """End every process of this run."""
        for job in self._jobs.values():
            job.leave()
        for job in (*self._leaving, *self._jobs.values()):
            job.close()
        self._leaving, self._jobs = [], {}
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

    def _foregone(self, check: Check) -> RuleResult | None:
        """Judge a check for which the plugin need not, or cannot, be asked any more."""
        plugin, evidence = check.plugin, check.evidence
        generation = named(plugin.generation)
        if plugin.broken:
            return self._not_loaded(check, plugin.broken)
        elsewhere = [
            found
            for earlier, found in self.results.items()
            if earlier.plugin == plugin and earlier.evidence is not evidence
        ]
        if lacking := [found for found in elsewhere if found.unavailable]:
            same = (found.message for found in lacking if found.rule == check.rule)
            why = next(same, None) or must_wait([lacking[0].rule])
            return unjudged(check.rule, check.evidence, why)
        if any(
            found.verdict is Verdict.FAIL and found.rule == generation.survival_rule
            for found in elsewhere
        ):
            # Waiting for a hang in an engine, and then in a server, would teach nobody anything.
            return unjudged(check.rule, check.evidence, must_wait([generation.survival_rule]))
        if (slow := self._slow.get((plugin.target, evidence))) is not None:
            return unjudged(check.rule, check.evidence, slow)
        if (key := (plugin.target, evidence)) in self._ended:
            return self._after_the_end(check, self._ended[key])
        return None

    def _not_loaded(self, check: Check, why: str) -> RuleResult:
        """Judge a check of a plugin that could not be loaded."""
        plugin, rule = check.plugin, named(check.plugin.generation).loading_rule
        if check.rule != rule:
            return unjudged(check.rule, check.evidence, must_wait([rule]))
        if plugin.unavailable:
            return unjudged(check.rule, check.evidence, why)
        refused = RuleResult(rule, Verdict.FAIL, check.evidence, 1, 0, 0.0, why)
        return attrs.evolve(refused, counterexample=of_loading(plugin))

    def _answer(self, check: Check) -> RuleResult | None:
        """Return what a trial that was asked about a check says, if it says anything yet."""
        plugin, evidence = check.plugin, check.evidence
        key, job = (plugin.target, evidence), self._asked[check]
        try:
            answer = job.hear(self.notify if self.at_once == 1 else partial(self._tell, plugin))
            if answer is NOT_YET:
                return None
            if isinstance(answer, UsageError):
                self._keep_unopened(plugin, answer)
            if key not in self._known:
                self._ask_context(job, plugin)
                self._known.add(key)
        except JobDied as error:
            return self._lost(check, f"the plugin's process: {error}")
        except JobHung as error:
            if where := _where(error.stack, plugin.path):
                return self._lost(check, f"the plugin {error}{where}")
            slow = f"this machine is too slow: a trial {error}, with nothing of the plugin running"
            self._slow[key] = slow
            self._jobs.pop(key, None)
            return unjudged(check.rule, check.evidence, slow)
        if not isinstance(answer, RuleResult):
            return RuleResult(check.rule, Verdict.ERROR, evidence, message=repr(answer))
        return answer

    def _tell(self, plugin: Plugin, sentence: str) -> None:
        """Hand on what a trial says of its progress, where there are several."""
        several = len(self.plugins) > 1
        self.notify(f"{plugin.target}: {sentence}" if several else sentence)

    def _ask_context(self, job: Job, plugin: Plugin) -> None:
        told = job.ask("context", limit=60)
        known = self.contexts.setdefault(plugin.target, {})
        known |= {name: value for name, value in told.items() if value is not None}

    def _note_lines(self, plugin: Plugin) -> None:
        """Keep which lines of a plugin have run by now, for its certificate."""
        if (sheet := self._sheets.get(plugin.target)) is not None:
            known = self.contexts.setdefault(plugin.target, {})
            known["lines"] = reached.document(sheet.ran(), known.get("profile"), plugin.qualname)

    def _sheet(self, plugin: Plugin, evidence: Evidence) -> lines.Sheet | None:
        """Return where it is marked which lines of a plugin run, if that is watched.

        Engines call the plugin by themselves: all that they do would be traced.
        """
        if plugin.path is None or not (self.settings.lines or evidence is Evidence.SIMULATOR):
            return None
        if plugin.target not in self._sheets:
            assert self._temporary is not None
            place = Path(self._temporary.name) / f"lines-{len(self._sheets)}"
            self._sheets[plugin.target] = lines.Sheet.laid(place, sources(plugin.path))
        return self._sheets[plugin.target]

    def _lost(self, check: Check, message: str) -> RuleResult:
        """Judge a check whose process is gone, and remember it for those that follow."""
        key = (check.plugin.target, check.evidence)
        self._ended[key] = message
        self._jobs.pop(key, None)
        return self._after_the_end(check, message)

    def _keep_unopened(self, plugin: Plugin, why: UsageError) -> NoReturn:
        """Remember a plugin whose trial cannot be opened, if somebody wants to know."""
        if self.unopened is None:
            raise why
        self.unopened[plugin.target] = str(why)
        raise JobDied(str(why), exit_status=None)

    def _after_the_end(self, check: Check, message: str) -> RuleResult:
        survival = named(check.plugin.generation).survival_rule
        known = [c for c in self.results if c.plugin == check.plugin and c.rule == survival]
        if any(self.results[c].verdict is Verdict.FAIL for c in known):
            return unjudged(check.rule, check.evidence, must_wait([survival], message))
        others = [p for p in self._pending if p != check and p.rule == survival]
        if check.rule == survival or not any(p.plugin == check.plugin for p in others):
            return RuleResult(check.rule, Verdict.FAIL, check.evidence, 1, 1, 0.0, message)
        return unjudged(check.rule, check.evidence, must_wait([survival], message))

    def _job(self, plugin: Plugin, evidence: Evidence) -> Job:
        key = (plugin.target, evidence)
        if key not in self._jobs:
            folder = self._folder(plugin)
            log = folder / f"{evidence.value}.log"
            log.unlink(missing_ok=True)
            arguments = {
                "plugin": plugin,
                "evidence": evidence,
                "settings": self.settings,
                "model": str(tiny_llama()),
                "folder": str(folder),
                "sheet": self._sheet(plugin, evidence),
            }
            self._jobs[key] = self.fork(plugin, "conformance.jobs:trial", arguments, log)
        return self._jobs[key]

    def _open_next(self, evidence: Evidence) -> None:
        """Start the next trial of a kind in the background: one of each kind at a time."""
        if any(kind is evidence for _, kind in self._jobs):
            return
        for check in self._pending:
            key = (check.plugin.target, evidence)
            over = key in self._ended or key in self._slow
            if check.evidence is evidence and not over and not check.plugin.broken:
                self._job(check.plugin, evidence)
                return

    def _close_job(self, key: tuple[str, Evidence]) -> None:
        """Tell a trial to end; wait for it where there are others that have not ended."""
        if (job := self._jobs.pop(key, None)) is not None:
            job.leave()
            self._leaving = [each for each in (*self._leaving, job) if not each.ended()]
            while len(self._leaving) >= self.at_once:
                self._leaving.pop(0).close()

    def _describe(self, place: targets.Target) -> Sequence[Plugin]:
        zygote = self._live_zygote()
        assert self._temporary is not None
        roots = [place.root] if place.root else self._python_path()
        source = targets.find_file(place.module, roots)
        job = zygote.fork(
            "conformance.jobs:describe",
            {"wanted": [place], "environment": self._variables(source)},
            log=Path(self._temporary.name) / "describe.log",
            directory=self.settings.directory,
            python_path=self._python_path(),
        )
        name = Path(source).name if source else place.module
        patience = Patience(name, self.notify, lambda stack: _where(stack, source))
        try:
            answer = job.ask("describe", limit=math.inf, patience=patience)
        except JobDied as error:
            return [_unimportable(place, source, f"importing {place.module}: {error}")]
        except JobHung as error:
            where = _where(error.stack, source)
            return [_unimportable(place, source, f"importing {place.module} {error}{where}")]
        job.close()
        if isinstance(answer, UsageError):
            raise answer
        found: Sequence[Plugin] = answer
        return found

    def _variables(self, source: str | None) -> dict[str, str]:
        """Return the variables that a profile sets; one in Python is loaded where plugins are."""
        spec, directory = self.settings.profile, self.settings.directory
        if spec is not None and not (directory / spec).is_file():
            return {}
        found = profile.choose(spec, directory, source)
        return found.environment if found else {}

    def _folder(self, plugin: Plugin) -> Path:
        folder = self.settings.directory / self.settings.report / folder_name(plugin.target)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _python_path(self) -> list[str]:
        """Return ``sys.path`` for workers: the caller's, and the folder it was started in."""
        paths = [str(self.settings.directory), *self.settings.python_path]
        return list(dict.fromkeys(path for path in paths if path))

    def _live_zygote(self) -> Zygote:
        if self._zygote is None:
            raise HarnessError("the run is closed")
        return self._zygote


def _plain(_owner: object, _field: object, value: Any) -> Any:  # noqa: ANN401 - of any field
    """Return a value as JSON has it."""
    return value.value if isinstance(value, Verdict) else value


def _unimportable(place: targets.Target, source: str | None, why: str) -> Plugin:
    """Describe a target whose import ended the process, or did not end."""
    generation = named(likeness.likely(place, source))
    return targets.Plugin(
        target=place.text,
        interface=generation.interface,
        generation=generation.name,
        module=place.module,
        qualname=place.qualname or "",
        root=place.root,
        path=source,
        digest=targets.digest_of(source),
        version=None,
        broken=why,
    )


def _where(stack: str, path: str | None) -> str:
    """Name the line of the plugin in a stack that ``faulthandler`` wrote, innermost first."""
    frames = [(file, int(line)) for file, line in _FRAME.findall(stack)]
    place = innermost(frames, path)
    return f" (at {place})" if place else ""
