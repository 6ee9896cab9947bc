# SPDX-License-Identifier: Apache-2.0
"""Baselines: failures that are known, so that a run fails for new ones only.

A baseline has teeth: every entry says why it is there, may expire, and fails the run when the
rule it is about holds after all. It never makes a plugin conformant: the certificate says what
it would say without one, and which of its failures were known.

    [[known]]
    rule = "LB-11"
    reason = "resumed requests start again; rewritten in 2.0"
    issue = "https://github.com/me/mine/issues/12"   # optional
    expires = 2027-03-01                             # optional
    plugin = "mine.processors:*"                     # optional: targets, as a shell pattern
"""

from __future__ import annotations

import datetime as dt
import tomllib
from collections.abc import Mapping
from enum import StrEnum
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

import attrs

from conformance.generations import find_rule
from conformance.rules import Level, nearest
from conformance.settings import Settings, UsageError
from conformance.verdict import Conclusion, ExitStatus, Verdict, exit_status

FORM = '[[known]] with rule = "LB-11" and reason = "..."'


class State(StrEnum):
    """What an entry of a baseline turned out to be for one plugin."""

    KNOWN = "known"  #: the rule is broken, as the entry says
    STALE = "stale"  #: the rule holds: the entry has to go
    EXPIRED = "expired"  #: the rule is broken, and the time that was given for it is over


@attrs.frozen
class Entry:
    """One known failure."""

    rule: str
    reason: str
    issue: str | None = None
    expires: dt.date | None = None
    plugin: str = "*"  #: shell pattern for targets

    def is_about(self, target: str) -> bool:
        """Tell whether the entry is about a plugin."""
        return fnmatch(target, self.plugin) or target.endswith(self.plugin)

    def is_over(self) -> bool:
        """Tell whether the entry has expired; its last day counts, anywhere on earth."""
        return self.expires is not None and self.expires < _today()


def entries(settings: Settings) -> tuple[Entry, ...]:
    """Return the entries of a run's baseline; none where it has no baseline.

    Raises:
        UsageError: see :func:`load`.

    """
    return load(settings.directory / settings.baseline) if settings.baseline else ()


def known(settings: Settings, rule: str, target: str) -> Entry | None:
    """Return the entry that knows of a failure, unless it has expired."""
    for entry in entries(settings):
        if entry.rule == rule and entry.is_about(target) and not entry.is_over():
            return entry
    return None


@cache
def load(path: Path) -> tuple[Entry, ...]:
    """Read a baseline.

    Raises:
        UsageError: there is no such file, or it says something that a baseline cannot.

    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"--baseline {path}: {error.strerror or error}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"--baseline {path} is no TOML: {error}.") from None
    for key in document:
        if key != "known":
            raise UsageError(
                f"--baseline {path}: {key!r} is unknown, it takes {FORM}." + nearest(key, ["known"])
            )
    tables = document.get("known", [])
    if not isinstance(tables, list):
        raise UsageError(f"--baseline {path}: write {FORM}, one for each known failure.")
    found = tuple(_entry(f"--baseline {path}: entry {n}", t) for n, t in enumerate(tables, 1))
    seen = set[tuple[str, str]]()
    for entry in found:
        if (entry.rule, entry.plugin) in seen:
            raise UsageError(f"--baseline {path}: {entry.rule} is there twice; keep one.")
        seen.add((entry.rule, entry.plugin))
    return found


def _entry(where: str, table: object) -> Entry:
    if not isinstance(table, dict):
        raise UsageError(f"{where} is no table: write {FORM}.")
    fields = attrs.fields_dict(Entry)
    for key, value in table.items():
        if key not in fields:
            raise UsageError(f"{where}: {key!r} is unknown." + nearest(key, fields))
        wanted = dt.date if key == "expires" else str
        if not isinstance(value, wanted) or isinstance(value, dt.datetime):
            kind = "a date such as 2027-03-01" if key == "expires" else "a string"
            raise UsageError(f"{where}: {key} must be {kind}, not {value!r}.")
    for key in ("rule", "reason"):
        if not table.get(key):
            raise UsageError(f"{where} has no {key}: write {FORM}.")
    try:
        find_rule(table["rule"])
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None
    return Entry(**table)


def _today() -> dt.date:
    return dt.datetime.now(tz=dt.timezone(dt.timedelta(hours=-12))).date()


def marks(settings: Settings, certificate: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Compare a certificate with a run's baseline; return the entries about it as JSON values.

    Entries for rules that were not asked for, or could not be judged, are left alone.
    """
    judged = {rule["id"]: Verdict(rule["verdict"]) for rule in certificate["rules"]}
    found = []
    for entry in entries(settings):
        verdict = judged.get(entry.rule)
        if verdict is None or not entry.is_about(certificate["plugin"]["target"]):
            continue
        if verdict is Verdict.FAIL:
            state = State.EXPIRED if entry.is_over() else State.KNOWN
        elif verdict in (Verdict.PASS, Verdict.NOT_APPLICABLE):
            state = State.STALE
        else:
            continue
        expires = entry.expires.isoformat() if entry.expires else None
        found.append(
            {
                "rule": entry.rule,
                "state": state.value,
                "reason": entry.reason,
                "issue": entry.issue,
                "expires": expires,
            }
        )
    return found


def sentence(mark: Mapping[str, Any]) -> str:
    """Return what a person is told about an entry."""
    rule, reason = mark["rule"], mark["reason"]
    issue = f" ({mark['issue']})" if mark["issue"] else ""
    if mark["state"] == State.STALE:
        return f"{rule} holds now, which fails the run: remove its entry ({reason})"
    if mark["state"] == State.EXPIRED:
        return (
            f"{rule} is still broken, and its entry expired on {mark['expires']}: {reason}{issue}"
        )
    until = f", until {mark['expires']}" if mark["expires"] else ""
    return f"{rule} is known to fail{until}: {reason}{issue}"


def status(certificate: Mapping[str, Any]) -> ExitStatus:
    """Return the exit status for one certificate: known failures do not fail a run.

    A run with nothing but known failures, and what cannot be judged because of them, ends with 0;
    stale and expired entries end it with 1, whatever the plugin's verdict is.
    """
    states = {mark["rule"]: mark["state"] for mark in certificate.get("baseline") or ()}
    verdict = Conclusion(certificate["verdict"])
    if {State.STALE.value, State.EXPIRED.value} & set(states.values()):
        return ExitStatus.NON_CONFORMANT
    if verdict is not Conclusion.NON_CONFORMANT or not states:
        return exit_status([verdict])
    rest = [
        Verdict(rule["verdict"])
        for rule in certificate["rules"]
        if rule["level"] == Level.MUST and not _excused(rule, states)
    ]
    if Verdict.FAIL in rest:
        return ExitStatus.NON_CONFORMANT
    if Verdict.ERROR in rest:
        return ExitStatus.HARNESS_FAILED
    return ExitStatus.INCOMPLETE if Verdict.NOT_VERIFIED in rest else ExitStatus.CONFORMANT


def _excused(rule: Mapping[str, Any], states: Mapping[str, str]) -> bool:
    """Tell whether a rule is known to fail, or waits for nothing but such rules."""
    if rule["verdict"] == Verdict.NOT_VERIFIED:
        waiting = rule.get("waits_for", ())  # certificates of earlier releases do not have it
        return bool(waiting) and set(waiting) <= set(states)
    return rule["id"] in states
