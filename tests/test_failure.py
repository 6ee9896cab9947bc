# SPDX-License-Identifier: Apache-2.0
"""What a person reads, word for word: the wording is reviewed like code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from samples import COUNTEREXAMPLE, GENERATION, sample

from conformance.reporting import summary
from conformance.reporting.failure import render
from conformance.rules import Evidence, Level, Rule, Source
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

RULE = Rule(
    id="XX-06",
    title="A request that takes over a row starts clean",
    statement="When a finished request is replaced, its index appears in `added` only: "
    "adding must overwrite or clear whatever the row's previous occupant left.",
    level=Level.MUST,
    section="Rows and moves",
    sources=(
        Source("Custom Logits Processors", "use Add operations to replace finished requests"),
        Source("another.py:Symbol", "the same, again"),
    ),
    hint="In the loop over `added`, clear the index when the newcomer does not opt in.",
    evidence=(Evidence.SIMULATOR, Evidence.OFFLINE),
    resembles=("H1",),
)
MESSAGE = "the row of a request that did not opt in was changed"
CASE = "reports/local/a b/cases/XX-06.json"


def five_rules(**kinds: Verdict) -> dict[str, object]:
    """Return a certificate of five rules, with these verdicts."""
    ids = [rule.id for rule in GENERATION.rules[:5]]
    names = {rule.replace("-", ""): rule for rule in ids}
    document = sample({names[name]: verdict for name, verdict in kinds.items()})
    rules = [
        {**rule, "title": f"The title of {rule['id']}, which says what it demands of a plugin"}
        for rule in document["rules"]
        if rule["id"] in ids
    ]
    return {**document, "rules": rules}


MIXED = {
    "LB02": Verdict.FAIL,
    "LB03": Verdict.NOT_APPLICABLE,
    "LB04": Verdict.NOT_VERIFIED,
    "LB05": Verdict.ERROR,
}


def test_a_failure_with_a_program(snapshot: SnapshotAssertion) -> None:
    """Where the calls are known, a program lies beside the case; parameters are real values."""
    keywords = {"extra_args": {"bound": {"!type": "float", "value": "inf"}}}
    parameters = [{"choice": ["on", 0], "keywords": keywords}, *COUNTEREXAMPLE["parameters"][1:]]
    text = render(
        RULE,
        message=MESSAGE,
        evidence=["simulator"],
        counterexample={**COUNTEREXAMPLE, "parameters": parameters, "calls": []},
        case=CASE,
    )

    assert text == snapshot


def test_a_failure_that_is_calls(snapshot: SnapshotAssertion) -> None:
    """Calls without a history are shown by the program alone."""
    message = "is_argmax_invariant() returns None, not a bool"
    text = render(
        RULE,
        message=message,
        evidence=["simulator"],
        counterexample={"kind": "calls", "parameters": [], "calls": []},
        case=CASE,
    )

    assert text == snapshot


def test_a_failure_with_a_history(snapshot: SnapshotAssertion) -> None:
    """Rule, what the plugin did, what was expected, the history, what to check, the replay."""
    text = render(
        RULE, message=MESSAGE, evidence=["simulator"], counterexample=COUNTEREXAMPLE, case=CASE
    )

    assert text == snapshot


def test_a_failure_without_a_history(snapshot: SnapshotAssertion) -> None:
    """A rule about a single call has no history and nothing to replay."""
    message = "importing sample raised ZeroDivisionError: division by zero (sample.py:7)"
    text = render(RULE, message=message, evidence=["simulator", "server"], counterexample=None)

    assert text == snapshot


#: Three requests of an IO processor: one is refused, and one has many outputs.
TRAFFIC: dict[str, Any] = {
    "kind": "traffic",
    "awaited": True,
    "requests": [
        {"name": "A", "id": "id-0", "valid": True, "data": {"lines": ["[red]"] * 12}},
        {"name": "B", "id": "id-1", "valid": False, "data": {"lines": "red", "score": 0.5}},
        {
            "name": "C",
            "id": "id-2",
            "valid": True,
            "data": {"bound": {"!type": "float", "value": "inf"}},
        },
    ],
    "moves": [],
    "lines": [
        {"what": "arrives", "request": "A", "then": "waits for 6 outputs"},
        {"what": "output 4 arrives", "request": "A", "then": "waits for 5 outputs"},
        {"what": "arrives", "request": "B", "then": "ended with HTTP 400 (ValueError: lines)"},
        {"what": "output 5 arrives", "request": "A", "then": "waits for 4 outputs"},
        {"what": "output 3 arrives", "request": "A", "then": "waits for 3 outputs"},
        {"what": "output 0 arrives", "request": "A", "then": "waits for 2 outputs"},
        {"what": "output 1 arrives", "request": "A", "then": "waits for 1 output"},
        {"what": "arrives", "request": "C", "then": "waits for 1 output"},
        {"what": "the engine fails its prompt 0", "request": "C", "then": "ended with HTTP 500"},
        {"what": "output 2 arrives", "request": "A", "then": "was answered " + "[0.25] " * 30},
    ],
    "trouble": {"kind": "traffic", "message": "request A was answered 1 instead of 2"},
}


def test_a_failure_of_requests_at_the_same_time(snapshot: SnapshotAssertion) -> None:
    """Moves as a table, outputs in a row on one line, and what each request carries."""
    text = render(
        RULE,
        message=TRAFFIC["trouble"]["message"],
        evidence=["simulator"],
        counterexample={**TRAFFIC, "program": {"is": "history"}},
        case=CASE,
    )

    assert text == snapshot


@pytest.mark.parametrize("width", [72, 100, 140])
def test_requests_at_the_same_time_fit_the_terminal(width: int) -> None:
    """What is too long is cut, also an answer or data of thousands of characters."""
    text = render(
        RULE,
        message="request A was answered otherwise",
        evidence=["simulator"],
        counterexample={**TRAFFIC, "awaited": False},
        width=width,
    )

    assert max(map(len, text.splitlines())) <= width
    assert "served with" not in text


def test_a_failure_in_a_step_without_a_row(snapshot: SnapshotAssertion) -> None:
    """Trouble that belongs to no row names its step only."""
    trouble = {**COUNTEREXAMPLE["trouble"], "request": None, "row": None, "tokens": []}
    text = render(
        RULE,
        message="update_state(None) raised AttributeError",
        evidence=["simulator"],
        counterexample={**COUNTEREXAMPLE, "trouble": trouble},
        width=72,
    )

    assert text == snapshot


@pytest.mark.parametrize("width", [80, 100])
def test_a_failure_fits_the_terminal(width: int) -> None:
    """No line is wider than the terminal, but for the command, which stays whole."""
    text = render(
        RULE,
        message=MESSAGE,
        evidence=["simulator"],
        counterexample=COUNTEREXAMPLE,
        case="x" * 200,
        width=width,
    )
    *lines, command = text.splitlines()

    assert max(map(len, lines)) <= width
    assert command == "Replay    vllm-conformance replay " + "x" * 200


def test_the_summary_of_a_mixed_certificate(snapshot: SnapshotAssertion) -> None:
    """One line for a rule that holds; what a person must act on is spelled out."""
    assert summary.text(five_rules(**MIXED), width=100) == snapshot


def test_the_summary_in_a_narrow_terminal(snapshot: SnapshotAssertion) -> None:
    """In 80 columns the titles are folded, and nothing is lost."""
    document = {**five_rules(**MIXED), "interrupted": True}

    assert summary.text(document, width=80) == snapshot


def test_the_summary_for_a_ci_step(snapshot: SnapshotAssertion) -> None:
    """The same as Markdown, for a CI step summary."""
    assert summary.markdown(five_rules(**MIXED)) == snapshot


def test_colours_are_for_terminals() -> None:
    """Colours are there when asked for, and change no word."""
    document = five_rules(**MIXED)
    coloured = summary.text(document, colour=True)

    assert "\x1b[" in coloured
    assert "\x1b[" not in summary.text(document)
