# SPDX-License-Identifier: Apache-2.0
"""A pytest session with targets: it collects their rules, runs them and writes certificates."""

from __future__ import annotations

import gc
import importlib
import pickle
import signal
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from conformance.configuration.judgement import Row
from conformance.plugin.target import Plugin
from conformance.pytest_plugin import options
from conformance.pytest_plugin.items import ConfigurationItem, PluginItem, RuleItem, Target
from conformance.reporting import summary
from conformance.reporting.session import (
    Reports,
    explained,
    report_folder,
    status,
)
from conformance.rules import Level
from conformance.running.baseline import Entry
from conformance.running.runner import Certification
from conformance.running.signals import interruptible
from conformance.running.trials import Check
from conformance.running.validation import affordable, validate
from conformance.settings import UsageError, shorter
from conformance.verdict import ExitStatus, RuleResult
from conformance.worker import Zygote

if TYPE_CHECKING:
    from _pytest._code.code import TracebackEntry


class Session:
    """One pytest session with at least one target."""

    def __init__(self, config: pytest.Config, *, zygote: Zygote | None) -> None:

        self.config = config
        self.settings = options.settings(config)
        self.reports = Reports(self.settings, time.monotonic())
        self.plugins: tuple[Plugin, ...] = ()
        self.results: dict[str, list[RuleResult]] = {}
        self.contexts: dict[str, dict[str, Any]] = {}
        self.documents: list[dict[str, Any]] = []
        self.failure: tuple[ExitStatus, str] | None = None
        self.late = False  #: whether the failure came when pytest had ended
        self.interrupted = False
        self.certification: Certification | None = None
        # The process that hands items to xdist workers runs none itself.
        self.controller = bool(config.getoption("tx", None)) and not hasattr(config, "workerinput")
        # Of an xdist worker it is the controller that hears of signals.
        if not hasattr(config, "workerinput"):
            heeding = ExitStack()
            heeding.enter_context(interruptible())
            config.add_cleanup(heeding.close)
        try:
            validate(self.settings)
            if self.controller:
                return
            self.certification = Certification(
                self.settings,
                self._notify,
                zygote=zygote,
                # An xdist worker is not told which of the items are its own.
                at_once=1 if hasattr(config, "workerinput") else affordable(self.settings),
            )
            self.certification.start()
        except UsageError as error:
            raise pytest.UsageError(str(error)) from None
        except Exception as error:  # noqa: BLE001 - never a verdict on a plugin
            self._give_up(ExitStatus.HARNESS_FAILED, explained(error))
        config.add_cleanup(self.certification.close)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(
        self, session: pytest.Session, items: list[pytest.Item]
    ) -> None:
        """Add an item for every rule, evidence and plugin."""
        if self.certification is None:
            return
        # Hypothesis is wanted by its own pytest plugin, for the summary: now another process
        # imports vLLM.
        importlib.import_module("hypothesis")
        self.reports.get_ready()
        # What is imported by now is no garbage; pytest looks for some five times when it ends.
        gc.freeze()
        try:
            with self._failing(UsageError):
                self.plugins = self.certification.load()
        except UsageError as error:
            self.failure = ExitStatus.USAGE, str(error)
            raise pytest.UsageError(str(error)) from None
        collectors: dict[str, Target] = {}
        ours: dict[str, list[pytest.Item | pytest.Collector]] = {}
        for check in self.certification.checks():
            target = check.plugin.target
            if target not in collectors:
                collectors[target] = Target.from_parent(session, name=target, nodeid=target)
            # Written out, so that what `--lf` reads back from its cache is the same id.
            nodeid = f"{target}::{check.name}"
            item = RuleItem.from_parent(
                collectors[target],
                nodeid=nodeid,
                check=check,
                judge=self.run,
                known=self.known,
                folder=report_folder(self.settings, check.plugin),
            )
            ours.setdefault(target, []).append(item)
            items.append(item)
        for plugin in self.plugins:
            for name in self.certification.configurations(plugin):
                nodeid = f"{plugin.target}::configuration[{name}]"
                configured = ConfigurationItem.from_parent(
                    collectors[plugin.target],
                    nodeid=nodeid,
                    plugin=plugin,
                    configuration=name,
                    judge=self.run_configured,
                )
                ours[plugin.target].append(configured)
                items.append(configured)
        # The items were not collected from files; the terminal counts what is reported.
        for target, found in ours.items():
            report = pytest.CollectReport(target, "passed", None, found)
            session.ihook.pytest_collectreport(report=report)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Start what the selected items need."""
        if self.certification is not None and not session.config.option.collectonly:
            with self._failing():
                self.certification.select(i.check for i in session.items if isinstance(i, RuleItem))

    def run(self, check: Check) -> RuleResult:
        """Run one check."""
        assert self.certification is not None
        with self._failing():
            result = self.certification.run(check)
        self.results.setdefault(check.plugin.target, []).append(result)
        self.contexts |= self.certification.contexts
        if not hasattr(self.config, "workerinput"):
            with self._failing():
                self.reports.take(self.certification, check.plugin, self.results)
        return result

    def run_configured(self, plugin: Plugin, name: str) -> Row:
        """Judge a plugin under one configuration."""
        assert self.certification is not None
        with self._failing():
            row = self.certification.configured(plugin, name)
        self.contexts |= self.certification.contexts
        if not hasattr(self.config, "workerinput"):
            with self._failing():
                self.reports.take(self.certification, plugin, self.results)
        return row

    def known(self, check: Check) -> Entry | None:
        """Return the entry of the baseline for a check."""
        assert self.certification is not None
        return self.certification.known(check)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Let reports of an xdist worker carry what it knows: an interrupted run has no other.

        Before the first call the one about setting up tells of the plugin.
        """
        report = yield
        if (
            isinstance(item, PluginItem)
            and call.when in ("setup", "call")
            and hasattr(self.config, "workerinput")
        ):
            plugin, certification = item.plugin, self.certification
            new = call.when == "call" and isinstance(item, RuleItem)
            results = self.results.get(plugin.target, [])[-1:] if new else []
            finished = certification is not None and certification.finished(plugin)
            told = plugin, results, self.contexts, finished
            # pytest sends what it finds on a report along.
            report.__dict__["vllm_conformance"] = _packed(told)
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take over what an xdist worker found."""
        packed = getattr(report, "vllm_conformance", None)
        if self.controller and packed:
            plugin, results, contexts, finished = _unpacked(packed)
            self._know([plugin])
            self.results.setdefault(plugin.target, []).extend(results)
            self.contexts |= contexts
            if finished:
                with self._failing():
                    self.reports.finish(plugin, self.results, self.contexts)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object, error: object) -> None:  # noqa: ARG002 - xdist
        """Take over what an xdist worker knows at its end."""
        packed = getattr(node, "workeroutput", {}).get("vllm_conformance")
        if packed:
            plugins, interrupted, failure = _unpacked(packed)
            self._know(plugins)
            self.interrupted |= interrupted
            self.failure = self.failure or failure

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Remember that the run was stopped.

        A signal may come between two lines: pytest cannot draw a place that has no number.
        """
        self.interrupted = True
        excinfo.traceback = excinfo.traceback.filter(_has_line)

    # The innermost wrapper: after plugins that add to the exit status (syrupy does), and before
    # the summary of the terminal and what an xdist worker sends.
    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(
        self, session: pytest.Session, exitstatus: int
    ) -> Generator[None, object, object]:
        """Write the certificates, and turn their verdicts into the exit status."""
        try:
            return (yield)
        except KeyboardInterrupt:  # nothing is left to run, and workers take their time to end
            self.interrupted = True
            return None
        finally:
            self._finish(session, exitstatus)

    def _finish(self, session: pytest.Session, exitstatus: int) -> None:

        if not hasattr(self.config, "workerinput"):
            with suppress(ValueError):  # not the main thread
                # What is left is to be written and shown; the handler of before comes back.
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
        try:
            self._conclude(session, exitstatus)
        except Exception as error:  # noqa: BLE001 - never a verdict on a plugin
            self.failure = ExitStatus.HARNESS_FAILED, explained(error)
            self.late = True
            session.exitstatus = int(ExitStatus.HARNESS_FAILED)
        finally:
            # At last: ending everything may take longer than there is time left.
            if self.certification is not None:
                self.certification.close(hurried=self.interrupted)

    def _conclude(self, session: pytest.Session, exitstatus: int) -> None:

        if hasattr(self.config, "workeroutput"):
            told = self.plugins, self.interrupted, self.failure
            self.config.workeroutput["vllm_conformance"] = _packed(told)
            return
        if self.failure:
            # An xdist worker's, too: xdist itself says only that nothing ran.
            session.exitstatus = int(self.failure[0])
            return
        if session.config.option.collectonly or not self.plugins or exitstatus in (3, 4):
            return
        self.documents = self.reports.write(
            self.plugins, self.results, self.contexts, interrupted=self.interrupted
        )
        if exitstatus in (0, 1, 2, 5):
            foreign = (
                any(not isinstance(item, PluginItem) for item in session.items) and exitstatus == 1
            )
            worst = status(self.documents)
            if self.interrupted and self.controller and worst is ExitStatus.CONFORMANT:
                worst = ExitStatus.INCOMPLETE  # a worker may not have come to tell of a plugin
            session.exitstatus = exitstatus if foreign and worst == 0 else int(worst)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show every certificate."""
        if self.failure and (self.controller or self.late):
            terminalreporter.write_line(f"ERROR: {self.failure[1]}", red=True)
        if not self.documents:
            return
        terminalreporter.section("vLLM plugin conformance")
        width = min(terminalreporter._tw.fullwidth, 120)  # noqa: SLF001 - it has no public name
        # A SHOULD fails no item, so pytest says nothing of it.
        told = [Level.MUST] if terminalreporter.config.option.tbstyle != "no" else []
        colour = bool(terminalreporter._tw.hasmarkup)  # noqa: SLF001 - it has no public name
        for plugin, document in zip(self.plugins, self.documents, strict=True):
            text = summary.text(document, width=width, colour=colour, told=told)
            terminalreporter.write(text)
            folder = report_folder(self.settings, plugin)
            terminalreporter.write_line(f"certificate: {shorter(folder / 'certificate.json')}")
            terminalreporter.write_line("")
        run = self.documents[0]["run"]
        terminalreporter.write_line(
            f"seed {run['seed']}, budget {run['budget']}, {run['seconds']:.1f} s"
        )

    def _know(self, plugins: Iterable[Plugin]) -> None:
        self.plugins = tuple({p.target: p for p in (*self.plugins, *plugins)}.values())

    @contextmanager
    def _failing(self, *passed: type[Exception]) -> Iterator[None]:
        """End the session with the right status when the block raises, but for what is passed."""
        try:
            yield
        except (*passed, pytest.exit.Exception):
            raise
        except UsageError as error:
            self._give_up(ExitStatus.USAGE, str(error))
        except Exception as error:  # noqa: BLE001 - never a verdict on a plugin
            self._give_up(ExitStatus.HARNESS_FAILED, explained(error))

    def _give_up(self, status: ExitStatus, sentence: str) -> NoReturn:
        self.failure = status, sentence
        pytest.exit(sentence, returncode=int(status))

    def _notify(self, sentence: str) -> None:
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None and self.config.option.verbose >= 0:
            reporter.ensure_newline()
            reporter.write_line(f"conformance: {sentence}")


def _has_line(entry: TracebackEntry) -> bool:
    try:
        return entry.lineno >= 0
    except TypeError:  # pytest calculates with a number that there is not
        return False


def _packed(value: object) -> str:
    """Return a value as text that xdist can carry between our own processes."""
    return pickle.dumps(value).hex()


def _unpacked(text: str) -> Any:  # noqa: ANN401 - whatever was packed
    return pickle.loads(bytes.fromhex(text))  # noqa: S301 - our own worker wrote it
