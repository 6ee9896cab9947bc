# SPDX-License-Identifier: Apache-2.0
"""What all releases say, as data and in one table."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from conformance.matrix.session import Outcome, folder_name
from conformance.reporting import badge
from conformance.reporting.certificate import FILE_NAME, write_whole
from conformance.reporting.terminal import open_table
from conformance.rules import Level
from conformance.settings import folder_name as plugin_folder
from conformance.verdict import Conclusion, Verdict

JSON_NAME, MARKDOWN_NAME = "matrix.json", "matrix.md"

#: The verdict of a cell without a certificate.
UNANSWERED = "unanswered"

SIGNS = {
    Conclusion.CONFORMANT.value: ("✓", "green"),
    Conclusion.NON_CONFORMANT.value: ("✗", "bold red"),
    Conclusion.INCOMPLETE.value: ("?", "yellow"),
    Conclusion.ERROR.value: ("!", "bold magenta"),
    UNANSWERED: ("-", "dim"),
}

LEGEND = (
    "✓ conformant, with MUSTs passed of those that apply; ✗ non-conformant, with the rules that "
    "fail; ? incomplete; ! the harness failed; - not certified"
)

#: Rules named in a cell; how many more there are is a number.
NAMED = 4


def build(outcomes: Sequence[Outcome], *, run: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a run found, as data."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    releases: list[dict[str, Any]] = []
    for outcome in outcomes:
        name = outcome.release.name
        known: Mapping[str, Any] = next((each["environment"] for each in outcome.certificates), {})
        releases.append(
            {"name": name, "distribution": outcome.distribution}
            | {key: known.get(key) for key in ("vllm", "torch", "python", "device")}
        )
        for document in outcome.certificates:
            if _unloaded(document) is None:
                row = _row(rows, document["plugin"]["target"], document["plugin"]["generation"])
                row["cells"][name] = _cell(document, folder_name(outcome.release))
    for outcome in outcomes:
        for target, cell in _without(outcome):
            # Under the class of the file that other releases found.
            members = [row for row in rows.values() if _within(row["target"], target)]
            for row in members or [_row(rows, target, None)]:
                row["cells"].setdefault(outcome.release.name, cell)
    return {
        "schema": 1,
        "run": dict(run),
        "releases": releases,
        "rows": list(rows.values()),
        "failures": list(_failures(outcomes)),
    }


def _row(
    rows: dict[tuple[str, str], dict[str, Any]], target: str, generation: str | None
) -> dict[str, Any]:
    return rows.setdefault(
        (target, generation or ""), {"target": target, "generation": generation, "cells": {}}
    )


def _cell(document: Mapping[str, Any], folder: str) -> dict[str, Any]:
    return {
        "verdict": document["verdict"],
        "musts": badge.musts(document),
        "failed": _named(document, Verdict.FAIL, Level.MUST),
        "advised": _named(document, Verdict.FAIL, Level.SHOULD),
        "open": _named(document, Verdict.NOT_VERIFIED, Level.MUST),
        "certificate": f"{folder}/{plugin_folder(document['plugin']['target'])}/{FILE_NAME}",
        "reason": _why_open(document),
    }


def _why_open(document: Mapping[str, Any]) -> str | None:
    """Return why the first MUST could not be shown of a plugin of which nothing is wrong."""
    if document["verdict"] != Conclusion.INCOMPLETE.value:
        return None
    opened = (
        rule["message"]
        for rule in document["rules"]
        if rule["verdict"] == Verdict.NOT_VERIFIED.value
        and rule["level"] == Level.MUST.value
        and not rule.get("waits_for")
    )
    return next(opened, None)


def _without(outcome: Outcome) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the targets that a release could not load, or has no certificate of."""
    nothing: dict[str, Any] = {"musts": None, "failed": [], "advised": [], "open": []}
    folder = folder_name(outcome.release)
    for document in outcome.certificates:
        if reason := _unloaded(document):
            yield document["plugin"]["target"], _cell(document, folder) | {"reason": reason}
    for missing in outcome.unanswered:
        cell = {"verdict": UNANSWERED, **nothing, "certificate": None, "reason": missing.reason}
        yield missing.target, cell


def _unloaded(document: Mapping[str, Any]) -> str | None:
    """Return why a plugin was not loaded: no rule but the one about loading was looked at.

    It fails, or the release lacks something and all others wait for it.
    """
    first, *others = document["rules"]
    if first["verdict"] == Verdict.FAIL.value:
        unloaded = all(rule["verdict"] == Verdict.NOT_VERIFIED.value for rule in others)
    else:
        waiting = all(rule.get("waits_for") == [first["id"]] for rule in others)
        unloaded = waiting and first["verdict"] == Verdict.NOT_VERIFIED.value
    return first["message"] if unloaded else None


def _within(target: str, asked: str) -> bool:
    return target == asked or target.startswith((f"{asked}:", f"{asked}@"))


def _named(document: Mapping[str, Any], verdict: Verdict, level: Level) -> list[str]:
    return [
        rule["id"]
        for rule in document["rules"]
        if rule["verdict"] == verdict.value and rule["level"] == level.value
    ]


def _failures(outcomes: Iterable[Outcome]) -> Iterator[dict[str, Any]]:
    """Yield the rules that failed: where, and what the first release says."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for outcome in outcomes:
        for document in outcome.certificates:
            target = document["plugin"]["target"]
            rules = () if _unloaded(document) else document["rules"]  # a cell has the reason
            for rule in rules:
                if rule["verdict"] == Verdict.FAIL.value:
                    entry = found.setdefault(
                        (target, rule["id"]),
                        {
                            "target": target,
                            "rule": rule["id"],
                            "title": rule["title"],
                            "level": rule["level"],
                            "message": rule["message"],
                            "releases": [],
                        },
                    )
                    entry["releases"].append(outcome.release.name)
    yield from found.values()


def write(matrix: Mapping[str, Any], folder: Path) -> None:
    """Write a matrix as data, and as a table for a CI step summary or a README."""
    text = json.dumps(matrix, indent=2, ensure_ascii=False)
    write_whole(folder / JSON_NAME, text + "\n")
    write_whole(folder / MARKDOWN_NAME, markdown(matrix))


def table(matrix: Mapping[str, Any]) -> Table:
    """Return the table for a terminal: a row for each plugin, a column for each release."""
    reasons = _reasons(matrix)
    names = _short([row["target"] for row in matrix["rows"]])
    result = open_table()
    result.add_column("plugin", overflow="fold")
    result.add_column("generation", no_wrap=True)
    for heading in _headings(matrix):
        result.add_column(heading.replace(" (", "\n("), no_wrap=True)
    for name, row in zip(names, matrix["rows"], strict=True):
        cells = [_text(row["cells"].get(each["name"]), reasons) for each in matrix["releases"]]
        styled = [Text(words, style=style) for words, style in cells]
        result.add_row(Text(name), row["generation"] or "", *styled)
    return result


def _short(targets: Sequence[str]) -> list[str]:
    """Return targets as a narrow column has them: the class alone, if no other is called so."""
    short = [target.rpartition(":")[2] for target in targets]
    known = Counter(short)
    return [one if known[one] == 1 else whole for one, whole in zip(short, targets, strict=True)]


def notes(matrix: Mapping[str, Any]) -> Text:
    """Return what the cells are short of: why something was not certified, and what fails."""
    text = Text()
    for reason, number in _reasons(matrix).items():
        text.append(f"({number}) {reason}\n", style="dim")
    for failure in matrix["failures"]:
        text.append(f"{failure['rule']} {failure['title']}", style="bold")
        text.append(f" ({', '.join(failure['releases'])}; {failure['target']})\n")
        text.append(f"    {_first_line(failure['message'])}\n")
    return text


def markdown(matrix: Mapping[str, Any]) -> str:
    """Return the table as Markdown."""
    reasons = _reasons(matrix)
    headings = ["plugin", "generation", *_headings(matrix)]
    lines = [_line(headings), _line(["---"] * len(headings))]
    for row in matrix["rows"]:
        cells = [_text(row["cells"].get(each["name"]), reasons)[0] for each in matrix["releases"]]
        lines.append(_line([f"`{row['target']}`", row["generation"] or "", *cells]))
    lines += ["", f"{LEGEND}.", ""]
    lines += [f"- ({number}) {_prose(reason)}" for reason, number in reasons.items()]
    lines += [
        f"- **{failure['rule']}** {_prose(failure['title'])} ({', '.join(failure['releases'])}; "
        f"`{failure['target']}`): {_prose(_first_line(failure['message']))}"
        for failure in matrix["failures"]
    ]
    return "\n".join(lines).rstrip() + "\n"


def _headings(matrix: Mapping[str, Any]) -> list[str]:
    """Return the releases as they were found, with the wheel; of an environment its folder."""
    headings = []
    for each in matrix["releases"]:
        name, found, wheel = each["name"], each["vllm"], each["distribution"]
        origin = wheel or (name if found and not found.startswith(name) else None)
        headings.append(f"{found or name} ({origin})" if origin else found or name)
    return headings


def _reasons(matrix: Mapping[str, Any]) -> dict[str, int]:
    """Return the reasons in cells, numbered."""
    found = [
        row["cells"][each["name"]]["reason"]
        for row in matrix["rows"]
        for each in matrix["releases"]
        if each["name"] in row["cells"]
    ]
    return {reason: number for number, reason in enumerate(dict.fromkeys(filter(None, found)), 1)}


def _text(cell: Mapping[str, Any] | None, reasons: Mapping[str, int]) -> tuple[str, str]:
    """Return a cell's words and style."""
    if cell is None:
        return "", ""
    sign, style = SIGNS[cell["verdict"]]
    words = [sign]
    if cell["failed"]:
        words += cell["failed"][:NAMED]
        if len(cell["failed"]) > NAMED:
            words.append(f"+{len(cell['failed']) - NAMED}")
    elif cell["musts"]:
        words.append(cell["musts"])
    if cell["advised"]:
        words.append(f"(advice: {' '.join(cell['advised'])})")
    if cell["reason"]:
        words.append(f"({reasons[cell['reason']]})")
    return " ".join(words), style


def _first_line(message: str | None) -> str:
    lines = (message or "").strip().splitlines()
    return lines[0] if lines else ""


def _prose(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
