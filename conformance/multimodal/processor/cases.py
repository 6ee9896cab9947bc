# SPDX-License-Identifier: Apache-2.0
"""Failures as case files have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from conformance.multimodal.processor.bench import named

#: The rule for which it counts what was processed before.
IN_A_ROW = "MM-36"

#: The rule for which it counts what the author's function said.
MEANS = "MM-81"

if TYPE_CHECKING:
    from conformance.findings import Finding
    from conformance.multimodal.processor.bench import Bench
    from conformance.multimodal.processor.prompts import Prompt
    from conformance.multimodal.processor.search import Broken


def written(bench: Bench, rule: str, finding: Finding) -> dict[str, Any]:
    """Return a failure as data: enough to print it and to judge it again."""
    shared = {"rule": rule, "seed": bench.seed, "model": bench.checkpoint}
    broken: Broken | None = (finding.case or {}).get("broken")
    if broken is None:
        document = bench.document()
        stock = {name: document[name] for name in ("items", "options")}
        objects = any(one.value is not None for one in bench.stock.everything)
        return {
            "kind": "check",
            **shared,
            **stock,
            "objects": objects,
            "parameters": [],
            "invalid": [],
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
        "options": dict(bench.stock.options[prompt.options]),
        "backwards": prompt.backwards,
        "objects": any(one.value is not None for one in prompt.items),
        "lines": _lines(bench, prompt, broken),
        "trouble": {
            "kind": "prompt",
            "message": trouble.message,
            "expected": trouble.expected,
            "actual": trouble.actual,
        },
        "parameters": [],
    }


def _told(bench: Bench, prompt: Prompt) -> list[list[Any]]:
    """Return what the author said of each item of a prompt."""
    counts = ((one, bench.told.get((one, prompt.options))) for one in prompt.items)
    return [[one.modality, one.text, count] for one, count in counts if count is not None]


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
            "item": named(index),
            "what": f"{part.modality} {part.text}",
            "here": broken.trouble.item == index,
        }
        ranges = processed.value.ranges.get(name, ()) if processed.good else ()
        if place < len(ranges):
            one = ranges[place]
            line |= {"where": f"{one.offset} to {one.end - 1}", "placeholders": str(one.count)}
        if rows is not None and rows.good:
            line["rows"] = str(len(rows.value[index]))
        lines.append(line)
    return lines
