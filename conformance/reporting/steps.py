# SPDX-License-Identifier: Apache-2.0
"""A counterexample as a table of steps, for terminals and pages alike."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import attrs

from conformance.counterexample.source import call, decoded, flat, keywords, literal


@attrs.frozen
class Note:
    """What one request carries, or what one name in the table stands for."""

    head: str
    says: str
    tail: str = ""


@attrs.frozen
class Steps:
    """What was done to the plugin, step by step."""

    columns: tuple[str, ...]  #: the first one holds numbers
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[Note, ...] = ()
    detail: str = ""  #: where it goes wrong, if the sentence about the failure does not say it
    remark: str = ""
    long: bool = False  #: whether the last column and the notes are cut where lines are short


def of(counterexample: Mapping[str, Any] | None) -> Steps | None:
    """Return the table of a counterexample, or None where it has no steps."""
    if counterexample is None:
        return None
    if table := counterexample.get("table"):
        return Steps(tuple(table["columns"]), tuple(map(tuple, table["rows"])))
    drawn = {"history": _history, "traffic": _traffic, "prompt": _prompt}.get(
        counterexample["kind"]
    )
    return drawn(counterexample) if drawn else None


def _history(counterexample: Mapping[str, Any]) -> Steps:
    trouble = counterexample["trouble"]
    rows = []
    for line in folded(counterexample["lines"], trouble["step"]):
        at_fault = trouble["row"] if line["step"] == trouble["step"] else None
        after = " ".join(
            f"[{name}]" if row == at_fault else name for row, name in enumerate(line["rows"])
        )
        rows.append((line["number"], line["events"], line["update"], after or "-"))
    used = [tuple(choice) for choice in counterexample.get("used", [])]
    notes = []
    for entry in counterexample["parameters"]:
        if tuple(entry["choice"]) in used:
            kind, index = entry["choice"]
            values = keywords(decoded(entry["keywords"]))
            notes.append(Note(f"{kind}[{index}]", flat(call("SamplingParams", *values))))
    return Steps(
        ("step", "what happens", counterexample.get("told", "BatchUpdate"), "rows after"),
        tuple(rows),
        tuple(notes),
        detail=_detail(trouble),
    )


def _traffic(counterexample: Mapping[str, Any]) -> Steps:
    together = _delivered_together(counterexample["lines"])
    if len(counterexample["requests"]) > _CROWD:
        together = _crowded(together, counterexample["trouble"].get("request"))
    rows = [
        (line["number"], line["request"], line["what"], line["then"] or "-") for line in together
    ]
    notes = []
    requests = counterexample["requests"]
    if len(requests) > _CROWD:
        about = counterexample["trouble"].get("request")
        requests = [each for each in requests if each["name"] == about]
    for request in requests:
        kind = "" if request["valid"] else ", invalid"
        data = flat(literal(decoded(request["data"])))
        notes.append(Note(request["name"], data, f", id {request['id']!r}{kind}"))
    awaited = "served with pre_process_async and post_process_async"
    return Steps(
        ("move", "request", "what happens", "then"),
        tuple(rows),
        tuple(notes),
        remark=awaited if counterexample["awaited"] else "",
        long=True,
    )


def _prompt(counterexample: Mapping[str, Any]) -> Steps:
    rows = []
    for line in counterexample["lines"]:
        name = f"[{line['item']}]" if line["here"] else line["item"]
        counts = (line.get(key, "-") if line["item"] else "" for key in _OF_ITEMS)
        rows.append((name, line["what"], *counts))
    options = counterexample["options"]
    notes = (Note("mm_processor_kwargs", flat(literal(options))),) if options else ()
    return Steps(("item", "what", *_OF_ITEMS), tuple(rows), notes)


#: What is told of each item of a prompt.
_OF_ITEMS = ("where", "placeholders", "rows")


_COMPARED = "is {:.5g}, expected {:.5g}"

#: Kinds of trouble with a row that no token can be sampled from.
_UNSAMPLED = ("nan", "infinite", "no-token")


def _detail(trouble: Mapping[str, Any]) -> str:
    """Say which row differs, in which tokens."""
    if trouble["request"] is None or trouble["row"] is None:
        return f"in step {trouble['step']}"
    # What no token can be sampled from is told by what it was: no other row is expected of it.
    says = "was {1:.5g} and is {0:.5g}" if trouble["kind"] in _UNSAMPLED else _COMPARED
    tokens = "; ".join(
        f"token {token} {says.format(float(got), float(other))}"
        for token, got, other in trouble["tokens"]
    )
    where = f"in step {trouble['step']}, row {trouble['row']}, request {trouble['request']}"
    return f"{where}: {tokens}" if tokens else where


#: Case files call it so when an output arrives.
_DELIVERED = "output delivered"


def _delivered_together(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return numbered lines; outputs in a row that their request only waits on are one line."""
    shown: list[dict[str, Any]] = []
    for number, line in enumerate(lines):
        # Certificates of earlier releases say it in words only: they show each line by itself.
        idle = line.get("do") == _DELIVERED and line["waits"] > 0
        last = shown[-1] if shown else None
        if idle and last and last["idle"] and last["request"] == line["request"]:
            last["idle"].append(line["output"])
            last["number"] = f"{last['first']}-{number}"
            last["what"] = f"outputs {_ranges(last['idle'])} arrive"
            last["then"] = line["then"]
        else:
            idle_outputs = [line["output"]] if idle else []
            shown.append({**line, "number": str(number), "first": number, "idle": idle_outputs})
    return shown


#: A history of more requests than these is a crowd, of which not each has a line of its own.
_CROWD = 12


def _crowded(lines: Sequence[dict[str, Any]], request: str | None) -> list[dict[str, Any]]:
    """Return one line for a crowd that arrives, and those of the request that it is about."""
    shown: list[dict[str, Any]] = []
    for arrives, found in groupby(lines, lambda line: line["what"] == "arrives"):
        each = list(found)
        if arrives and len(each) > _CROWD:
            first, last = each[0], each[-1]
            each = [
                {
                    **last,
                    "number": f"{first['number']}-{last['number']}",
                    "request": f"{first['request']} to {last['request']}",
                    "what": "arrive",
                    "then": "all wait",
                }
            ]
        shown += [line for line in each if arrives or request in (None, line["request"])]
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
        idle = line.get("quiet", False) and line["step"] != last
        if idle and shown and shown[-1]["idle"]:
            shown[-1]["number"] = f"{shown[-1]['step']}-{line['step']}"
        else:
            shown.append({**line, "number": str(line["step"]), "idle": idle})
    return shown
