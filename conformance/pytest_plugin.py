# SPDX-License-Identifier: Apache-2.0
"""``pytest --plugin-path TARGET``: rules become pytest items.

A thin adapter: what is run and how it is judged is decided in ``runner`` and ``verdict``.
Loaded by every pytest of the environment, so it imports nothing heavy before it is asked to.
"""

from __future__ import annotations

import importlib
import pickle
import signal
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from conformance import pytest_options

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from _pytest._code.code import TracebackEntry

    from conformance.baseline import Entry
    from conformance.configuration.judgement import Row
    from conformance.runner import Certification
    from conformance.target import Plugin
    from conformance.trials import Check
    from conformance.verdict import ExitStatus, RuleResult
    from conformance.worker import Zygote

#: The worker process, where it was started before there was a session.
_ZYGOTE: pytest.StashKey[Zygote] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the harness."""
    pytest_options.add(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Begin to import vLLM before pytest has loaded anything else."""
    known = early_config.known_args_namespace
    if known.plugin_path:
        # Rules have no fixtures: what pytest-asyncio wants to be told of theirs is about nothing.
        unset = "The configuration option .asyncio_default_fixture_loop_scope. is unset"
        early_config.addinivalue_line("filterwarnings", f"ignore:{unset}")
    if known.plugin_path and not getattr(known, "numprocesses", None) and not known.help:
        from conformance.zygotes import start_zygote

        # What is wrong with the machine is told by the session, which tries again.
        with suppress(OSError):
            early_config.stash[_ZYGOTE] = start_zygote()
            early_config.add_cleanup(early_config.stash[_ZYGOTE].close)


def pytest_configure(config: pytest.Config) -> None:
    """Switch the harness on where a target is named."""
    config.addinivalue_line("markers", "conformance: a rule of the vLLM plugin conformance harness")
    if not config.getoption("plugin_path") or config.option.help:
        return
    if getattr(config.option, "forked", False):
        raise pytest.UsageError(
            "--forked cannot be used with --plugin-path: rules run in processes of their own"
        )
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        # Neither testpaths nor the folder pytest was started in: the rules only.
        config.args = []
    # With several workers, one target stays in one process: its engines are started once.  Not by
    # groups, which xdist 3.8 writes to where pytest 9.2 no longer reads them.
    if getattr(config.option, "dist", "no") == "load":
        config.option.dist = "loadscope"
    config.pluginmanager.register(_Session(config), "vllm-conformance-session")


class _Session:
    """One pytest session with at least one target."""

    def __init__(self, config: pytest.Config) -> None:
        from conformance.runner import Certification
        from conformance.session import Reports, explained, interruptible
        from conformance.settings import UsageError
        from conformance.validation import affordable, validate
        from conformance.verdict import ExitStatus

        self.config = config
        self.settings = pytest_options.settings(config)
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
                zygote=config.stash.get(_ZYGOTE, None),
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
        from conformance.settings import UsageError
        from conformance.verdict import ExitStatus

        if self.certification is None:
            return
        _import_meanwhile()
        try:
            with self._failing(UsageError):
                self.plugins = self.certification.load()
        except UsageError as error:
            self.failure = ExitStatus.USAGE, str(error)
            raise pytest.UsageError(str(error)) from None
        collectors: dict[str, _Target] = {}
        ours: dict[str, list[pytest.Item | pytest.Collector]] = {}
        for check in self.certification.checks():
            target = check.plugin.target
            if target not in collectors:
                collectors[target] = _Target.from_parent(session, name=target, nodeid=target)
            # Written out, so that what `--lf` reads back from its cache is the same id.
            nodeid = f"{target}::{check.name}"
            item = RuleItem.from_parent(
                collectors[target], nodeid=nodeid, check=check, session_=self
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
                    session_=self,
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
            isinstance(item, RuleItem | ConfigurationItem)
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
        from conformance.session import explained
        from conformance.verdict import ExitStatus

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
                self.certification.close()

    def _conclude(self, session: pytest.Session, exitstatus: int) -> None:
        from conformance.session import status
        from conformance.verdict import ExitStatus

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
                any(not isinstance(item, RuleItem | ConfigurationItem) for item in session.items)
                and exitstatus == 1
            )
            worst = status(self.documents)
            if self.interrupted and self.controller and worst is ExitStatus.CONFORMANT:
                worst = ExitStatus.INCOMPLETE  # a worker may not have come to tell of a plugin
            session.exitstatus = exitstatus if foreign and worst == 0 else int(worst)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show every certificate."""
        from conformance.reporting import summary
        from conformance.session import report_folder

        if self.failure and (self.controller or self.late):
            terminalreporter.write_line(f"ERROR: {self.failure[1]}", red=True)
        if not self.documents:
            return
        terminalreporter.section("vLLM plugin conformance")
        width = min(terminalreporter._tw.fullwidth, 120)  # noqa: SLF001 - it has no public name
        colour = bool(terminalreporter._tw.hasmarkup)  # noqa: SLF001 - it has no public name
        for plugin, document in zip(self.plugins, self.documents, strict=True):
            terminalreporter.write(summary.text(document, width=width, colour=colour))
            folder = report_folder(self.settings, plugin)
            terminalreporter.write_line(f"certificate: {_short(folder / 'certificate.json')}")
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
        from conformance.session import explained
        from conformance.settings import UsageError
        from conformance.verdict import ExitStatus

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


class _Target(pytest.Collector):
    """One plugin under test."""

    def collect(self) -> list[pytest.Item]:
        """Return nothing: the session makes the items, in the order of the evidence."""
        return []


class RuleItem(pytest.Item):
    """One rule, on one kind of evidence, for one plugin."""

    def __init__(self, *, check: Check, session_: _Session, **kwargs: Any) -> None:  # noqa: ANN401 - pytest's own
        super().__init__(name=check.name, **kwargs)
        self.check = check
        self.plugin = check.plugin
        self._conformance = session_
        _mark(self)

    def runtest(self) -> None:
        """Run the check and turn its verdict into pytest's terms."""
        from conformance.generations import named
        from conformance.rules import Level
        from conformance.verdict import Verdict

        result = self._conformance.run(self.check)
        level = named(self.check.plugin.generation).rule(result.rule).level
        # A SHOULD never makes a plugin non-conformant, so it does not fail an item either.
        advice = result.verdict is Verdict.FAIL and level is Level.SHOULD
        shown = "advice" if advice else result.verdict.value
        self.user_properties += [("rule", result.rule), ("verdict", shown)]
        if result.verdict in (Verdict.FAIL, Verdict.ERROR) and not advice:
            entry = self._conformance.known(self.check)
            if result.verdict is Verdict.FAIL and entry is not None:
                pytest.xfail(f"{result.message} [known: {entry.reason}]")
            raise _Broken(result)
        if result.verdict is not Verdict.PASS:
            pytest.skip(f"{shown}: {result.message}")

    def repr_failure(
        self,
        excinfo: pytest.ExceptionInfo[BaseException],
        style: Any = None,  # noqa: ANN401 - pytest's types have no public names
    ) -> Any:  # noqa: ANN401 - pytest's types have no public names
        """Show a broken rule as the design has it, and anything else as pytest does."""
        if not isinstance(excinfo.value, _Broken):
            return super().repr_failure(excinfo, style)
        from conformance.generations import named
        from conformance.reporting.failure import render
        from conformance.session import report_folder
        from conformance.verdict import Verdict

        result, plugin = excinfo.value.result, self.check.plugin
        if result.verdict is Verdict.ERROR:
            return f"the harness failed on {result.rule}: {result.message}; please report this."
        case = report_folder(self._conformance.settings, plugin) / "cases" / f"{result.rule}.json"
        return render(
            named(plugin.generation).rule(result.rule),
            message=result.message,
            evidence=[result.evidence.value],
            counterexample=result.counterexample,
            case=_short(case) if result.counterexample else None,
            loaded=plugin.broken is None,
        )

    def reportinfo(self) -> tuple[Path, None, str]:
        """Return where the item is, for the progress lines."""
        return Path(self.check.plugin.path or self.check.plugin.target), None, self.name


class ConfigurationItem(pytest.Item):
    """One plugin under one configuration of an engine."""

    def __init__(
        self,
        *,
        plugin: Plugin,
        configuration: str,
        session_: _Session,
        **kwargs: Any,  # noqa: ANN401 - pytest's own
    ) -> None:
        super().__init__(name=f"configuration[{configuration}]", **kwargs)
        self.plugin = plugin
        self.configuration = configuration
        self._conformance = session_
        _mark(self)

    def runtest(self) -> None:
        """Run the engines and turn the verdict into pytest's terms."""
        from conformance.verdict import Verdict

        row = self._conformance.run_configured(self.plugin, self.configuration)
        self.user_properties += [("rule", self.name), ("verdict", row.verdict.value)]
        if row.verdict in (Verdict.FAIL, Verdict.ERROR):
            raise _Misbehaved(row.message)
        if row.verdict is not Verdict.PASS:
            pytest.skip(f"{row.verdict.value}: {row.message}")

    def repr_failure(
        self,
        excinfo: pytest.ExceptionInfo[BaseException],
        style: Any = None,  # noqa: ANN401 - pytest's types have no public names
    ) -> Any:  # noqa: ANN401 - pytest's types have no public names
        """Show what the engine did in one sentence, and anything else as pytest does."""
        if not isinstance(excinfo.value, _Misbehaved):
            return super().repr_failure(excinfo, style)
        return f"{self.configuration}: {excinfo.value}"

    def reportinfo(self) -> tuple[Path, None, str]:
        """Return where the item is, for the progress lines."""
        return Path(self.plugin.path or self.plugin.target), None, self.name


def _mark(item: pytest.Item) -> None:
    """Mark an item as one of the rules, which have time limits of their own.

    A limit that a repository sets for its tests would end a server that starts.
    """
    item.add_marker(pytest.mark.conformance)
    if item.config.pluginmanager.hasplugin("timeout"):
        item.add_marker(pytest.mark.timeout(0))


class _Misbehaved(Exception):
    """A plugin was not the same under a configuration."""


class _Broken(Exception):
    """A rule failed, or the harness did."""

    def __init__(self, result: RuleResult) -> None:
        super().__init__(result.message)
        self.result = result


def _has_line(entry: TracebackEntry) -> bool:
    try:
        return entry.lineno >= 0
    except TypeError:  # pytest calculates with a number that there is not
        return False


@pytest.hookimpl(wrapper=True)
def pytest_report_teststatus(
    report: pytest.TestReport | pytest.CollectReport,
) -> Generator[None, Any, Any]:
    """Name the verdicts that pytest has no word for."""
    status = yield
    verdict = dict(getattr(report, "user_properties", ())).get("verdict")
    letters = {"not-applicable": "-", "not-verified": "?", "advice": "!"}
    if report.when == "call" and verdict in letters:
        # Categories of their own: none may be counted among passes or skips.
        letter = letters[verdict]
        return verdict, letter, (verdict.upper().replace("-", " "), {"yellow": letter != "-"})
    return status


def _import_meanwhile() -> None:
    """Import what the end of the session needs while another process imports vLLM."""
    # Hypothesis is wanted by its own pytest plugin, for the summary.
    for module in ("conformance.session", "hypothesis"):
        importlib.import_module(module)


def _packed(value: object) -> str:
    """Return a value as text that xdist can carry between our own processes."""
    return pickle.dumps(value).hex()


def _unpacked(text: str) -> Any:  # noqa: ANN401 - whatever was packed
    return pickle.loads(bytes.fromhex(text))  # noqa: S301 - our own worker wrote it


def _short(path: Path) -> str:
    """Return a path relative to the current folder where that is shorter."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
