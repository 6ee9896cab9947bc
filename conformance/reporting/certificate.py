# SPDX-License-Identifier: Apache-2.0
"""The certificate: the result for one plugin, as data.

Everything a person sees is drawn from this document, and it holds no verdict
that :func:`conformance.verdict.decide` did not give.
"""

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import attrs
import jsonschema

from conformance import RULE_SET, __version__
from conformance.configuration import table
from conformance.generations import named
from conformance.interface import Generation
from conformance.plugin.files import import_path
from conformance.plugin.target import Plugin
from conformance.rules import Evidence, Rule
from conformance.settings import Settings, UsageError
from conformance.verdict import Conclusion, RuleResult, RuleVerdict, Verdict, combine, decide

SCHEMA_VERSION = 1

FILE_NAME = "certificate.json"


def build(
    plugin: Plugin,
    results: Sequence[RuleResult],
    *,
    settings: Settings,
    context: Mapping[str, Any],
    seconds: float | None = None,
    finished: str | None = None,
    interrupted: bool = False,
) -> dict[str, Any]:
    """Build the certificate of one plugin.

    Args:
        plugin: the class under test.
        results: what was found, in any order; rules that were asked for and have no result are
            ``not-verified``.
        settings: the options of the run.
        context: versions and effective profile, as the plugin's trial told them.
        seconds: wall time of the whole run.
        finished: when it ended, in UTC, as ISO 8601 writes it.
        interrupted: whether the run was stopped before its end.

    """
    generation = named(plugin.generation)
    profile = context.get("profile")
    rows = _configurations(plugin, settings, context)
    verdicts = _verdicts(generation, [*results, *_of_rows(generation, rows)], settings)
    return {
        "schema": SCHEMA_VERSION,
        "verdict": decide(verdicts).value,
        "interrupted": interrupted,
        "plugin": {
            "target": plugin.target,
            "interface": plugin.interface,
            "generation": plugin.generation,
            "version": plugin.version,
            "digest": plugin.digest,
            "source": import_path(plugin.path),
        },
        "environment": {
            key: context.get(key)
            for key in ("vllm", "torch", "python", "platform", "device", "runner", "model")
        }
        # Who served the plugin, by evidence, where that is not the installed vLLM alone.
        | {key: value for key, value in context.items() if key.startswith("host_")},
        "harness": {"version": __version__, "rules": RULE_SET},
        "run": {
            "evidence": [evidence.value for evidence in settings.evidence],
            "budget": settings.budget.value,
            "seed": settings.seed,
            "server_url": settings.server_url,
            "seconds": seconds,
            "finished": finished,
        },
        "profile": profile,
        "notes": list(context.get("notes", ())),
        **({"lines": context["lines"]} if context.get("lines") else {}),
        "rules": [_rule(verdict, generation) for verdict in verdicts],
        **({"configurations": rows} if settings.configurations else {}),
        "not_asked": [
            rule.id for rule in generation.rules if not _asked(rule, generation, settings)
        ],
    }


def conclusion(certificate: Mapping[str, Any]) -> Conclusion:
    """Return the verdict of a certificate."""
    return Conclusion(certificate["verdict"])


def write(certificate: Mapping[str, Any], folder: Path) -> Path:
    """Check a certificate against its schema and write it, whole or not at all.

    Raises:
        jsonschema.ValidationError: the harness built a certificate that its schema refuses.

    """
    _check(certificate)
    path = folder / FILE_NAME
    write_whole(path, json.dumps(certificate, indent=2, ensure_ascii=False) + "\n")
    return path


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old one or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
        # mkstemp makes files that only their owner can read.
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def under(directory: Path) -> list[tuple[Path, dict[str, Any]]]:
    """Read every certificate under a folder, with its path.

    Raises:
        UsageError: there is none, or one is damaged.

    """
    paths = sorted(directory.rglob(FILE_NAME))
    if not paths:
        raise UsageError(f"there is no {FILE_NAME} under {directory}.")
    return [(path, read(path)) for path in paths]


def read(path: Path) -> dict[str, Any]:
    """Read one certificate.

    Raises:
        UsageError: it is not there, no JSON, or its schema refuses it.

    """
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        _check(document)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, jsonschema.ValidationError) as error:
        reason = getattr(error, "message", str(error))
        raise UsageError(f"{path} is no certificate: {reason}.") from None
    return document


def _check(document: Mapping[str, Any]) -> None:
    """Raise :class:`jsonschema.ValidationError` unless a document is a certificate."""
    error = jsonschema.exceptions.best_match(validator().iter_errors(document))
    if error is not None:
        raise error


@cache
def validator() -> jsonschema.protocols.Validator:
    """Return what checks certificates; to make it takes longer than to check one."""
    return jsonschema.validators.validator_for(schema())(schema())


@cache
def schema() -> dict[str, Any]:
    """Return the JSON Schema of certificates."""
    text = resources.files(__package__).joinpath("certificate.schema.json").read_text("utf-8")
    document: dict[str, Any] = json.loads(text)
    return document


def _configurations(
    plugin: Plugin, settings: Settings, context: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return a row for every configuration that was asked for, judged or not."""
    judged = {row["name"]: row for row in context.get("configurations", ())}
    return [
        {**row, "seconds": round(row["seconds"], 3)}
        if (row := judged.get(each.name))
        else {
            "name": each.name,
            "about": each.about,
            "verdict": Verdict.NOT_VERIFIED.value,
            "requests": 0,
            "acted": 0,
            "seconds": 0.0,
            "message": "it was not run",
        }
        for each in table.chosen(settings.configurations, plugin.generation)
    ]


def _asked(rule: Rule, generation: Generation, settings: Settings) -> list[Evidence]:
    """Return the evidence that is to show a rule; that about configurations needs some."""
    if rule.id == generation.configured:
        chosen = table.chosen(settings.configurations, generation.name)
        return list(rule.evidence) if chosen else []
    return [evidence for evidence in rule.evidence if evidence in settings.evidence]


def _of_rows(generation: Generation, rows: Sequence[Mapping[str, Any]]) -> list[RuleResult]:
    """Return what configurations say of the rule that is about them."""
    if generation.configured is None:
        return []
    return [
        RuleResult(
            generation.configured,
            Verdict(row["verdict"]),
            Evidence.OFFLINE,
            examples=row["requests"],
            acted=row["acted"],
            seconds=row["seconds"],
            message=f"{row['name']}: {row['message']}" if row["message"] else None,
        )
        for row in rows
    ]


def _verdicts(
    generation: Generation, results: Sequence[RuleResult], settings: Settings
) -> list[RuleVerdict]:
    verdicts = []
    for rule in generation.rules:
        asked = _asked(rule, generation, settings)
        if not asked:
            continue
        mine = [result for result in results if result.rule == rule.id]
        missing = [e for e in asked if e not in {result.evidence for result in mine}]
        # A rule that was shown in one place and not run in another was not wholly shown.
        verdicts.append(combine(rule.id, rule.level, mine, missing=missing))
    return verdicts


def _rule(verdict: RuleVerdict, generation: Generation) -> dict[str, Any]:
    case = verdict.rule if verdict.counterexample else None
    return {
        "id": verdict.rule,
        "title": generation.rule(verdict.rule).title,
        "level": verdict.level.value,
        "verdict": verdict.verdict.value,
        "evidence": [evidence.value for evidence in verdict.evidence],
        "examples": verdict.examples,
        "acted": verdict.acted,
        "seconds": round(verdict.seconds, 3),
        "message": verdict.message,
        **({"waits_for": list(verdict.waits_for)} if verdict.waits_for else {}),
        **({"cause": attrs.asdict(verdict.cause)} if verdict.cause else {}),
        "case": case,
        "counterexample": verdict.counterexample,
    }
