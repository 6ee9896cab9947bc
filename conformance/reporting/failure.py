# SPDX-License-Identifier: Apache-2.0
"""A failure as a person reads it, always in the same order.

Rule; what the plugin did; what was expected; the smallest history; what to check first;
the historical defect it resembles; the command that replays it, and the program that shows it.
"""

from __future__ import annotations

import io
import shlex
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table

from conformance.counterexample import FIELDS
from conformance.generations import named
from conformance.reporting import steps
from conformance.rules import Reason
from conformance.verdict import Verdict
from conformance.watching.comparison import cut, cut_apart

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from conformance.plugin.target import Plugin
    from conformance.rules import Rule, Source
    from conformance.verdict import RuleResult

WIDTH = 100

#: The kinds of trouble that another request notices: its row is not the one that it gets alone.
_ROWS = ("row", "opt-out")


def told(plugin: Plugin, result: RuleResult, case: str, *, width: int = WIDTH) -> str:
    """Return what a person is told of a rule that a plugin broke, or that the harness failed on."""
    if result.verdict is Verdict.ERROR:
        return f"the harness failed on {result.rule}: {result.message}; please report this."
    return render(
        named(plugin.generation).rule(result.rule),
        message=result.message,
        evidence=[result.evidence.value],
        counterexample=result.counterexample,
        case=case if result.counterexample else None,
        width=width,
        loaded=plugin.broken is None,
    )


def render(
    rule: Rule,
    *,
    message: str | None,
    evidence: Sequence[str],
    counterexample: Mapping[str, Any] | None,
    case: str | None = None,
    width: int = WIDTH,
    loaded: bool = True,
) -> str:
    """Return the whole failure as plain text.

    Args:
        rule: the rule that is broken.
        message: what the plugin did.
        evidence: where it was seen.
        counterexample: the history or the calls that show it, when there are some.
        case: path of the case file, for the replay command; the program lies beside it.
        width: columns of the terminal.
        loaded: whether the class could be imported; if not, the advice about it is left out.

    """
    lines = [f"{rule.id} {rule.title} ({rule.level}, {', '.join(evidence)})", ""]
    lines += _paragraph("Did", message or "broke the rule", width)
    table = steps.of(counterexample)
    if table and table.detail:
        lines += _paragraph("", table.detail, width)
    lines += _paragraph("Expected", rule.statement, width)
    if table:
        lines += ["", *_steps(table, width)]
    request = (counterexample or {}).get("request")
    if request and request["curl"]:
        lines += ["", *_paragraph("Send", request["curl"], None)]
        if size := request.get("vocabulary"):
            said = f"{size} is the vocabulary size of the model here; send that of yours"
            lines += _paragraph("", f"({said})", width)
    lines += ["", *(_paragraph("Check", rule.hint, width) if loaded else ())]
    if source := _reason(rule, counterexample):
        harm = source.reason not in (None, Reason.SENTENCE)
        why = f"{source.reason}. " if harm else ""
        lines += _paragraph(
            "Harm" if harm else "Source", f"{why}{source.where}: {source.says}", width
        )
    if rule.resembles and loaded:
        lines += _paragraph("Resembles", ", ".join(rule.resembles), width)
    if case:
        lines += _paragraph("Replay", f"vllm-conformance replay {shlex.quote(case)}", None)
    if case and counterexample and FIELDS & counterexample.keys():
        path = shlex.quote(case.removesuffix(".json") + ".py")
        lines += _paragraph("Program", f"python {path}", None)
    return "\n".join(lines)


def _reason(rule: Rule, counterexample: Mapping[str, Any] | None) -> Source | None:
    """Return the source that says why the rule is kept: of its harms the one that was seen."""
    sources = list(rule.reasons or rule.sources)
    if (counterexample or {}).get("trouble", {}).get("kind") in _ROWS:
        sources.sort(key=lambda source: source.reason is not Reason.ANSWERS)
    return next(iter(sources), None)


def _steps(table: steps.Steps, width: int) -> list[str]:
    """Return a table of steps, and what its names stand for."""
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for number, column in enumerate(table.columns):
        drawn.add_column(column, justify="left" if number else "right")
    taken = [
        max(len(cell) for cell in cells) for cells in zip(table.columns, *table.rows, strict=True)
    ]
    # What is left of a line, with two columns of space on either side of each cell.
    room = max(20, width - sum(taken[:-1]) - 12) if table.long else None
    for row in table.rows:
        cells = (*row[:-1], row[-1] if room is None else cut(row[-1], room))
        # Square brackets are rich's markup.
        drawn.add_row(*(cell.replace("[", r"\[") for cell in cells))
    lines = _text(drawn, width)
    if table.remark:
        lines.append(f"  ({table.remark})")
    said = [note.says for note in table.notes]
    if table.long and said:
        left = width - max(len(note.head) + len(note.tail) for note in table.notes) - len("   = ")
        said = cut_apart(said, left)
    for note, says in zip(table.notes, said, strict=True):
        lines.append(f"  {note.head} = {says}{note.tail}")
    return lines


def _paragraph(heading: str, text: str, width: int | None) -> list[str]:
    """Return a paragraph with a hanging heading; ``width`` None leaves commands whole."""
    head = f"{heading:<10}"
    if width is None:
        return [head + text]
    import textwrap

    lines: list[str] = []
    for part in text.splitlines() or [""]:
        lines += textwrap.wrap(part, max(40, width - len(head))) or [""]
    return [(head if index == 0 else " " * len(head)) + line for index, line in enumerate(lines)]


def _text(renderable: object, width: int) -> list[str]:
    stream = io.StringIO()
    Console(file=stream, width=width, color_system=None, legacy_windows=False).print(renderable)
    return [line.rstrip() for line in stream.getvalue().splitlines() if line.strip()]
