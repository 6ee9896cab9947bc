# SPDX-License-Identifier: Apache-2.0
"""Plugins of a front end under configurations of servers: the server's rules, asked there again.

Logits processors are compared token by token; an IO processor and a hook have answers of their
own, which the rules of server evidence judge already.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs

from conformance.configuration.judgement import Row
from conformance.configuration.table import Configuration, unsupported
from conformance.generations import named
from conformance.plugin import profile
from conformance.plugin.target import Plugin
from conformance.rules import Evidence
from conformance.settings import Settings, UsageError
from conformance.verdict import RuleResult, Verdict
from conformance.worker import Job, JobDied, JobHung

#: Seconds in which a rule is judged, the first of them with the start of a server.
LIMIT = 420.0

_TRIAL = "conformance.worker.jobs:trial"


def judged(
    plugin: Plugin,
    settings: Settings,
    configuration: Configuration,
    *,
    fork: Callable[..., Job],
    folder: Path,
    model: str,
) -> Row:
    """Return what the rules of server evidence say under one configuration.

    Raises:
        UsageError: the profile of the plugin is wrong.

    """
    own = folder / f"configuration-{configuration.name}"
    own.mkdir(parents=True, exist_ok=True)
    # What an earlier run wrote there is of another plugin.
    scratch = tempfile.TemporaryDirectory(prefix="vllm-conformance-")
    generation = named(plugin.generation)
    asked = attrs.evolve(
        settings,
        server_url=None,
        server_arguments=configuration.served(Path(scratch.name)),
        encoding=configuration.encoding(Path(scratch.name)),
        ranks=configuration.ranks,
        front_ends=configuration.front_ends,
        crowd=configuration.clients or None,
    )
    section = profile.section_of(plugin, settings)
    refused = configuration.name in unsupported(section, plugin.generation)
    loading = generation.loading_rule
    rules = [each.id for each in generation.rules if Evidence.SERVER in each.evidence]
    if refused:
        rules = [loading]
    arguments = {
        "plugin": plugin,
        "evidence": Evidence.SERVER,
        "settings": asked,
        "model": model,
        "folder": str(own),
        "rules": frozenset(rules),
    }
    job = fork(_TRIAL, arguments, own / "trial.log")
    results: list[RuleResult] = []
    try:
        for rule in rules:
            answer = job.ask(rule, limit=LIMIT)
            if isinstance(answer, UsageError):
                raise answer
            results.append(answer)
        told = configuration.front_ends > 1 or configuration.preempts
        context = job.ask("context", limit=LIMIT) if told else {}
        job.leave()
    except JobDied as error:
        return _row(configuration, results, Verdict.FAIL, f"its process ended: {error}")
    except JobHung as error:
        return _row(configuration, results, Verdict.FAIL, f"it {error}")
    finally:
        job.close()
        scratch.cleanup()
    if refused:
        return _row(configuration, results, *_refused(configuration, results[0]))
    row = _judge(configuration, results, (loading, generation.survival_rule))
    seen = context.get("front_ends", 1)
    if row.verdict is Verdict.PASS and seen < configuration.front_ends:
        of = f"{seen} of {configuration.front_ends} front ends"
        why = f"it cannot run here: {of} took every request"
        return attrs.evolve(row, verdict=Verdict.NOT_APPLICABLE, message=why)
    if row.verdict is Verdict.PASS and configuration.preempts and not context.get("preemptions"):
        why = "it cannot run here: no request was preempted"
        return attrs.evolve(row, verdict=Verdict.NOT_APPLICABLE, message=why)
    return row


def _refused(configuration: Configuration, started: RuleResult) -> tuple[Verdict, str]:
    """Judge a configuration that the plugin is said not to support, by the rule of loading."""
    if started.verdict is Verdict.FAIL:
        return Verdict.PASS, f"refused at start, as declared: {started.message}"
    if started.verdict is not Verdict.PASS:
        return Verdict.NOT_APPLICABLE, started.message or "no server starts without the plugin"
    what = "declared as not supported, and yet it is not refused at the start"
    told = f"the server starts with {configuration.name}; the constructor is to raise"
    return Verdict.FAIL, f"{what}: {told}"


def _judge(
    configuration: Configuration, results: Sequence[RuleResult], vital: Sequence[str]
) -> Row:
    loading = vital[0]
    for verdict in (Verdict.FAIL, Verdict.ERROR):
        if found := next((each for each in results if each.verdict is verdict), None):
            return _row(configuration, results, verdict, f"{found.rule}: {found.message}")
    for each in results:
        # Neither does a server start without the plugin.
        if each.rule in vital and each.verdict is Verdict.NOT_VERIFIED:
            return _row(configuration, results, Verdict.NOT_APPLICABLE, each.message)
    unseen = [each for each in results if each.verdict is Verdict.NOT_VERIFIED]
    why = f"{unseen[0].rule}: {unseen[0].message}" if unseen else None
    shown = any(each.verdict is Verdict.PASS and each.rule != loading for each in results)
    return _row(configuration, results, Verdict.PASS if shown else Verdict.NOT_VERIFIED, why)


def _row(
    configuration: Configuration,
    results: Sequence[RuleResult],
    verdict: Verdict,
    message: str | None,
) -> Row:
    return Row(
        name=configuration.name,
        about=configuration.about,
        verdict=verdict,
        requests=sum(each.examples for each in results),
        acted=sum(each.acted for each in results),
        seconds=sum(each.seconds for each in results),
        message=message,
    )
