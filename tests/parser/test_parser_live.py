# SPDX-License-Identifier: Apache-2.0
"""Parsers in a real server, judged rule by rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest
from old_hosts import certified, failures
from specimens import REFERENCE_PARSER
from support import DEFECTIVE_PARSER, GOOD, UNUSUAL_PARSER, Specimen, certify, gallery

from conformance.engine.asking import Question
from conformance.parser import generations
from conformance.rules import Evidence
from conformance.verdict import ExitStatus, Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.worker import Zygote

SPECIMENS = [specimen for folder in DEFECTIVE_PARSER for specimen in gallery(folder)]
SERVED = {
    generation.name: {rule.id for rule in generation.rules if Evidence.SERVER in rule.evidence}
    for generation in generations
}

#: For each rule that a server shows, a parser whose fault soon shows there.
LIVE = {
    "TP-01": "knows_chat_tools_alone",
    "TP-02": "exits_without_an_end",
    "TP-03": "ends_at_the_first_brace",
    "TP-04": "streams_calls_alone",
    "TP-05": "one_call_a_delta",
    "TP-07": "begins_with_empty_arguments",
    "TP-08": "repeats_the_name",
    "TP-09": "shares_its_reader",
    "TP-10": "expects_the_end",
    "TP-11": "trusts_the_json",
    "TP-12": "forces_a_grammar",
    "TP-14": "ends_at_an_empty_delta",
    "TP-15": "knows_auto_alone",
    "TP-19": "begins_where_the_token_is",
    "RP-01": "takes_the_tokenizer_alone",
    "RP-02": "exits_without_an_end",
    "RP-03": "reads_the_messages",
    "RP-04": "starts_in_content",
    "RP-05": "drops_what_follows",
    "RP-09": "ends_for_everybody",
    "RP-10": "expects_the_end",
    "RP-11": "expects_one_start",
    "RP-12": "takes_the_choice_away",
    "RP-19": "parts_where_the_token_is",
}
KILLERS = [specimen for specimen in SPECIMENS if LIVE.get(str(specimen.rule)) == specimen.name]


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.parametrize(
    "target",
    [
        pytest.param("tagged_calls.py:TaggedCallsParser", marks=pytest.mark.smoke),
        "thinking.py:ThinkingParser",
    ],
)
def test_references_are_conformant_live(target: str, tmp_path: Path) -> None:
    """Every reference parser passes with all evidence, and the certificate says where."""
    status, certificate = certified(f"{REFERENCE_PARSER / target}", tmp_path, "--evidence", "all")

    assert status == ExitStatus.CONFORMANT, failures(certificate)
    shown = {rule["id"]: rule["evidence"] for rule in certificate["rules"]}
    served = SERVED[certificate["plugin"]["generation"]]
    assert {rule for rule, evidence in shown.items() if "server" in evidence} == served
    assert certificate["environment"]["host_server"].startswith("chat and responses of vllm serve")


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.parametrize(
    "specimen",
    [
        *(specimen for folder in UNUSUAL_PARSER for specimen in gallery(folder)),
        Specimen(
            "vllm.tool_parsers.hermes_tool_parser:Hermes2ProToolParser",
            None,
            {},
            generation="parser/tool",
        ),
        # Its grammar has a model write no second call where a request wants one at the most.
        Specimen("tool-parser:glm47", None, {}, generation="parser/tool"),
    ],
    ids=lambda specimen: specimen.name,
)
def test_correct_parsers_pass_live(zygote: Zygote, specimen: Specimen, tmp_path: Path) -> None:
    """A correct parser breaks no rule that a server shows."""
    found = certify(zygote, specimen, tmp_path, evidence=(Evidence.SERVER,))

    wrong = {rule: one.message for rule, one in found.items() if one.verdict not in GOOD}
    assert not {rule: message for rule, message in wrong.items() if rule not in specimen.advice}
    assert set(found) == SERVED[specimen.generation]


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.parametrize("specimen", KILLERS, ids=lambda specimen: specimen.label)
def test_a_fault_shows_live(zygote: Zygote, specimen: Specimen, tmp_path: Path) -> None:
    """A defective parser fails on a server by the rule that is about its fault, and by no other."""
    found = certify(zygote, specimen, tmp_path, evidence=(Evidence.SERVER,))

    assert {rule for rule, one in found.items() if one.verdict is Verdict.FAIL} == {specimen.rule}
    assert str(found[str(specimen.rule)].message).startswith("server: ")
    assert Verdict.ERROR not in {one.verdict for one in found.values()}


@pytest.mark.parametrize(
    "specimen",
    [one for one in SPECIMENS if one.evidence is Evidence.SERVER],
    ids=lambda specimen: specimen.label,
)
def test_the_simulator_finds_nothing(zygote: Zygote, specimen: Specimen, tmp_path: Path) -> None:
    """What only requests of the other endpoint bring to light, the simulator passes, or advises."""
    found = certify(zygote, specimen, tmp_path)

    wrong = {rule for rule, one in found.items() if one.verdict not in GOOD}
    assert wrong == set(specimen.advice)


def test_every_rule_of_a_server_has_a_parser_that_fails_there() -> None:
    """No rule has the evidence without a defective parser that shows it."""
    assert set(LIVE) == set().union(*SERVED.values()) == {one.rule for one in KILLERS}


def test_an_unknown_format_starts_no_server(zygote: Zygote, tmp_path: Path) -> None:
    """Where nothing is known to be said, the way out is the same as in the simulator."""
    specimen = next(one for one in gallery(UNUSUAL_PARSER[0]) if one.name == "calls_by_line")
    unknown = attrs.evolve(specimen, profile={})
    found = certify(zygote, unknown, tmp_path, evidence=(Evidence.SERVER,))

    assert {one.verdict for one in found.values()} == {Verdict.NOT_VERIFIED}
    assert "[[parser.samples]]" in str(found["TP-03"].message)
    assert not list(tmp_path.rglob("*_parser_plugin.py"))


def test_tools_are_written_as_each_endpoint_has_them() -> None:
    """Chat has a function in a tool, responses a flat one; without tools there is no choice."""
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    question = Question(text="x", ids=(5, 2), prompt="p", tools=(tool,), ends=1)

    assert question.body("m")["tools"] == [tool]
    responses = attrs.evolve(question, responses=True).body("m")
    assert responses["tools"] == [{"type": "function", "name": "f", "parameters": {}}]
    assert responses["max_output_tokens"] == 1
    assert responses["extra_body"] == {"vllm_xargs": {"say": [5, 2]}}
    assert "tool_choice" not in attrs.evolve(question, tools=()).body("m")
