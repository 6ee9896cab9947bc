# SPDX-License-Identifier: Apache-2.0
"""The failures of checks, as parts that programs are made of: the shortest first.

What a check says of its failure (``Finding.case``) chooses the request, the mask and the number of
steps; each part says what is expected at its end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from conformance.counterexample.logits_checks import SCRIPTED
from conformance.counterexample.source import encoded
from conformance.generations import named
from conformance.logits.cases import validation
from conformance.logits.keywords import admissible
from conformance.logits.trial import Trial

#: What one program is made of.
Part = dict[str, Any]

#: How many instances LS-02 makes.
_INSTANCES = ("first", "second", "third")

#: The slot that vLLM gives away first, of the eight of a trial.
_SLOT = 7


def of_check(trial: Trial, rule: str, found: Mapping[str, Any]) -> list[Part]:
    """Return the parts that may show the failure of a check; none for a rule without a check."""
    parts = _SHORT[rule](trial, found) if rule in _SHORT else []
    if rule in SCRIPTED and (found or rule not in _NEEDING):
        expect = {"is": "script", **found}
        if rule == "LS-41":
            expect["invalid"] = [encoded(keywords) for keywords in _admitted(trial)]
        parts.append({"calls": [], "expect": expect})
    return parts


def _loading(trial: Trial, _: Mapping[str, Any]) -> list[Part]:
    """LS-01: vLLM's loader, and then an instance: a class that is abstract has none."""
    load = {"do": "load", "loader": named("logits/slot").loader, "fqcn": trial.fqcn}
    return [_raising([load]), _raising([load, {"do": "new", "name": "runner"}])]


def _constructing(_: Trial, found: Mapping[str, Any]) -> list[Part]:
    """LS-02: one instance after the other, unless all of them could be made."""
    if found:
        return []
    made = [{"do": "new", "name": name} for name in _INSTANCES]
    return [_raising(made[:count]) for count in range(1, len(made) + 1)]


def _admitting(trial: Trial, _: Mapping[str, Any]) -> list[Part]:
    """LS-23: one request that is refused in vain, in the wrong way, or not at all."""
    wanted = [(keywords, "raises-nothing") for keywords in trial.bench.parameters.values()]
    wanted += [(keywords, "refuses") for keywords in _admitted(trial)]
    return [{"calls": validation(keywords), "expect": {"is": what}} for keywords, what in wanted]


def _answering(trial: Trial, found: Mapping[str, Any]) -> list[Part]:
    """LS-45: the request for which something is returned."""
    made, asked = validation(trial.bench.parameters[found["choice"]])
    return [{"calls": [made, {**asked, "to": "returned"}], "expect": {"is": "nothing"}}]


def _declining(trial: Trial, found: Mapping[str, Any]) -> list[Part]:
    """LS-29: a request that the plugin leaves alone, and says that it does not."""
    join = {
        "do": "join",
        "name": "runner",
        "slot": _SLOT,
        "keywords": encoded(trial.bench.parameters[found["choice"]]),
        "prompt": [trial.bench.tokens[0]],
        "outputs": [],
        "to": "answer",
    }
    events = [{"do": "new", "name": "runner"}, join]
    return [{"events": events, "expect": {"is": "declined"}}]


def _raising(events: Sequence[Mapping[str, Any]]) -> Part:
    """Return events of which the last one must not raise."""
    return {"events": list(events), "expect": {"is": "raises-nothing"}}


def _admitted(trial: Trial) -> list[Mapping[str, Any]]:
    """Return the invalid requests that vLLM itself does not refuse."""
    return [keywords for _, keywords, _ in admissible(trial.parameters.invalid)]


#: Rules that few calls are enough for.
_SHORT: Mapping[str, Callable[[Trial, Mapping[str, Any]], list[Part]]] = {
    "LS-01": _loading,
    "LS-02": _constructing,
    "LS-23": _admitting,
    "LS-29": _declining,
    "LS-45": _answering,
}

#: Rules whose program cannot be written without what the check said.
_NEEDING = frozenset(
    (
        "LS-02",
        "LS-05",
        "LS-13",
        "LS-15",
        "LS-19",
        "LS-21",
        "LS-28",
        "LS-31",
        "LS-32",
        "LS-33",
        "LS-34",
    )
)
