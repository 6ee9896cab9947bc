# SPDX-License-Identifier: Apache-2.0
"""From a failure to a counterexample that stands by itself, with a program that shows it.

The program of a failure is a small copy of the check.  Several programs may show it (with one text
or another): the first that fails where nothing has been done with the hook is kept.

Failures of CH-29 and CH-37 have no program, since it would hang or end with the hook; nor have
faults that a process shows by chance. ``vllm-conformance replay`` plays such a case again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from conformance.classifier_hook import attributes, process, scoring, timing
from conformance.classifier_hook.trial import COMPARING, Trial
from conformance.counterexample.execution import demonstrated, document
from conformance.counterexample.source import encoded, spelt
from conformance.findings import Finding

#: What a program plays: a function of ``hook_player`` or ``hook_crowd_player``, and its arguments.
Scene = dict[str, Any]

#: Returns what the programs may play that show a failure, the likeliest first.
Scenes = Callable[[Trial, Finding], Iterator[Scene]]

#: Programs that are tried, and seconds for all of them.
TRIED = 14
LIMIT = 60.0


def shown(trial: Trial, rule: str, finding: Finding) -> dict[str, Any]:
    """Return the counterexample of a failure, with a program wherever one shows it."""
    plain = _plain(trial, rule)
    if rule == "CH-39":
        plain["scores"] = [{**(finding.case or {}), "changes": _changes(finding)}]
    bench = trial.bench
    if trial.untouched is None or rule not in _SCENES:
        return plain
    fqcn = f"{bench.cls.__module__}:{bench.cls.__qualname__}"
    case = document(rule, fqcn, plain, "hook/rfc")
    return demonstrated(trial.untouched, case, _candidates(trial, rule, finding), limit=LIMIT)


def _candidates(trial: Trial, rule: str, finding: Finding) -> Iterator[dict[str, Any]]:
    bench = trial.bench
    shared: Scene = {}
    if bench.arguments:
        shared["arguments"] = encoded(dict(bench.arguments))
    if rule in COMPARING and (hidden := bench.unsteady()):
        shared["hidden"] = sorted(spelt("scores", place) for place in hidden)
    for scene in islice(_SCENES[rule](trial, finding), TRIED):
        yield {"program": {**scene, **shared}}


def _plain(trial: Trial, rule: str) -> dict[str, Any]:
    """Return a failure as data: what replaying it needs."""
    bench = trial.bench
    return {
        "kind": "check",
        "rule": rule,
        "seed": bench.seed,
        "allowed": list(bench.allowed),
        "blocked": list(bench.blocked),
        "arguments": dict(bench.arguments),
        "parameters": [],
        "invalid": [],
    }


def _texts(trial: Trial, finding: Finding) -> list[str]:
    """Return texts that a failure may be about: the one that the check names, or all."""
    if finding.case is not None and "text" in finding.case:
        return [finding.case["text"]]
    return list(dict.fromkeys((*trial.bench.texts, *timing.LONG, *scoring.ODD)))


def _one(name: str) -> Scenes:
    """Return the scene of a check that is about no text."""

    def scenes(_trial: Trial, _finding: Finding) -> Iterator[Scene]:
        yield {"is": name}

    return scenes


def _of_text(name: str, **more: object) -> Scenes:
    """Return the scenes of a check about one text, whose context may be other than usual."""

    def scenes(trial: Trial, finding: Finding) -> Iterator[Scene]:
        for text in _texts(trial, finding):
            yield {"is": name, "text": encoded(text), **more, **_changes(finding)}

    return scenes


def _meant(_: Trial, finding: Finding) -> Iterator[Scene]:
    """CH-39: the text, and the scores that it must get."""
    case = finding.case or {}
    said = {"text": encoded(case["text"]), "scores": encoded(case["scores"])}
    yield {"is": "says", **said, **_changes(finding)}


def _of_texts(name: str) -> Scenes:
    """Return the scene of a check that is about all ordinary texts."""

    def scenes(trial: Trial, _: Finding) -> Iterator[Scene]:
        yield {"is": name, "texts": [encoded(text) for text in trial.bench.texts]}

    return scenes


def _changes(finding: Finding) -> Scene:
    """Return what is other than usual in a context, as data."""
    changes = (finding.case or {}).get("changes", {})
    return {name: encoded(_unnamed(value)) for name, value in changes.items()}


def _unnamed(value: object) -> Any:  # noqa: ANN401 - a field of a context
    """Return data with plain tuples in place of named ones."""
    if isinstance(value, dict):
        return {key: _unnamed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_unnamed(item) for item in value]
    return tuple(value) if isinstance(value, tuple) else value


def _cancelling(name: str) -> Scenes:
    """Return the scenes of calls that are cancelled, at the wait that the check names."""

    def scenes(_trial: Trial, finding: Finding) -> Iterator[Scene]:
        case = finding.case or {}
        for wait, turns in timing.POINTS:
            if wait == case["wait"]:
                yield {"is": name, "text": encoded(case["text"]), "wait": wait, "turns": turns}

    return scenes


def _left(trial: Trial, finding: Finding) -> Iterator[Scene]:
    """CH-24: after calls that end by themselves, or that are cancelled."""
    if "wait" in (finding.case or {}):
        yield from _cancelling("left-cut")(trial, finding)
    else:
        yield from _of_text("left")(trial, finding)


def _history(trial: Trial, finding: Finding) -> Iterator[Scene]:
    """CH-30 to CH-33: the smallest history that shows it, a crowd, or a hook that is old."""
    case = finding.case or {}
    texts = trial.bench.texts
    if "crowd" in case:
        for crowd in ((case["text"],), texts):
            each = [encoded(text) for text in crowd]
            yield {"is": "crowd", "texts": each, "wait": case["crowd"]}
        return
    if "aged" in case:
        yield {"is": "aged", "text": encoded(case["text"]), "seconds": case["aged"]}
        return
    name = "at-once" if case["overlapping"] else "sequence"
    calls = [
        [encoded(text), *more, encoded(_unnamed(changes))] for text, *more, changes in case["calls"]
    ]
    yield {"is": name, "calls": calls}


def _forgetting(trial: Trial, finding: Finding) -> Iterator[Scene]:
    """CH-35: a text whose calls leave threads, or all texts, with what clients send with them."""
    case = finding.case or {}
    if "threads" in case:
        text = encoded(trial.bench.texts[0])
        yield {"is": "threads", "text": text, "count": case["threads"]}
        return
    fields = {name: encoded(value) for name, value in case.get("fields", {}).items()}
    for scene in _of_texts("forgets")(trial, finding):
        yield {**scene, **({"fields": fields} if fields else {})}


def _sharing(trial: Trial, finding: Finding) -> Iterator[Scene]:
    """CH-40 and CH-42: the first text whose call changes something, and what it changes."""
    case = finding.case or {}
    text = process.texts(trial)[case["served"]]
    scene = {"is": "shares", "text": encoded(text), "names": case["names"]}
    if "turns" not in case:
        yield scene
    for turns in range(1, case.get("turns", 0) + 1):
        yield {**scene, "turns": turns}


_SCENES: Mapping[str, Scenes] = {
    "CH-01": _one("made"),
    **{rule: _one(name) for name, rule in attributes.RULE_OF.items()},
    "CH-07": _of_texts("constant"),
    "CH-10": _of_text("json"),
    "CH-38": _of_text("json"),
    "CH-11": _of_text("decides", blocks=False),
    "CH-12": _of_text("decides", blocks=True),
    "CH-13": _of_text("replacement"),
    "CH-14": _of_text("decides", blocks=False),
    "CH-15": _of_text("scores"),
    "CH-16": _of_text("scores"),
    "CH-17": _of_text("reads"),
    "CH-18": _of_text("steady"),
    "CH-20": _of_text("held", what="waited"),
    "CH-21": _of_text("held", what="worked"),
    "CH-22": _of_text("in-time"),
    "CH-23": _cancelling("ends"),
    "CH-24": _left,
    "CH-30": _history,
    "CH-31": _history,
    "CH-32": _history,
    "CH-33": _history,
    "CH-34": _of_texts("own"),
    "CH-35": _forgetting,
    "CH-36": _of_texts("other-loop"),
    "CH-39": _meant,
    "CH-40": _sharing,
    "CH-42": _sharing,
}
