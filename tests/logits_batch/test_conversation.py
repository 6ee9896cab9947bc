# SPDX-License-Identifier: Apache-2.0
"""What is asked of engines and servers, and what their answers say."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from conformance.inputs.history import label
from conformance.ledger import Ledger
from conformance.logits import server as server_module
from conformance.logits.conversation import Answer, Ask, body_of
from conformance.logits.live_trial import LogitsTrial
from conformance.logits.server import Trial
from conformance.logits_batch.live import ROLES
from conformance.rules import Evidence, Level
from conformance.verdict import RuleResult, Verdict, combine

if TYPE_CHECKING:
    from conformance.worker import Zygote

DECLARED = SimpleNamespace(on=({}, {}), off=({},), invalid=(), declared=True)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, True, [1, math.inf], [[1]]])
def test_what_does_not_survive_json_is_not_sent(value: object) -> None:
    """Infinities, NaN, booleans and nested lists are kept from servers."""
    assert body_of({"extra_args": {"key": value}}) is None


def test_infinite_fields_are_not_sent() -> None:
    """A field of the parameters that JSON has no word for is kept from servers, too."""
    assert body_of({"temperature": math.inf}) is None
    assert body_of({"temperature": 0.5, "extra_args": {"key": [1, 2.5, "x"]}}) == {
        "temperature": 0.5,
        "vllm_xargs": {"key": [1, 2.5, "x"]},
    }


@pytest.mark.parametrize(
    ("acted", "verdict"), [((0, 1), Verdict.PASS), ((1,), Verdict.PASS), ((), Verdict.NOT_VERIFIED)]
)
def test_live_effects_are_not_demanded_of_every_parameter(
    acted: tuple[int, ...], verdict: Verdict
) -> None:
    """An effect that the few requests of an engine do not bring about is no fault."""
    trial = SimpleNamespace(
        ledger=Ledger(Evidence.OFFLINE),
        roles=ROLES,
        parameters=DECLARED,
        acted={("on", index) for index in acted},
        uncarried=(),
        inert=False,
        bench=SimpleNamespace(words=SimpleNamespace(phrases=())),
    )
    LogitsTrial.judge_effect(cast("Any", trial))

    assert trial.ledger.result("LB-05").verdict is verdict


#: Of what can be sent and what cannot, which parameters and rules the server cannot carry.
UNCARRIED = {
    "none": ([[1]], {"a": [[1]]}, ("on[0]", "invalid[0]"), {"LB-05", "LB-15", "LB-16", "LB-38"}),
    "some": (1, {"a": [[1]]}, ("on[1]", "invalid[0]"), {"LB-15"}),
    "all": (1, {"a": "x"}, (), set()),
}


@pytest.mark.parametrize(("value", "refused", "names", "rules"), UNCARRIED.values(), ids=UNCARRIED)
def test_what_a_server_cannot_carry_takes_nothing_from_what_was_shown(
    value: object, refused: dict[str, Any], names: tuple[str, ...], rules: set[str]
) -> None:
    """The rule keeps the verdict of other evidence, and says what could not be sent."""
    known: dict[Any, Any] = {("on", 0): {"extra_args": {"a": value}}, ("off", 0): {}}
    if names[:1] == ("on[1]",):
        known["on", 1] = {"extra_args": {"a": [[1]]}}
    parameters = SimpleNamespace(
        on=tuple(v for (n, _), v in known.items() if n == "on"),
        off=({},),
        invalid=({"extra_args": refused},),
        declared=True,
    )
    ledger = Ledger(Evidence.SERVER)
    trial = SimpleNamespace(
        ledger=ledger,
        roles=ROLES,
        parameters=parameters,
        acted=set(),
        inert=False,
        bench=SimpleNamespace(parameters=known, words=SimpleNamespace(phrases=())),
        opening=SimpleNamespace(plugin=SimpleNamespace(generation="logits/batch")),
    )
    bodies = {choice: body for choice, own in known.items() if (body := body_of(own)) is not None}
    Trial._note_uncarried(cast("Any", trial), bodies)
    LogitsTrial.judge_effect(cast("Any", trial))
    asked = ("LB-05", "LB-15", "LB-16", "LB-38")
    found = {rule: ledger.result(rule) for rule in asked}
    shown = RuleResult("LB-15", Verdict.PASS, Evidence.SIMULATOR, 3, 3)
    both = combine("LB-15", Level.MUST, [shown, found["LB-15"]])

    assert tuple(map(label, trial.uncarried)) == names
    assert {rule for rule, result in found.items() if result.out_of_reach} == rules
    assert both.verdict is (Verdict.PASS if names else Verdict.NOT_VERIFIED)
    assert not names or f"server: {', '.join(names)} cannot be sent over HTTP" == both.message


BROKE = "APIConnectionError: Connection error."


@pytest.mark.parametrize(
    ("answer", "death", "verdict", "says"),
    [
        (Answer(0, error=BROKE), None, Verdict.NOT_VERIFIED, "a connection broke: " + BROKE),
        (Answer(0, error=BROKE), "it is gone", Verdict.FAIL, "ended the server: it is gone"),
        (Answer(500, error="no"), None, Verdict.FAIL, "a valid request got status 500: no; curl"),
    ],
    ids=["broken", "ended", "error"],
)
def test_a_connection_that_breaks_is_no_answer_of_a_plugin(
    answer: Answer,
    death: str | None,
    verdict: Verdict,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While the server goes on nothing is shown of what was asked."""

    async def converse(*_: object, **__: object) -> list[Answer]:
        return [answer]

    monkeypatch.setattr(server_module, "converse", converse)
    trial = SimpleNamespace(
        ledger=Ledger(Evidence.SERVER), roles=ROLES, death=lambda: death, _pace=0.0
    )
    server = SimpleNamespace(url="http://localhost:1", model_name="tiny")
    ask = Ask("Hello", ("on", 0), "completions", {})

    assert Trial._put(cast("Any", trial), cast("Any", server), [ask], at_once=False) is None
    result = trial.ledger.result(ROLES.raises)
    assert result.verdict is verdict
    assert says in str(result.message)


@pytest.mark.parametrize(("on", "off"), [(1, 0), (1, 1), (2, 3), (4, 5), (5, 1), (9, 2)])
def test_every_parameter_set_is_asked_for(
    zygote: Zygote, tmp_path: Path, on: int, off: int
) -> None:
    """However many parameter sets a profile has, the crowd has a request for each."""
    job = zygote.fork(
        "workload_job:asked",
        {"on": on, "off": off},
        log=tmp_path / "job.log",
        directory=tmp_path,
        python_path=[str(Path(__file__).parent)],
    )
    asked = job.ask("asked", limit=60)
    job.close()

    assert asked == on + off
