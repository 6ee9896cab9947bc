# SPDX-License-Identifier: Apache-2.0
"""The rules about requests that any client may send: they do no harm, and refusals are named."""

from typing import Any

from conformance.counterexample.source import encoded
from conformance.findings import Finding, failed, passed, unjudged
from conformance.logits import reasons
from conformance.logits.cases import history_case, validation
from conformance.logits.fuzzing import carriers
from conformance.logits.fuzzing.explorer import Explored
from conformance.logits.fuzzing.serving import Outcome, Stage, histories
from conformance.logits.fuzzing.values import of_size, readable
from conformance.logits.judgement import roots
from conformance.logits.played import Kind, Played, Trouble
from conformance.logits.sweeps import Example
from conformance.logits.trial import Trial
from conformance.verdict import Verdict

#: What each kind of harm means for others.
_MEANS = {
    Kind.ROW: "another request gets another answer",
    Kind.OPT_OUT: "another request gets another answer",
    Kind.HUNG: "every request waits for ever",
}
_ENDS = "the engine ends for every request"


def harmless(trial: Trial) -> Finding:
    """Whatever a client sends is refused or served, and others do not notice."""
    explored = trial.explored
    if (outcome := explored.harm) is not None:
        if _is_told(trial, outcome) and (first := roots(trial)):
            return unjudged(reasons.waits(trial, first), explored.tried, explored.acted)
        return failed(_sentence(outcome), explored.tried, case=_case(trial, outcome))
    if explored.usual:
        strata = trial.contract.strata
        first = roots(trial) or [strata.rule_of[strata.plain]]
        return unjudged(reasons.waits(trial, first), explored.tried, explored.acted)
    return _shown(trial, explored)


def _is_told(trial: Trial, outcome: Outcome) -> bool:
    """Tell whether the same line raises for requests of the profile: what was sent is no cause."""
    met = {(t.error, t.place) for e in trial.examples() for t in e.played.troubles if t.place}
    return outcome.stage is Stage.ENGINE and (outcome.error, outcome.place) in met


def refuses_with_400(trial: Trial) -> Finding:
    """What is refused is refused as the client's mistake."""
    explored = trial.explored
    if (outcome := explored.misrefused) is not None:
        keywords = readable(outcome.keywords)
        return failed(
            f"a request with {keywords} gets status {outcome.status}, not 400: {outcome.said}"
            + _at(outcome),
            explored.tried,
            explored.refused,
            case=_of_admission(trial, outcome, {"is": "refuses"}, hangs=False),
        )
    if not explored.refused:
        return Finding(Verdict.NOT_APPLICABLE, explored.tried, message="it refuses no request")
    return Finding(Verdict.PASS, explored.tried, explored.refused)


def _shown(trial: Trial, explored: Explored) -> Finding:
    """Return what is known where no request did harm."""
    parameters = trial.parameters
    if not parameters.keys and not any(parameters.on) and not parameters.fields:
        if not parameters.on and not trial.inert:
            return unjudged(trial.unknown_switch(), explored.tried)
        why = "the plugin reads nothing of what a client chooses"
        return Finding(Verdict.NOT_APPLICABLE, explored.tried, message=why)
    if trial.inert:
        return passed(explored.tried, explored.tried)
    if not parameters.on and not explored.acted:
        return unjudged(trial.unknown_switch(), explored.tried)
    return passed(explored.tried, explored.refused + explored.acted)


def _sentence(outcome: Outcome) -> str:
    """Say what a request does."""
    keywords = readable(outcome.keywords)
    by = f" (by {', '.join(outcome.ways)})" if outcome.ways else ""
    if (route := carriers.ordinary(outcome.keywords)) is not None:
        by += f", as every request to {route.path} without vllm_xargs has it,"
    what = f"{outcome.said}{_at(outcome)}"
    if outcome.stage is Stage.ADMISSION:
        means = _MEANS.get(outcome.kind or Kind.RAISED, "the server ends for every client")
        return f"a request with {keywords}{by}: {what}; {means}"
    means = _MEANS.get(outcome.kind or Kind.RAISED, _ENDS)
    return f"a request with {keywords}{by} is not refused, and then {what}; {means}"


def _at(outcome: Outcome) -> str:
    return f" (at {outcome.place})" if outcome.place else ""


def _case(trial: Trial, outcome: Outcome) -> dict[str, Any]:
    """Return the counterexample of a request that does harm."""
    if outcome.stage is Stage.ADMISSION:
        hangs = outcome.kind is Kind.HUNG
        expect = {"is": "returns" if hangs else "raises-nothing"}
        return _of_admission(trial, outcome, expect, hangs=hangs)
    from vllm.sampling_params import SamplingParams

    bench = trial.bench.sending(SamplingParams(**outcome.keywords), outcome.keywords)
    played, shape, history = outcome.played, outcome.shape, outcome.history
    if played is None or shape is None or history is None:
        # It ended its process, in whichever history: the simplest stands for it.
        shape, history = histories(trial.contract.strata, bench)[0]
        lost = Trouble(outcome.kind or Kind.RAISED, 0, outcome.said)
        played = Played((lost,), frozenset())
    example = Example(shape, history, played, ())
    return history_case(bench, example, played.troubles[0]) | _facts(trial, outcome)


def _of_admission(
    trial: Trial, outcome: Outcome, expect: dict[str, Any], *, hangs: bool
) -> dict[str, Any]:
    """Return the counterexample of a request that does not get past ``validate_params``."""
    calls = {"calls": validation(outcome.keywords), "expect": expect, "hangs": hangs}
    return {**calls, **_facts(trial, outcome)}


def _facts(trial: Trial, outcome: Outcome) -> dict[str, Any]:
    """Return what a person, and whoever sends the request to an engine, wants to know of it."""
    size = trial.bench.vocabulary
    return {
        "request": {
            "keywords": encoded(outcome.keywords),
            "ways": list(outcome.ways),
            "curl": carriers.curl(outcome.keywords),
            "place": outcome.place,
            #: Tokens of the model, where what is sent says how many they are.
            "vocabulary": size if of_size(outcome.keywords, size) else None,
        }
    }
