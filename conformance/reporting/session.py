# SPDX-License-Identifier: Apache-2.0
"""From a finished certification to its report: certificates, files, exit status."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs

from conformance.plugin.target import Plugin
from conformance.reporting import certificate, folder, page
from conformance.running import baseline
from conformance.running.runner import Certification, HarnessError
from conformance.settings import Settings, folder_name
from conformance.verdict import ExitStatus, RuleResult, worst


def report_folder(settings: Settings, plugin: Plugin) -> Path:
    """Return the folder of a plugin's certificate."""
    return settings.directory / settings.report / folder_name(plugin.target)


def _profile(settings: Settings) -> str | None:
    """Return the profile that a run was given, as it can be named from any folder."""
    path = settings.directory / (settings.profile or "")
    return str(path.resolve()) if path.is_file() else settings.profile


def write_reports(
    settings: Settings,
    plugins: Sequence[Plugin],
    results: Mapping[str, Iterable[RuleResult]],
    contexts: Mapping[str, Mapping[str, Any]],
    *,
    started: float,
    interrupted: bool = False,
) -> list[dict[str, Any]]:
    """Write a certificate for every plugin and return them.

    Args:
        settings: the options of the run.
        plugins: the classes under test.
        results: by target.
        contexts: by target, see :func:`conformance.reporting.certificate.build`.
        started: ``time.monotonic()`` at the start of the run.
        interrupted: whether the run was stopped before its end.

    """
    documents = []
    for plugin in plugins:
        document = certificate.build(
            plugin,
            list(results.get(plugin.target, ())),
            settings=settings,
            context=contexts.get(plugin.target, {}),
            seconds=round(time.monotonic() - started, 2),
            finished=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            interrupted=interrupted,
        )
        if settings.baseline is not None:
            document["baseline"] = baseline.marks(settings, document)
        folder.write(document, plugin, report_folder(settings, plugin), _profile(settings))
        documents.append(document)
    return documents


@attrs.define
class Reports:
    """The certificates of one run, each written when its plugin has been through everything."""

    settings: Settings
    started: float  #: ``time.monotonic()`` at the start of the run
    documents: dict[str, dict[str, Any]] = attrs.field(factory=dict)  #: by target
    #: Targets of plugins that have been through everything, whatever interrupts their writing.
    _done: set[str] = attrs.field(factory=set)

    def get_ready(self) -> None:
        """Make what every certificate takes, while there is nothing to write yet."""
        certificate.validator()
        page.template("report.html.j2")

    def take(
        self,
        certification: Certification,
        plugin: Plugin,
        results: Mapping[str, Iterable[RuleResult]],
    ) -> None:
        """Write the certificate of a plugin if nothing of it is left to run."""
        if certification.finished(plugin):
            self.finish(plugin, results, certification.contexts)

    def finish(
        self,
        plugin: Plugin,
        results: Mapping[str, Iterable[RuleResult]],
        contexts: Mapping[str, Mapping[str, Any]],
    ) -> None:
        """Write the certificate of a plugin of which nothing is left to run."""
        self._done.add(plugin.target)
        self.write([plugin], results, contexts)

    def write(
        self,
        plugins: Sequence[Plugin],
        results: Mapping[str, Iterable[RuleResult]],
        contexts: Mapping[str, Mapping[str, Any]],
        *,
        interrupted: bool = False,
    ) -> list[dict[str, Any]]:
        """Write the certificates that are not written yet; return those of these plugins."""
        for plugin in plugins:
            if plugin.target not in self.documents:
                (self.documents[plugin.target],) = write_reports(
                    self.settings,
                    [plugin],
                    results,
                    contexts,
                    started=self.started,
                    interrupted=interrupted and plugin.target not in self._done,
                )
        return [self.documents[plugin.target] for plugin in plugins]


def explained(error: Exception) -> str:
    """Return the sentence for what kept the harness from its work."""
    if isinstance(error, HarnessError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        of = f": {error.filename}" if error.filename else ""
        return f"the run could not be finished: {error.strerror}{of}."
    frame = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(frame.filename).name}:{frame.lineno}"
    said = (str(error).splitlines() or [""])[0]
    return f"the harness failed: {type(error).__name__}: {said} ({where}); please report this."


def status(documents: Sequence[Mapping[str, Any]]) -> ExitStatus:
    """Return the exit status of a run that ended with these certificates: the worst one's."""
    return worst(baseline.status(document) for document in documents)
