# SPDX-License-Identifier: Apache-2.0
"""Badges: a shields.io endpoint document and an SVG of our own, drawn from a certificate."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from conformance.reporting.certificate import conclusion, write_whole
from conformance.rules import Level
from conformance.verdict import Conclusion, Verdict

_COLOURS = {
    Conclusion.CONFORMANT: ("brightgreen", "#2f7d32"),
    Conclusion.NON_CONFORMANT: ("red", "#c62828"),
    Conclusion.INCOMPLETE: ("lightgrey", "#6e6e6e"),
    Conclusion.ERROR: ("lightgrey", "#6e6e6e"),
}

#: Average width of a character of the badge's font at 11 px.
_CHARACTER = 6.4
_PADDING = 8


def label(certificate: Mapping[str, Any]) -> str:
    """Return the left half: host and generation."""
    return f"vLLM {certificate['plugin']['generation']}"


def message(certificate: Mapping[str, Any]) -> str:
    """Return the right half: MUSTs passed of those applicable, vLLM release, best evidence.

    For example ``23/23 · 0.32 · live``; the verdict comes first where it is not conformant.
    """
    parts = [musts(certificate)]
    if shown_in := configurations(certificate):
        parts.append(shown_in)
    verdict = conclusion(certificate)
    if verdict is not Conclusion.CONFORMANT:
        parts.insert(0, verdict.value)
    if release := certificate["environment"]["vllm"]:
        parts.append(".".join(release.split(".")[:2]))
    shown = {evidence for rule in _passed(certificate) for evidence in rule["evidence"]}
    if "server" in shown:
        parts.append("live")
    elif "offline" in shown:
        parts.append("engine")
    return " · ".join(parts)


def musts(certificate: Mapping[str, Any]) -> str:
    """Return how many MUSTs passed of those that apply, for example ``23/23``."""
    applicable = [
        rule
        for rule in certificate["rules"]
        if rule["level"] == Level.MUST.value and rule["verdict"] != Verdict.NOT_APPLICABLE.value
    ]
    return f"{len(_passed(certificate))}/{len(applicable)}"


def configurations(certificate: Mapping[str, Any]) -> str | None:
    """Return how many configurations passed of those that apply: ``9/9 configurations``."""
    verdicts = [Verdict(row["verdict"]) for row in certificate.get("configurations", ())]
    applicable = [verdict for verdict in verdicts if verdict is not Verdict.NOT_APPLICABLE]
    if not applicable:
        return None
    return f"{applicable.count(Verdict.PASS)}/{len(applicable)} configurations"


def _passed(certificate: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [
        rule
        for rule in certificate["rules"]
        if rule["level"] == Level.MUST.value and rule["verdict"] == Verdict.PASS.value
    ]


def endpoint(certificate: Mapping[str, Any]) -> dict[str, Any]:
    """Return the shields.io endpoint document."""
    return {
        "schemaVersion": 1,
        "label": label(certificate),
        "message": message(certificate),
        "color": _COLOURS[conclusion(certificate)][0],
    }


def svg(certificate: Mapping[str, Any]) -> str:
    """Return the badge as SVG, readable without any network."""
    left, right = label(certificate), message(certificate)
    colour = _COLOURS[conclusion(certificate)][1]
    first = round(len(left) * _CHARACTER + 2 * _PADDING)
    second = round(len(right) * _CHARACTER + 2 * _PADDING)
    total = first + second
    middles = first / 2, first + second / 2
    title = escape(f"{left}: {right}")
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" width="{total}" height="20" role="img" aria-label="{title}">
  <title>{title}</title>
  <clipPath id="r"><rect width="{total}" height="20" rx="3"/></clipPath>
  <g clip-path="url(#r)">
    <rect width="{first}" height="20" fill="#444"/>
    <rect x="{first}" width="{second}" height="20" fill="{colour}"/>
  </g>
  <g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">
    <text x="{middles[0]}" y="14" textLength="{first - 2 * _PADDING}">{escape(left)}</text>
    <text x="{middles[1]}" y="14" textLength="{second - 2 * _PADDING}">{escape(right)}</text>
  </g>
</svg>
"""


def write(certificate: Mapping[str, Any], folder: Path) -> None:
    """Write ``badge.json`` and ``badge.svg``."""
    text = json.dumps(endpoint(certificate), indent=2, ensure_ascii=False)
    write_whole(folder / "badge.json", text + "\n")
    write_whole(folder / "badge.svg", svg(certificate))
