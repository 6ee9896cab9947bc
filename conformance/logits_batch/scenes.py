# SPDX-License-Identifier: Apache-2.0
"""Going through a failure again: the history, or the part of a check that shows it.

Each function leaves calls in a :class:`~conformance.logits_batch.transcript.Recorder`, marks those
whose results matter, and returns what is expected of them, or None where all is as it should be.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import torch
from vllm.v1.sample.logits_processor import LogitsProcessor, _load_logitsprocs_by_fqcns

from conformance.inputs import history
from conformance.inputs.history import Choice
from conformance.logits.calls import PluginMisshapen, PluginRaised, call
from conformance.logits.contract import Contract
from conformance.logits.effects import REPETITIONS
from conformance.logits.parameters import Parameters
from conformance.logits.played import ROWS, UNSAMPLED, Kind, Line, Trouble
from conformance.logits.rows import dethroned, same
from conformance.logits.trial import Trial
from conformance.logits_batch import checks, effects, strata
from conformance.logits_batch.bench import Bench, all_leave
from conformance.logits_batch.excerpts import Shown
from conformance.logits_batch.parameters import rows_alone
from conformance.logits_batch.play import play
from conformance.logits_batch.transcript import Call, Recorder
from conformance.settings import Budget
from conformance.verdict import Verdict
from conformance.watching.interruption import PluginHung, limited

#: Steps for which a request runs alone.
WATCHED_STEPS = 10

#: How often a history is played: what instances share has to be left behind by an earlier one.
TIMES = 3


@attrs.frozen
class Record:
    """An errand: go through a failure again and write it down."""

    rule: str
    fqcn: str
    model: str
    parameters: Parameters
    seed: int
    budget: Budget
    hangs: bool = False
    case: Mapping[str, Any] | None = None  #: the history, or what a check said about its failure
    what: str = "record"


def of_history(recorder: Recorder, case: Mapping[str, Any]) -> Shown | None:
    """Play a history again, until its trouble is there."""
    shape = strata.STRATA.named(case["stratum"])
    steps = history.from_json(case["history"])
    recorder.bench.tolerant = case["trouble"]["kind"] not in UNSAMPLED
    for _ in range(TIMES):
        start = len(recorder.calls)
        played = play(recorder.bench, steps, shape)
        _annotate(recorder.calls[start:], played.lines)
        if found := [t for t in played.troubles if t.kind == case["trouble"]["kind"]]:
            return _trouble(recorder, recorder.calls[start:], found[0])
    return None


def _trouble(recorder: Recorder, calls: list[Call], trouble: Trouble) -> Shown | None:
    """Return what is expected where a history leads to this trouble."""
    if trouble.kind in (*ROWS, Kind.PLACEHOLDER, *UNSAMPLED):
        return _about_row(calls, trouble)
    if trouble.kind is Kind.MEANING:
        assert recorder.bench.meaning is not None
        return {"got": ["result", 0], **recorder.bench.meaning.shown(trouble)}
    if trouble.kind is Kind.SHAPE:
        recorder.calls[-1]["to"] = "result"
        return {"is": "shape"}
    if trouble.kind in (Kind.MUTATED, Kind.PARAMETERS):
        return _about_writing(recorder)
    return _about_last(recorder)


def _annotate(calls: list[Call], lines: Sequence[Line]) -> None:
    """Say at the beginning of each step of the batch what happens in it."""
    batch = next(entry["name"] for entry in calls if entry["do"] == "new")
    mine = [entry for entry in calls if entry.get("of") == batch]
    updates = [index for index, entry in enumerate(mine) if entry["do"] == "update"]
    for index, line in zip(updates, lines, strict=False):
        first = index
        # Prompts and parameters of newcomers belong to the step in which they join.
        while first and mine[first - 1]["do"] in ("params", "list"):
            first -= 1
        where = ", ".join(f"{name} in {row}" for row, name in enumerate(line.rows))
        mine[first]["step"] = line.step
        mine[first]["note"] = f"{line.events}; rows: {where}" if where else line.events
    for entry in mine:
        if entry["do"] == "claim" and "raised" not in entry:
            entry["optional"] = True


def _about_row(calls: list[Call], trouble: Trouble) -> Shown:
    batch = next(entry["name"] for entry in calls if entry["do"] == "new")
    applied = [entry for entry in calls if entry["do"] == "apply"]
    got = [entry for entry in applied if entry["of"] == batch][-1]
    got["to"] = "result"
    expect = {"got": ["result", trouble.row], "request": trouble.request}
    if trouble.kind is Kind.OPT_OUT:
        return {"is": "unchanged", **expect}
    if trouble.kind is Kind.ROW:
        # The first one: where placeholders stay, others show what a token in their place does.
        mine = (c for c in calls if c["do"] == "new" and c["serves"] == trouble.request)
        alone = next(mine)["name"]
        next(c for c in reversed(applied) if c["of"] == alone)["to"] = "expected"
        return {"is": "same", **expect, "expected": ["expected", 0]}
    if trouble.kind is Kind.PLACEHOLDER:
        applied[-1]["to"] = "taken"
        return {"is": "other", **expect, "taken": ["taken", 0]}
    return {"is": trouble.kind.value, **expect}


def _about_writing(recorder: Recorder) -> Shown | None:
    if not recorder.written:
        return None
    ((name, count), *_) = recorder.written.items()
    del recorder.calls[count:]
    recorder.calls[-1]["last"] = True
    if name.startswith("params"):
        return {"is": "kept", "name": name}
    # What the list would hold if nobody but the engine had written to it.
    value: list[int] = []
    for entry in recorder.calls:
        if entry.get("name") != name:
            continue
        if entry["do"] in ("list", "replace"):
            value = list(entry["value"])
        elif entry["do"] == "set":
            value[entry["index"]] = entry["value"]
        elif entry["do"] == "append":
            value += entry["values"]
    return {"is": "kept", "name": name, "value": value}


def _about_last(recorder: Recorder) -> Shown | None:
    """Return what is expected where the last call raised or hung, and forget what came after."""
    calls = recorder.calls
    for index in range(len(calls) - 1, -1, -1):
        if "raised" in calls[index] or "hung" in calls[index]:
            del calls[index + 1 :]
            return {"is": "returns" if "hung" in calls[index] else "raises-nothing"}
    return None


def of_check(
    recorder: Recorder, plugin: type[LogitsProcessor], errand: Record, contract: Contract
) -> Shown | None:
    """Make the calls of a check again, or those of them that matter."""
    bench = recorder.bench
    untouched: Any = None
    trial = Trial(contract, plugin, errand.fqcn, errand.parameters, bench, errand.budget, untouched)
    try:
        if errand.rule in _NARROWED:
            with limited():
                return _NARROWED[errand.rule](recorder, errand)
        if errand.rule in contract.checks and errand.rule not in _CONCLUDED:
            return None
        if errand.rule in contract.checks:
            if contract.checks[errand.rule](trial).verdict is not Verdict.FAIL:
                return None
        else:
            _simplest(bench)
    except (PluginRaised, PluginHung):
        return _about_last(recorder)
    except PluginMisshapen:
        recorder.calls[-1]["to"] = "result"
        return {"is": "shape"}
    return _CONCLUDED.get(errand.rule, _about_last)(recorder)


def _simplest(bench: Bench) -> None:
    """Make the calls that no check gets over, in the simplest way.

    Raises:
        PluginRaised: the plugin raised.

    """
    with limited():
        for choice in bench.parameters:
            list(rows_alone(bench, choice, bench.behind(WATCHED_STEPS, choice)))
        instance = bench.new()
        for choice in bench.parameters:
            instance.begin(bench.params(choice), [bench.tokens[0]], [])
            instance.apply(bench.table[:1].clone())
            instance.update_state(all_leave(1))


def _loading(recorder: Recorder, errand: Record) -> Shown:
    """LB-01: vLLM's loader, and then an instance: a class that is abstract has none."""
    entry: Call = {"do": "load", "fqcn": errand.fqcn}
    recorder.calls.append(entry)
    try:
        _load_logitsprocs_by_fqcns([errand.fqcn])
    except Exception as error:  # noqa: BLE001 - whatever vLLM's loader says
        entry["raised"] = f"{type(error).__name__}: {error}"
    else:
        with contextlib.suppress(PluginRaised):
            call("__init__", recorder.bench.construct)
    return {"is": "raises-nothing"}


def _acting(recorder: Recorder, errand: Record) -> Shown:
    """LB-05: the row of a request that opted in, step by step."""
    bench, choice = recorder.bench, _choice(errand)
    for _ in rows_alone(bench, choice, bench.behind(WATCHED_STEPS, choice)):
        recorder.calls[-1]["to"] = "result"
        recorder.calls[-1]["watched"] = True
    return {"is": "acts"}


def _copying(recorder: Recorder, errand: Record) -> Shown:
    """LB-10: two requests that see outputs grow, or one at two steps; two that are handed them."""
    assert errand.case is not None
    bench, choice = recorder.bench, _choice(errand)
    first, second = errand.case["outputs"]
    if len(first) != len(second):
        # The same logits each time, and more outputs of the same request.
        effects.watched(bench, choice, second)
        rows = _applied(recorder.calls)
        rows[len(first)]["to"], rows[len(second)]["to"] = "grown_a", "grown_b"
        for name, outputs in zip("ab", (first, second), strict=True):
            effects.resumed(bench, choice, outputs, place=0)
            _last_apply(recorder.calls)["to"] = f"given_{name}"
        return {"is": "follows"}
    step = errand.case["step"]
    for name, outputs in zip("ab", (first, second), strict=True):
        for _ in rows_alone(bench, choice, step + 1, outputs):
            pass
        _last_apply(recorder.calls)["to"] = f"grown_{name}"
    for name, outputs in zip("ab", (first, second), strict=True):
        effects.resumed(bench, choice, outputs[:step])
        _last_apply(recorder.calls)["to"] = f"given_{name}"
    return {"is": "follows"}


def _claiming(recorder: Recorder, errand: Record) -> Shown | None:
    """LB-12: the row in which another token has become the best."""
    for before, after in checks.scaled_rows(recorder.bench, _choice(errand), errand.budget):
        if dethroned(before[0], after[0]):
            *earlier, last = _applied(recorder.calls)
            for entry in earlier:
                # The engine leaves such a processor out where all requests are greedy.
                entry["optional"] = True
            last["to"] = "result"
            return {"is": "argmax", "best": int(before[0].argmax())}
    return None


def _repeating(recorder: Recorder, errand: Record) -> Shown | None:
    """LB-23: a request, and the same request again."""
    assert errand.case is not None
    runs: list[list[tuple[Call, torch.Tensor]]] = []
    for _ in range(1 if errand.case["draws"] else REPETITIONS):
        rows = rows_alone(recorder.bench, _choice(errand), errand.case["steps"])
        runs.append([(_last_apply(recorder.calls), after) for _, after in rows])
    if errand.case["draws"]:
        recorder.calls[-1]["last"] = True
        return {"is": "undrawn", "generator": errand.case["draws"]}
    for again in runs[1:]:
        for (first, expected), (second, got) in zip(runs[0], again, strict=True):
            if not same(got[0], expected[0]):
                first["to"], second["to"] = "expected", "result"
                return {"is": "same", "got": ["result", 0], "expected": ["expected", 0]}
    return None


def _instances(recorder: Recorder) -> Shown | None:
    """LB-02: an instance that cannot be made, or two that feel each other's request."""
    if any("raised" in entry for entry in recorder.calls):
        return _about_last(recorder)
    *_, alone, other_alone, first, second = (c["name"] for c in recorder.calls if c["do"] == "new")
    got = _last_apply(recorder.calls)
    applied = _applied(recorder.calls)
    count = sum(entry["of"] == got["of"] for entry in applied)
    expected = alone if got["of"] == first else other_alone
    [entry for entry in applied if entry["of"] == expected][count - 1]["to"] = "expected"
    for entry in recorder.calls:
        if entry["do"] == "update" and entry["of"] in (first, second):
            entry["last"] = True  # both matter
    got["to"] = "result"
    return {"is": "same", "got": ["result", 0], "expected": ["expected", 0]}


def _claims(recorder: Recorder) -> Shown | None:
    """LB-13: the first claim, and the first that is another one or none at all."""
    claims = [entry for entry in recorder.calls if entry["do"] == "claim"]
    for entry in claims:
        if not isinstance(entry["result"], bool):
            entry["to"] = "claim"
            return {"is": "bool"}
        if entry["result"] != claims[0]["result"]:
            claims[0]["to"], entry["to"] = "first_claim", "claim"
            return {"is": "claims"}
    return None


def _admission(recorder: Recorder) -> Shown:
    """LB-15: the request that is refused in vain, in the wrong way, or not at all."""
    asked = [index for index, c in enumerate(recorder.calls) if c["do"] == "validate"]
    for entry in recorder.calls[: asked[-1] - 1]:
        entry["optional"] = True
    valid = len(asked) <= len(recorder.bench.parameters)
    return {"is": "raises-nothing" if valid else "refuses"}


def _answers(recorder: Recorder) -> Shown:
    """LB-48: the request for which something is returned, which is asked about last."""
    *earlier, _, last = recorder.calls
    for entry in earlier:
        entry["optional"] = True
    last["to"] = "returned"
    return {"is": "nothing"}


def _layouts(recorder: Recorder) -> Shown | None:
    """LB-29: the same batch, once as plain logits and once as a view."""
    if any("raised" in entry for entry in recorder.calls):
        return _about_last(recorder)
    _compare_last(recorder.calls)
    return {"is": "same", "got": ["result", None], "expected": ["expected", None]}


def _without_prompt(recorder: Recorder) -> Shown | None:
    """LB-25: the last row of the second instance, and that of the request alone in the first."""
    if any("raised" in entry for entry in recorder.calls):
        return _about_last(recorder)
    got = _compare_last(recorder.calls)
    for entry in recorder.calls:
        if entry["do"] == "update" and entry["of"] == got["of"]:
            entry["last"] = True  # all of them matter
    last = len(got["rows"]) - 1
    return {"is": "same", "got": ["result", last], "expected": ["expected", 0]}


def _masks(recorder: Recorder) -> Shown:
    """LB-34: masked rows, of which the last one has come back with less of a mask."""
    bench = recorder.bench
    counts: dict[str, int] = {}
    last: Call = {}
    for entry in recorder.calls:
        if entry["do"] == "apply":
            number = counts.get(entry["of"], 0)
            entry["rows"] = [{"row": number, "masked": True}]
            counts[entry["of"]] = number + 1
            last = entry
    last["to"] = "result"
    masked = [list(bench.masked), bench.seed % 7, bench.vocabulary, 7]
    return {"is": "masked", "masked": masked}


#: Rules of which only a part is gone through again.
_NARROWED: Mapping[str, Callable[[Recorder, Record], Shown | None]] = {
    "LB-01": _loading,
    "LB-05": _acting,
    "LB-10": _copying,
    "LB-12": _claiming,
    "LB-23": _repeating,
}


#: Rules of which all calls are few enough to be written down, and say what is wrong with them if
#: none of them raised.
_CONCLUDED: Mapping[str, Callable[[Recorder], Shown | None]] = {
    "LB-02": _instances,
    "LB-13": _claims,
    "LB-15": _admission,
    "LB-25": _without_prompt,
    "LB-29": _layouts,
    "LB-34": _masks,
    "LB-48": _answers,
}


def _choice(errand: Record) -> Choice:
    assert errand.case is not None
    kind, index = errand.case["choice"]
    return kind, index


def _last_apply(calls: list[Call]) -> Call:
    return _applied(calls)[-1]


def _applied(calls: list[Call]) -> list[Call]:
    return [entry for entry in calls if entry["do"] == "apply"]


def _compare_last(calls: list[Call]) -> Call:
    """Compare the last rows of all, which are returned, with the last ones of another instance."""
    *_, got = applied = _applied(calls)
    other = next(entry for entry in reversed(applied) if entry["of"] != got["of"])
    got["to"], other["to"] = "result", "expected"
    return got
