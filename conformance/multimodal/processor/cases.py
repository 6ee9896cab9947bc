# SPDX-License-Identifier: Apache-2.0
"""Failures as case files have them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from conformance.findings import Finding
from conformance.multimodal.processor import deployment
from conformance.multimodal.processor.bench import Bench
from conformance.multimodal.processor.prompts import Prompt, alone
from conformance.multimodal.processor.sameness import outline
from conformance.multimodal.processor.search import Broken
from conformance.watching.comparison import letter

#: The rule for which it counts what was processed before.
IN_A_ROW = "MM-36"
#: The rule for which it counts what the author's function said, and what the profile names.
MEANS, PROMISED = "MM-81", "MM-85"


def written(bench: Bench, rule: str, finding: Finding) -> dict[str, Any]:
    """Return a failure as data: enough to print it and to judge it again."""
    shared: dict[str, Any] = {"rule": rule, "seed": bench.seed, "model": bench.checkpoint}
    shared |= {deployment.KEY: dict(bench.engine)} if bench.engine else {}
    broken: Broken | None = (finding.case or {}).get("broken")
    if broken is None:
        document = bench.document()
        stock = {name: document[name] for name in ("items", "options", "invalid_options")}
        if rule == PROMISED:  # what is refused is not among the items that are taken
            for one in bench.promised:
                stock["items"].setdefault(one.modality, []).append(one.text)
        objects = any(one.value is not None for one in bench.stock.everything)
        return {
            "kind": "check",
            **shared,
            **stock,
            "objects": objects,
            "parameters": [],
            "invalid": [],
            **_program(bench, rule, (finding.case or {}).get("shown")),
        }
    prompt, trouble = broken.prompt, broken.trouble
    return {
        "kind": "prompt",
        **shared,
        **({"before": _before(bench)} if rule == IN_A_ROW else {}),
        **({"told": _told(bench, prompt)} if rule == MEANS else {}),
        "parts": [
            part if isinstance(part, int) else [part.modality, part.text] for part in prompt.parts
        ],
        "options": bench.stock.chosen(prompt.options),
        "backwards": prompt.backwards,
        "objects": _objects(prompt),
        "lines": _lines(bench, prompt, broken),
        "trouble": {
            "kind": "prompt",
            "message": trouble.message,
            "expected": trouble.expected,
            "actual": trouble.actual,
        },
        "parameters": [],
        **_program(bench, rule, prompt),
    }


def _told(bench: Bench, prompt: Prompt) -> list[list[Any]]:
    """Return what the author said of each item of a prompt, of data in outline."""
    told = []
    for one in prompt.items:
        if (count := bench.told.get((one, prompt.options))) is not None:
            data = bench.told_data.get((one, prompt.options), {})
            outlines = {name: outline(value) for name, value in data.items()}
            told.append([one.modality, one.text, count, outlines])
    return told


#: By rule, the function of :mod:`conformance.multimodal.processor.player` that shows its failures.
_PLAYED: Mapping[str, str] = {
    "MM-07": "refused",
    **dict.fromkeys(("MM-10", "MM-85"), "processed"),
    **dict.fromkeys(("MM-20", "MM-21", "MM-22", "MM-23", "MM-24", "MM-82"), "rows"),
    **dict.fromkeys(("MM-25", "MM-26"), "rows_alone"),
    **dict.fromkeys(("MM-32", "MM-33"), "alone"),
    IN_A_ROW: "after",
    "MM-83": "refused",
}


def _program(bench: Bench, rule: str, prompt: Prompt | None) -> dict[str, Any]:
    """Return what a program is made of, under its key; nothing where none can be."""
    makes = ":" in bench.checkpoint or Path(bench.checkpoint).is_dir()
    plain = makes and not bench.engine  # what a program opens has no other arguments
    if prompt is None or rule not in _PLAYED or not plain or _objects(prompt):
        return {}
    found: dict[str, Any] = {
        "is": "denied" if bench.processed(prompt).good and rule == "MM-83" else _PLAYED[rule],
        "model": bench.checkpoint,
        "limits": dict(bench.limits),
        "prompt": _played(bench, prompt),
    }
    if rule == IN_A_ROW:
        items = (*bench.stock.everything, *bench.unusual)
        numbers = range(len(bench.stock.options))
        others = [alone(item, number) for item in items for number in numbers]
        found["before"] = [_played(bench, one) for one in others if not _objects(one)]
    return {"program": found}


def _played(bench: Bench, prompt: Prompt) -> dict[str, Any]:
    """Return a prompt as the player has it."""
    texts = {name: [one.text for one in prompt.of(name)] for name in prompt.modalities}
    single = {name: bench.tokens(alone(prompt.of(name)[0])) for name in texts}
    return {
        "tokens": bench.tokens(prompt),
        "items": texts,
        "options": bench.stock.chosen(prompt.options),
        "alone": single,
    }


def _objects(prompt: Prompt) -> bool:
    """Tell whether some item is an object, which no file can hold."""
    return any(one.value is not None for one in prompt.items)


def _before(bench: Bench) -> dict[str, Any]:
    """Return what was processed before a prompt: items by modality, and options."""
    items = bench.stock.items
    return {
        "items": {
            name: [one.text for one in of if one.value is None] for name, of in items.items()
        },
        "options": [dict(one) for one in bench.stock.options],
    }


def _lines(bench: Bench, prompt: Prompt, broken: Broken) -> list[dict[str, Any]]:
    """Return what stands where: a line for each text and each item."""
    processed = bench.processed(prompt)
    rows = bench.encode(prompt) if processed.good and bench.host.encodes else None
    places = iter(enumerate(prompt.places()))
    lines = []
    for part in prompt.parts:
        if isinstance(part, int):
            plural = "" if part == 1 else "s"
            lines.append({"item": "", "what": f"{part} token{plural} of text", "here": False})
            continue
        index, (name, place) = next(places)
        line = {
            "item": letter(index),
            "what": f"{part.modality} {part.text}",
            "here": broken.trouble.item == index,
        }
        ranges = processed.value.ranges.get(name, ()) if processed.good else ()
        if place < len(ranges):
            one = ranges[place]
            line |= {"where": one.where, "placeholders": str(one.count)}
        if rows is not None and rows.good:
            line["rows"] = str(len(rows.value[index]))
        lines.append(line)
    return lines
