# SPDX-License-Identifier: Apache-2.0
"""The items of a session: rules on some evidence, and configurations of engines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conformance.configuration.judgement import Row
from conformance.generations import named
from conformance.plugin.target import Plugin
from conformance.reporting.failure import told
from conformance.rules import Level
from conformance.running.baseline import Entry
from conformance.running.trials import Check
from conformance.settings import shorter
from conformance.verdict import RuleResult, Verdict


class Target(pytest.Collector):
    """One plugin under test."""

    def collect(self) -> list[pytest.Item]:
        """Return nothing: the session makes the items, in the order of the evidence."""
        return []


class PluginItem(pytest.Item):
    """What is asked of one plugin.

    It has a time limit of its own: one that a repository sets for its tests would end a server that
    starts.
    """

    def __init__(self, *, plugin: Plugin, **kwargs: Any) -> None:  # noqa: ANN401 - pytest's own
        super().__init__(**kwargs)
        self.plugin = plugin
        self.add_marker(pytest.mark.conformance)
        if self.config.pluginmanager.hasplugin("timeout"):
            self.add_marker(pytest.mark.timeout(0))

    def reportinfo(self) -> tuple[Path, None, str]:
        """Return where the item is, for the progress lines."""
        return Path(self.plugin.path or self.plugin.target), None, self.name


class RuleItem(PluginItem):
    """One rule, on one kind of evidence, for one plugin."""

    def __init__(
        self,
        *,
        check: Check,
        judge: Callable[[Check], RuleResult],
        known: Callable[[Check], Entry | None],
        folder: Path,
        **kwargs: Any,  # noqa: ANN401 - pytest's own
    ) -> None:
        super().__init__(name=check.name, plugin=check.plugin, **kwargs)
        self.check = check
        self._judge = judge
        self._known = known
        self._folder = folder  #: of the certificate

    def runtest(self) -> None:
        """Run the check and turn its verdict into pytest's terms."""
        result = self._judge(self.check)
        level = named(self.check.plugin.generation).rule(result.rule).level
        # A SHOULD never makes a plugin non-conformant, so it does not fail an item either.
        advice = result.verdict is Verdict.FAIL and level is Level.SHOULD
        shown = "advice" if advice else result.verdict.value
        self.user_properties += [("rule", result.rule), ("verdict", shown)]
        if result.verdict in (Verdict.FAIL, Verdict.ERROR) and not advice:
            entry = self._known(self.check)
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

        result, plugin = excinfo.value.result, self.check.plugin
        return told(plugin, result, shorter(self._folder / "cases" / f"{result.rule}.json"))


class ConfigurationItem(PluginItem):
    """One plugin under one configuration of an engine."""

    def __init__(
        self,
        *,
        plugin: Plugin,
        configuration: str,
        judge: Callable[[Plugin, str], Row],
        **kwargs: Any,  # noqa: ANN401 - pytest's own
    ) -> None:
        super().__init__(name=f"configuration[{configuration}]", plugin=plugin, **kwargs)
        self.configuration = configuration
        self._judge = judge

    def runtest(self) -> None:
        """Run the engines and turn the verdict into pytest's terms."""
        row = self._judge(self.plugin, self.configuration)
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


class _Misbehaved(Exception):
    """A plugin was not the same under a configuration."""


class _Broken(Exception):
    """A rule failed, or the harness did."""

    def __init__(self, result: RuleResult) -> None:
        super().__init__(result.message)
        self.result = result
