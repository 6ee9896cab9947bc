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
from conformance.counterexample.source import call, decoded, flat, keywords, literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from conformance.rules import Rule

WIDTH = 100


def render(
    rule: Rule,
    *,
    message: str | None,
    evidence: Sequence[str],
    counterexample: Mapping[str, Any] | None,
    case: str | None = None,
    width: int = WIDTH,
) -> str:
    """Return the whole failure as plain text.

    Args:
        rule: the rule that is broken.
        message: what the plugin did.
        evidence: where it was seen.
        counterexample: the history or the calls that show it, when there are some.
        case: path of the case file, for the replay command; the program lies beside it.
        width: columns of the terminal.

    """
    lines = [f"{rule.id} {rule.title} ({rule.level}, {', '.join(evidence)})", ""]
    lines += _paragraph("Did", message or "broke the rule", width)
    is_history = counterexample is not None and counterexample["kind"] == "history"
    if counterexample and is_history and (detail := _detail(counterexample["trouble"])):
        lines += _paragraph("", detail, width)
    lines += _paragraph("Expected", rule.statement, width)
    if counterexample and is_history:
        lines += ["", *_history(counterexample, width)]
    elif counterexample and counterexample["kind"] == "traffic":
        lines += ["", *_traffic(counterexample, width)]
    lines += ["", *_paragraph("Check", rule.hint, width)]
    for source in rule.sources[:1]:
        lines += _paragraph("Source", f"{source.where}: {source.says}", width)
    if rule.resembles:
        lines += _paragraph("Resembles", ", ".join(rule.resembles), width)
    if case:
        lines += _paragraph("Replay", f"vllm-conformance replay {shlex.quote(case)}", None)
    if case and counterexample and FIELDS & counterexample.keys():
        path = shlex.quote(case.removesuffix(".json") + ".py")
        lines += _paragraph("Program", f"python {path}", None)
    return "\n".join(lines)


def _detail(trouble: Mapping[str, Any]) -> str:
    """Say which row differs, in which tokens."""
    if trouble["request"] is None or trouble["row"] is None:
        return f"in step {trouble['step']}"
    tokens = "; ".join(
        f"token {token} is {float(got):.5g}, expected {float(expected):.5g}"
        for token, got, expected in trouble["tokens"]
    )
    where = f"in step {trouble['step']}, row {trouble['row']}, request {trouble['request']}"
    return f"{where}: {tokens}" if tokens else where


def _history(counterexample: Mapping[str, Any], width: int) -> list[str]:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("step", justify="right")
    table.add_column("what happens")
    table.add_column("BatchUpdate")
    table.add_column("rows after")
    trouble = counterexample["trouble"]
    for line in folded(counterexample["lines"], trouble["step"]):
        rows = " ".join(
            f"[{name}]" if row == trouble["row"] and line["step"] == trouble["step"] else name
            for row, name in enumerate(line["rows"])
        )
        cells = (line["number"], line["events"], line["update"], rows or "-")
        # Square brackets are rich's markup.
        table.add_row(*(cell.replace("[", r"\[") for cell in cells))
    lines = _text(table, width)
    used = [tuple(choice) for choice in counterexample.get("used", [])]
    for entry in counterexample["parameters"]:
        if tuple(entry["choice"]) in used:
            kind, index = entry["choice"]
            values = keywords(decoded(entry["keywords"]))
            lines.append(f"  {kind}[{index}] = {flat(call('SamplingParams', *values))}")
    return lines


def _traffic(counterexample: Mapping[str, Any], width: int) -> list[str]:
    """Return what happened to requests as a table, and what each of them carries."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("move", justify="right")
    table.add_column("request")
    table.add_column("what happens")
    table.add_column("then")
    shown = _delivered_together(counterexample["lines"])
    # What is left of a line, with two columns of space on either side of each cell.
    taken = max(len(line["number"]) for line in shown), max(len(line["what"]) for line in shown)
    room = max(20, width - max(len("move"), taken[0]) - len("request") - taken[1] - 12)
    for line in shown:
        cells = (line["number"], line["request"], line["what"], _cut(line["then"] or "-", room))
        # Square brackets are rich's markup.
        table.add_row(*(cell.replace("[", r"\[") for cell in cells))
    lines = _text(table, width)
    if counterexample["awaited"]:
        lines.append("  (served with pre_process_async and post_process_async)")
    for request in counterexample["requests"]:
        kind = "" if request["valid"] else ", invalid"
        ending = f", id {request['id']!r}{kind}"
        data = flat(literal(decoded(request["data"])))
        head = f"  {request['name']} = "
        lines.append(head + _cut(data, width - len(head) - len(ending)) + ending)
    return lines


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: max(0, room - 4)] + " ..."


def _delivered_together(lines: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Return numbered lines; outputs in a row that their request only waits on are one line."""
    shown: list[dict[str, str]] = []
    for number, line in enumerate(lines):
        idle = line["what"].startswith("output ") and line["then"].startswith("waits for")
        last = shown[-1] if shown else {}
        if idle and last.get("idle") and last["request"] == line["request"]:
            outputs = [*last["idle"].split(), line["what"].split()[1]]
            last["number"] = f"{last['number'].partition('-')[0]}-{number}"
            last["what"] = f"outputs {_ranges(list(map(int, outputs)))} arrive"
            last |= {"idle": " ".join(outputs), "then": line["then"]}
        else:
            first = line["what"].split()[1] if idle else ""
            shown.append({**line, "number": str(number), "idle": first})
    return shown


def _ranges(numbers: Sequence[int]) -> str:
    """Return numbers in their order, those that follow each other as a range."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if run[1:] else str(run[0]) for run in runs)


def folded(lines: Sequence[Mapping[str, Any]], last: int) -> list[dict[str, Any]]:
    """Return the lines with uneventful steps in a row folded into one, but for the last."""
    shown: list[dict[str, Any]] = []
    for line in lines:
        idle = line["events"] == "advance" and line["update"] == "None" and line["step"] != last
        if idle and shown and shown[-1]["idle"]:
            first = shown[-1]["number"].partition("-")[0]
            shown[-1]["number"] = f"{first}-{line['step']}"
        else:
            shown.append({**line, "number": str(line["step"]), "idle": idle})
    return shown


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
