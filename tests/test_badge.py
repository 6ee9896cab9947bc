# SPDX-License-Identifier: Apache-2.0
"""The badge says what was shown, and no more."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest
from samples import GENERATION, sample

from conformance.reporting import badge
from conformance.rules import Evidence, Level
from conformance.verdict import Verdict

SIMULATOR, OFFLINE, SERVER = Evidence
MUSTS = sum(rule.level is Level.MUST and SIMULATOR in rule.evidence for rule in GENERATION.rules)


@pytest.mark.parametrize(
    ("verdict", "message", "colour"),
    [
        (Verdict.PASS, f"{MUSTS}/{MUSTS} · 0.32", "brightgreen"),
        (Verdict.NOT_APPLICABLE, f"{MUSTS - 1}/{MUSTS - 1} · 0.32", "brightgreen"),
        (Verdict.FAIL, f"non-conformant · {MUSTS - 1}/{MUSTS} · 0.32", "red"),
        (Verdict.NOT_VERIFIED, f"incomplete · {MUSTS - 1}/{MUSTS} · 0.32", "lightgrey"),
        (Verdict.ERROR, f"error · {MUSTS - 1}/{MUSTS} · 0.32", "lightgrey"),
    ],
)
def test_the_verdict_has_a_colour(verdict: Verdict, message: str, colour: str) -> None:
    """Green needs every applicable MUST; red is a failure; grey is what nobody knows."""
    assert badge.endpoint(sample({"LB-06": verdict})) == {
        "schemaVersion": 1,
        "label": "vLLM logits/batch",
        "message": message,
        "color": colour,
    }


@pytest.mark.parametrize(
    ("evidence", "word"),
    [((SIMULATOR,), None), ((SIMULATOR, OFFLINE), "engine"), (tuple(Evidence), "live")],
)
def test_the_best_evidence_is_named(evidence: tuple[Evidence, ...], word: str | None) -> None:
    """What an engine showed is called so, and what a server showed is called live."""
    last = badge.message(sample(evidence=evidence)).split(" · ")[-1]

    assert last == (word or "0.32")


def test_the_picture_can_be_read() -> None:
    """The SVG is well-formed, says what the endpoint says, and has room for it."""
    document = sample()
    document["plugin"]["generation"] = "a<b>&c"
    picture = ET.fromstring(badge.svg(document))  # noqa: S314 - our own
    texts = [element.text for element in picture.iter() if element.tag.endswith("text")]

    assert texts == ["vLLM a<b>&c", badge.message(document)]
    assert int(picture.attrib["width"]) > 6 * sum(len(text or "") for text in texts)
