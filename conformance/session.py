# SPDX-License-Identifier: Apache-2.0
"""From a finished certification to its report: certificates, files, exit status."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from conformance import baseline
from conformance.reporting import certificate, folder
from conformance.runner import folder_name
from conformance.verdict import ExitStatus, worst

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from conformance.settings import Settings
    from conformance.target import Plugin
    from conformance.verdict import RuleResult


def report_folder(settings: Settings, plugin: Plugin) -> Path:
    """Return the folder of a plugin's certificate."""
    return settings.directory / settings.report / folder_name(plugin.target)


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
        folder.write(document, plugin, report_folder(settings, plugin))
        documents.append(document)
    return documents


def status(documents: Sequence[Mapping[str, Any]]) -> ExitStatus:
    """Return the exit status of a run that ended with these certificates: the worst one's."""
    return worst(baseline.status(document) for document in documents)
