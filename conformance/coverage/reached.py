# SPDX-License-Identifier: Apache-2.0
"""What a plugin's files have of lines and branches, and which of them never ran."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from conformance.coverage.gaps import Gap, Line, branches, gaps, lines_of, of_others
from conformance.coverage.hints import Need, Sent, hints, said
from conformance.coverage.statements import Arm
from conformance.plugin.files import import_path

#: Lines around those that never ran in an excerpt.
_CONTEXT = 2


def spans(lines: Sequence[int], known: Sequence[int]) -> str:
    """Return lines as a person writes them: those that follow each other among all as a range."""
    place = {line: number for number, line in enumerate(known)}
    runs: list[list[int]] = []
    for line in lines:
        if runs and place[line] == place[runs[-1][-1]] + 1:
            runs[-1].append(line)
        else:
            runs.append([line])
    return ", ".join(f"{run[0]}-{run[-1]}" if run[1:] else f"{run[0]}" for run in runs)


def document(
    ran: Mapping[str, Collection[int]],
    gone: Mapping[str, Collection[Arm]],
    profile: object,
    own: str | None = None,
) -> list[dict[str, Any]]:
    """Return what a certificate says of the lines of a plugin's files.

    Args:
        ran: the lines that ran, by file.
        gone: the ways that statements have gone and no line stands for, by file.
        profile: how the plugin was tried.
        own: name of the plugin's class, which the first file has.

    """
    sent = Sent.of(profile)
    found: list[dict[str, Any]] = []
    for path, lines in ran.items():
        first = own.partition(".")[0] if own and not found else None
        try:
            source = Path(path).read_text(encoding="utf-8")
            found.append(
                {"file": import_path(path), **_file(source, lines, gone[path], sent, first)}
            )
        except (OSError, SyntaxError, ValueError):
            continue
    return found


def _file(
    source: str, ran: Collection[int], gone: Collection[Arm], sent: Sent, own: str | None
) -> dict[str, Any]:
    """Return what there is to say of one file."""
    tree = ast.parse(source)
    without = of_others(source, ran, own)
    statements = lines_of(source, without)
    missed = gaps(source, ran, without, gone)
    known = [line.first for line in statements]
    never = sorted(line for gap in missed for line in gap.lines if not gap.way)
    partly = {line for gap in missed for line in gap.lines if gap.way}
    ways, taken = branches(source, ran, gone, without)
    return {
        "lines": len(known),
        "never": never,
        "says": spans(never, known),
        "branches": ways,
        "taken": taken,
        "why": [_why(gap, known, sent, tree) for gap in missed if gap.says],
        "source": _excerpt(source, statements, set(never), partly),
    }


def _why(gap: Gap, known: Sequence[int], sent: Sent, tree: ast.AST) -> dict[str, Any]:
    """Return why lines never ran, or a way was never gone."""
    found = hints(gap.decided, sent, tree)
    return {
        "lines": list(gap.lines),
        "where": spans(gap.lines, known),
        "branch": gap.way,
        "says": gap.says,
        "unsent": [hint.key for hint in found if hint.need is Need.KEY],
        "hints": [hint.document() for hint in found],
    }


def _excerpt(
    source: str, statements: Sequence[Line], never: Collection[int], partly: Collection[int]
) -> list[dict[str, Any]]:
    """Return the lines of a file that never ran, or not every way, with those around them."""
    missed, half = (
        {n for each in statements if each.first in of for n in range(each.first, each.last + 1)}
        for of in (never, partly)
    )
    near = {n + step for n in missed | half for step in range(-_CONTEXT, _CONTEXT + 1)}
    return [
        {"line": number, "text": text, "never": number in missed, "partly": number in half}
        for number, text in enumerate(source.splitlines(), 1)
        if number in near
    ]


def counts(file: Mapping[str, Any]) -> str:
    """Say of a file how many lines ran, and which never did."""
    said = f"{file['lines'] - len(file['never'])} of {file['lines']} lines ran"
    if file.get("branches"):  # older harnesses did not look
        said += f", and {file['taken']} of {file['branches']} branches"
    return said + (f"; never: {file['says']}" if file["never"] else "")


def sentence(why: Mapping[str, Any]) -> str:
    """Say why lines never ran, and what of the profile would reach them."""
    # Certificates of older harnesses know the keys alone.
    known = [{"need": Need.KEY, "key": key} for key in why["unsent"]]
    found = " or ".join(map(said, why.get("hints", known)))
    more = f": {found}" if found else ""
    return f"{why['where']}: {why['says']}{more}"
