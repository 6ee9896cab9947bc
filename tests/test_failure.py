# SPDX-License-Identifier: Apache-2.0
"""What a person reads, word for word: the wording is reviewed like code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import pytest
from samples import COUNTEREXAMPLE, GENERATION, sample

from conformance.reporting import summary
from conformance.reporting.failure import WIDTH, render
from conformance.rules import Evidence, Level, Reason, Rule, Source, changes, ends
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

DOCUMENTED = Source("Custom Logits Processors", "use Add operations to replace finished requests")

RULE = Rule(
    id="XX-06",
    title="A request that takes over a row starts clean",
    statement="When a finished request is replaced, its index appears in `added` only: "
    "adding must overwrite or clear whatever the row's previous occupant left.",
    section="Rows and moves",
    sources=(
        attrs.evolve(DOCUMENTED, reason=Reason.SENTENCE),
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


def test_a_class_that_does_not_load() -> None:
    """What to check of a class, and reports of others about theirs, help nobody who has none."""
    said = render(RULE, message=MESSAGE, evidence=["simulator"], counterexample=None, loaded=False)

    assert RULE.hint not in said
    assert "Resembles" not in said
    assert RULE.hint in render(RULE, message=MESSAGE, evidence=[], counterexample=None, width=200)


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


def _line(do: str, request: str, then: str, *, output: int = 0, waits: int = 0) -> dict[str, Any]:
    words = {
        "output delivered": "output {} arrives",
        "engine fails": "the engine fails its prompt {}",
    }
    step = {"do": do, "request": request, "output": output, "waits": waits, "over": not waits}
    return {**step, "what": words.get(do, do).format(output), "then": then}


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
        _line("arrives", "A", "waits for 6 outputs", waits=6),
        _line("output delivered", "A", "waits for 5 outputs", output=4, waits=5),
        _line("arrives", "B", "ended with HTTP 400 (ValueError: lines)"),
        _line("output delivered", "A", "waits for 4 outputs", output=5, waits=4),
        _line("output delivered", "A", "waits for 3 outputs", output=3, waits=3),
        _line("output delivered", "A", "waits for 2 outputs", output=0, waits=2),
        _line("output delivered", "A", "waits for 1 output", output=1, waits=1),
        _line("arrives", "C", "waits for 1 output", waits=1),
        _line("engine fails", "C", "ended with HTTP 500", output=0),
        _line("output delivered", "A", "was answered " + "[0.25] " * 30, output=2),
    ],
    "trouble": {"kind": "traffic", "message": "request A was answered 1 instead of 2"},
}


def test_a_failure_says_who_comes_to_harm() -> None:
    """Where a rule is a MUST by harm to others, the harm stands in the place of the source."""
    place = Source("v1/engine/core.py:EngineCoreProc", "one loop computes all requests")
    rule = attrs.evolve(RULE, sources=(*RULE.further, ends(place)))

    text = render(rule, message=None, evidence=["simulator"], counterexample=None, width=200)

    assert f"Harm      {Reason.ENDS}. {place.where}: {place.says}" in text.splitlines()
    assert "Source" not in text


def test_a_request_that_tells_the_size_of_the_vocabulary_says_so() -> None:
    """Its id is the first that the model here does not have: other models have it."""
    sizes: tuple[dict[str, int | None], ...] = ({"vocabulary": 500}, {"vocabulary": None}, {})
    shown = [{**COUNTEREXAMPLE, "request": {"curl": "curl URL -d 500", **size}} for size in sizes]
    sent = [render(RULE, message=None, evidence=[], counterexample=each) for each in shown]

    told = "(500 is the vocabulary size of the model here; send that of yours)"
    assert [told in text for text in sent] == [True, False, False]


def test_of_two_harms_the_one_that_was_seen_is_told() -> None:
    """A row that is not the one of its request ends no engine: it changes an answer."""
    sources = (ends(Source("core.py:step", "raises")), changes(Source("sampler.py:apply", "rows")))
    rule = attrs.evolve(RULE, sources=sources)
    changed = render(rule, message=None, evidence=[], counterexample=COUNTEREXAMPLE, width=200)
    raised = {**COUNTEREXAMPLE, "trouble": {**COUNTEREXAMPLE["trouble"], "kind": "raised"}}
    ended = render(rule, message=None, evidence=[], counterexample=raised, width=200)

    assert COUNTEREXAMPLE["trouble"]["kind"] == "opt-out"
    assert "Harm      another request's answer changes. sampler.py:apply: rows" in changed
    assert "Harm      the engine or the server ends or hangs. core.py:step: raises" in ended


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


def test_requests_that_differ_late_can_be_told_apart() -> None:
    """Of long data that begin alike the part is shown in which they differ."""
    twins = [
        {**request, "data": {"lines": ["red"] * 40 + [last]}}
        for request, last in zip(TRAFFIC["requests"], ("cat", "dog", "dog"), strict=True)
    ]
    text = render(
        RULE,
        message="request A was answered otherwise",
        evidence=["simulator"],
        counterexample={**TRAFFIC, "awaited": False, "requests": twins},
    )
    (first,) = (line for line in text.splitlines() if line.startswith("  A = "))

    assert '"cat"' in first
    assert max(map(len, text.splitlines())) <= WIDTH


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


def test_what_stands_above_is_not_said_again() -> None:
    """A failure that was told in full takes two lines of the table; other reasons stay whole."""
    long: dict[str, Any] = {**five_rules(**MIXED)}
    long["rules"] = [{**rule} for rule in long["rules"]]
    for rule in long["rules"]:
        if rule["message"]:
            rule["message"] = f"{rule['id']} says: " + "word " * 80 + "end"
    failed = [rule for rule in long["rules"] if rule["verdict"] == "fail"]
    whole, told = (
        " ".join(summary.text(long, width=80, told=each).split()) for each in ([], [*Level])
    )

    assert whole.count("end") - told.count("end") == len(failed) > 0
    assert all(f"{rule['id']} says: word" in told for rule in failed)

    # What a baseline knows was not told, and neither was advice by pytest, where it fails no item.
    mark = {"rule": failed[0]["id"], "state": "known", "reason": "", "issue": None, "expires": None}
    advice = [{**rule, "level": "SHOULD"} for rule in long["rules"]]
    for other in ({**long, "baseline": [mark]}, {**long, "rules": advice}):
        said = summary.text(other, width=80, told=[Level.MUST])
        assert " ".join(said.split()).count("end") > told.count("end")


def test_the_summary_in_a_narrow_terminal(snapshot: SnapshotAssertion) -> None:
    """In 80 columns the titles are folded, and nothing is lost."""
    document = {**five_rules(**MIXED), "interrupted": True}

    assert summary.text(document, width=80) == snapshot


def test_the_first_line_says_what_is_advice() -> None:
    """What a plugin fails and is conformant all the same is counted by itself."""
    document = five_rules(LB01=Verdict.FAIL, LB02=Verdict.FAIL)
    rules: Any = document["rules"]
    rules[0]["level"] = "SHOULD"

    said = summary.headline(document).plain
    assert said.endswith("3 pass, 1 fail, 1 fail (SHOULD)"), said


def test_the_summary_for_a_ci_step(snapshot: SnapshotAssertion) -> None:
    """The same as Markdown, for a CI step summary."""
    assert summary.markdown(five_rules(**MIXED)) == snapshot


def test_notes_are_in_both_summaries() -> None:
    """Each sentence has what it is about in Markdown, and stands below that in a terminal."""
    document = {**five_rules(), "notes": [{"about": "format", "says": ["one", "two"]}]}

    assert summary.markdown(document).endswith("\n- format: one\n- format: two\n")
    assert "format:\n  - one\n  - two\n" in summary.text(document)
    long: Any = {**document, "notes": [{"about": "format", "says": ["many words of it " * 6]}]}
    assert "\n  - many words of it many" in summary.text(long, width=80)
    assert "\n    words of it many words of it\n" in summary.text(long, width=80)


def test_a_reason_that_rules_share_is_said_once() -> None:
    """The table leaves such rules out; below it they are named with their reason."""
    document = five_rules(LB01=Verdict.FAIL)
    waits = {"verdict": "not-verified", "waits_for": ["LB-01"]}
    rules: Any = document["rules"]
    for rule, why in zip(rules[2:], ("", ": it raised", ": it raised again"), strict=True):
        rule |= {**waits, "message": f"cannot be judged before LB-01 holds{why}"}
    said, markdown = summary.text(document, width=80), summary.markdown(document)

    for text in (said, markdown):
        assert text.count("cannot be judged") == 1
        assert "LB-03 to LB-05" in text
        assert rules[3]["title"] not in text
    assert all(len(line) <= 80 for line in said.splitlines())
    assert "it raised" not in said


def test_a_failure_of_the_harness_is_said_once() -> None:
    """What keeps every rule from being judged does not fill the screen."""
    document = five_rules(LB01=Verdict.FAIL)
    rules: Any = document["rules"]
    for rule in rules[1:]:
        rule |= {"verdict": "error", "message": "the trial could not be opened"}
        rule["cause"] = {"id": "OSError at jobs.py:7", "says": "the trial could not be opened"}

    for text in (summary.text(document, width=80), summary.markdown(document)):
        assert text.count("could not be opened") == 1
        assert "he harness failed on: LB-02 to LB-05" in text


def test_two_causes_that_say_the_same_are_two() -> None:
    """They are told apart by what they are, and so is what has no cause that is known."""
    document = five_rules()
    rules: Any = document["rules"]
    says = "it was not there"
    causes = ("KeyError at a.py:1", "KeyError at a.py:1", "KeyError at b.py:1", None, None)
    for rule, cause in zip(rules, causes, strict=True):
        known = {"cause": {"id": cause, "says": says}} if cause else {}
        rule.update({"verdict": "error", "message": says, **known})

    named = [reason.named for reason in summary.reasons(rules, Verdict.ERROR)]
    assert named == ["LB-01, LB-02", "LB-03", "LB-04", "LB-05"]
    for text in (summary.text(document, width=80), summary.markdown(document)):
        assert text.count(says) == 4
        assert "he harness failed on: LB-01, LB-02" in text


def test_one_cause_is_said_once_whatever_each_rule_adds() -> None:
    """What it says of all of them is said; what each rule adds is in the certificate."""
    document = five_rules()
    rules: Any = document["rules"]
    for number, rule in enumerate(rules[:3]):
        rule |= {
            "verdict": "not-verified",
            "message": f"the plugin did nothing in {number} examples",
            "cause": {"id": "did nothing", "says": "the plugin did nothing in any example"},
        }

    for text in (summary.text(document, width=80), summary.markdown(document)):
        assert text.count("the plugin did nothing in any example") == 1
        assert "verified: LB-01 to LB-03" in text
        assert "examples" not in text
    (alone,) = summary.reasons(rules[:1])
    assert alone.says == "the plugin did nothing in 0 examples"


@pytest.mark.parametrize(
    ("rules", "named"),
    [
        (("LB-02", "LB-03"), "LB-02, LB-03"),
        (
            ("LB-09", "LB-10", "LB-11", "LB-13", "MM-99", "MM-100"),
            "LB-09 to LB-11, LB-13, MM-99, MM-100",
        ),
        (
            ("MM-03", "MM-11", "MM-02", "MM-85", "MM-10", "MM-01"),
            "MM-01 to MM-03, MM-10, MM-11, MM-85",
        ),
        (("own", "own-1", "own-x"), "own, own-1, own-x"),
    ],
)
def test_rules_are_named_as_a_person_would(rules: tuple[str, ...], named: str) -> None:
    """Three or more whose numbers follow each other are a range."""
    assert summary.Reason("why", rules).named == named


def test_colours_are_for_terminals() -> None:
    """Colours are there when asked for, and change no word."""
    document = five_rules(**MIXED)
    coloured = summary.text(document, colour=True)

    assert "\x1b[" in coloured
    assert "\x1b[" not in summary.text(document)
