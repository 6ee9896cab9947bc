# SPDX-License-Identifier: Apache-2.0
"""From a failure to a counterexample that stands by itself, with a program that shows it.

A history becomes the program's own; the program of a check is a small copy of it.  Several
programs may show it (with one request's data or another's, online or offline): the first that
fails where nothing has been done with the plugin is kept.

These failures have no program: of IO-01, which is about loading and no call; of IO-04, which needs
engines; of IO-37 and IO-38, since the program would hang or end with the plugin; of outputs that
are left open (IO-20, IO-34), which only the host notices; of requests that hold Python objects, or
lists so deep that Python does not copy them; of orders that only another process has (IO-24); and
faults that a process shows late, or by chance.
``vllm-conformance replay`` plays such a case again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from conformance.counterexample.execution import demonstrated, document
from conformance.counterexample.source import decoded, encoded, spelt
from conformance.engine.pooling_models import MODELS
from conformance.findings import Finding
from conformance.inputs.places import places
from conformance.io_processor import DATA, cases, loads, meaning, process
from conformance.io_processor.calling import ASYNC
from conformance.io_processor.trial import Trial
from conformance.watching.comparison import letter

#: What a program is made of.
Scene = dict[str, Any]

#: Returns what the programs may be made of that show a failure, the likeliest first.
Scenes = Callable[[Trial, Finding], Iterator[Scene]]

#: Programs that are tried, and seconds for all of them.
TRIED = 12
LIMIT = 40.0


def shown(trial: Trial, rule: str, finding: Finding) -> dict[str, Any]:
    """Return the counterexample of a failure, with a program wherever one shows it."""
    plain = _plain(trial, rule, finding)
    bench = trial.bench
    if trial.untouched is None or plain.get("objects"):
        return plain
    fqcn = f"{bench.cls.__module__}:{bench.cls.__qualname__}"
    case = document(rule, fqcn, plain, bench.generation)
    model = bench.model
    hidden = [spelt("answer", place) for place in sorted(bench.hidden)]
    scenes = islice(_scenes(trial, rule, finding, plain), TRIED)
    left_out = {"hidden": hidden} if hidden else {}
    candidates = (
        {"program": {"model": model, **scene, **(left_out if scene["is"] in _COMPARING else {})}}
        for scene in scenes
    )
    return demonstrated(trial.untouched, case, candidates, limit=LIMIT)


def _plain(trial: Trial, rule: str, finding: Finding) -> dict[str, Any]:
    """Return a failure as data: what replaying it needs."""
    bench = trial.bench
    known: Any = getattr(bench, "stock", None)  # None where nobody has asked for it yet
    listed = trial.section.get("valid", [])
    valid = list(known.originals) if known else listed if isinstance(listed, list) else []
    invalid = list(known.invalid) if known else []
    found: dict[str, Any] = {
        "rule": rule,
        "seed": bench.seed,
        "model": _model(trial.section),
        "valid": encoded(valid),
        "invalid": encoded(invalid),
    }
    carried = [*valid, *invalid]
    case = _case(finding)
    if broken := case.get("broken"):
        history = cases.written(bench, case["stock"], broken)
        trouble = {"kind": "traffic", "message": finding.message}
        trouble["request"] = letter(broken.request)
        found = {"kind": "traffic", **found, "shape": case["shape"], **history, "trouble": trouble}
        carried = [cases.carried(case["stock"], asked) for asked in broken.history.asked]
    else:
        found = {"kind": "check", **found, "parameters": [], "late": "late" in case}
        if "wanted" in case:
            said = meaning.shown(finding)
            found[meaning.TOLD] = [[said["data"], said["wanted"]]]
            found["tolerance"] = {meaning.RTOL: said[meaning.RTOL]}
    if not all(map(_portable, carried)):
        found["objects"] = True
    return found


#: Programs that leave out what answers differ in each time.
_COMPARING = (
    *("history", "awaited-history", "same-awaited", "same-offline", "without-ids"),
    *("other-thread", "two-threads"),
)


def _model(section: Mapping[str, Any]) -> str:
    """Return the name of a model, or the whole path of its folder."""
    name = section.get("model", "tiny-embedding")
    return name if name in MODELS else str(Path(name).resolve())


def _portable(value: object) -> bool:
    """Tell whether a file can hold a value."""
    return repr(decoded(encoded(value))) == repr(value)


def _scenes(trial: Trial, rule: str, finding: Finding, plain: Mapping[str, Any]) -> Iterator[Scene]:
    """Yield what programs may be made of, the likeliest first."""
    if plain.get("late") or "hashed" in _case(finding):
        return  # it takes what other rules have done before, or several processes
    if plain["kind"] == "traffic":
        yield _of_history(plain)
        yield {**_of_history(plain), "reusing": True}
    elif rule in _WITHOUT_DATA:
        yield _WITHOUT_DATA[rule]
    elif rule in _OF_DATA:
        beside = {"beside": case["beside"]} if "beside" in (case := _case(finding)) else {}
        for data in _likely(trial, finding):
            for scene in _OF_DATA[rule]:
                yield {**scene, "data": encoded(data), **beside}
    elif rule in _OTHERS:
        yield from _OTHERS[rule](trial, finding)


#: What happens to a request, and what a program calls that.
_EVENTS = {
    "arrives": "arrive",
    "output delivered": "deliver",
    "engine fails": "fail",
    "client disconnects": "leave",
}


def _of_history(plain: Mapping[str, Any]) -> Scene:
    """Histories are played as they are, and every request is compared that nobody touched."""
    happened = list(_events(plain["lines"], awaited=plain["awaited"]))
    touched = {name for what, name, *_ in happened if what in ("fail", "leave")}
    requests = {each["name"]: [each["data"], each["id"]] for each in plain["requests"]}
    if plain["awaited"]:
        judged = [name for name in requests if name not in touched]
        return {"is": "awaited-history", "requests": requests, "events": happened, "judged": judged}
    for each in plain["requests"]:
        requests[each["name"]] += [each["beside"]] if "beside" in each else []
    events = [event for event in happened if event[0] != "complete" or event[1] not in touched]
    return {"is": "history", "requests": requests, "events": events}


def _events(lines: Sequence[Mapping[str, Any]], *, awaited: bool) -> Iterator[list[Any]]:
    """Yield what a program does for the lines of a history.

    Where hooks are not awaited, outputs count when all of them are there.
    """
    for line in lines:
        event, name = _EVENTS[line["do"]], line["request"]
        at_once = [0.0] if line["hurried"] else []
        if event != "deliver":
            yield [event, name, *at_once]
        elif awaited:
            yield [event, name, line["output"], *at_once]
        if line["over"] and not awaited and event in ("arrive", "deliver"):
            yield ["complete", name]


#: Rules that need no request.
_WITHOUT_DATA: Mapping[str, Scene] = {
    "IO-02": {"is": "constructed"},
    "IO-03": {"is": "with-renderer"},
    "IO-14": {"is": "params"},
    "IO-16": {"is": "fresh"},
    "IO-43": {"is": "params"},
}

_ONLINE, _OFFLINE = {"request_id": "id-0"}, {"request_id": None}

#: Rules about one request.
_OF_DATA: Mapping[str, tuple[Scene, ...]] = {
    "IO-07": ({"is": "answers", **_ONLINE}, {"is": "answers", **_OFFLINE}),
    "IO-08": ({"is": "refuses", **_ONLINE}, {"is": "refuses", **_OFFLINE}),
    "IO-09": ({"is": "hostile"},),
    "IO-10": ({"is": "early"},),
    "IO-11": ({"is": "pure"},),
    "IO-12": ({"is": "forms"},),
    "IO-13": ({"is": "prompts"},),
    "IO-18": ({"is": "same-awaited"}, {"is": "prompts-awaited"}),
    "IO-19": ({"is": "used"},),
    "IO-21": ({"is": "left"},),
    "IO-22": ({"is": "serialisable"},),
    "IO-23": ({"is": "response"},),
    "IO-24": ({"is": "steady"},),
    "IO-25": ({"is": "same-offline"},),
}


def _case(finding: Finding) -> dict[str, Any]:
    """Return what the check has said of its failure, for programs."""
    return finding.case or {}


def _likely(trial: Trial, finding: Finding) -> list[Any]:
    """Return data that a failure may be about: those that the check names, or all."""
    case = _case(finding)
    found = [case["data"]] if "data" in case else trial.bench.stock.valid
    return [data for data in found if _portable(data)]


def _meant(trial: Trial, finding: Finding) -> Iterator[Scene]:
    """IO-40: the request, and what it must be answered."""
    said = meaning.shown(finding)
    bench = trial.bench
    hidden = [spelt("answer", place) for place in bench.hidden | bench.named()]
    for request_id in ("id-0", None):
        scene = {"is": "means", "data": said["data"], "wanted": said["wanted"]}
        more = {"hidden": sorted(hidden)} if hidden else {}
        yield {**scene, "request_id": request_id, **more}


def _naming(name: str, key: str) -> Scenes:
    """Return the scene of a check that is about no request, but about what it names."""

    def scenes(_: Trial, finding: Finding) -> Iterator[Scene]:
        yield {"is": name, key: _case(finding)[key]}

    return scenes


def _interrupted(name: str) -> Scenes:
    """Return the scenes of a request to which something happens after so many outputs."""

    def scenes(trial: Trial, finding: Finding) -> Iterator[Scene]:
        for data in _likely(trial, finding):
            yield {"is": name, "data": encoded(data), "place": _case(finding)["place"]}

    return scenes


def _awaiting(trial: Trial, finding: Finding) -> Iterator[Scene]:
    """IO-06: the hook that cannot be awaited, called for a valid request where there is one."""
    for data in _likely(trial, finding)[:1] or [{}]:
        yield {"is": "awaitable", "hook": _case(finding)["hook"], "data": encoded(data)}


def _offline(trial: Trial, finding: Finding) -> Iterator[Scene]:
    """IO-29: one request after another, neither with an id."""
    found, valid = _case(finding), trial.bench.stock.valid
    if found and all(_portable(valid[found[which]]) for which in ("first", "second")):
        yield {
            "is": "without-ids",
            "data": encoded(valid[found["second"]]),
            "other": encoded(valid[found["first"]]),
            "failing": found["failing"],
        }


def _threads(trial: Trial, finding: Finding) -> Iterator[Scene]:
    """IO-31: one request on another thread, or two on two threads."""
    likely, other = _likely(trial, finding), _case(finding).get("other")
    for data in likely if other is not None and _portable(other) else ():
        for one, two in ((data, other), (other, data)):
            yield {"is": "two-threads", "data": encoded(one), "other": encoded(two)}
    for data in likely:
        yield {"is": "other-thread", "data": encoded(data)}


def _holding(trial: Trial, finding: Finding) -> Iterator[Scene]:
    """IO-32 and IO-33: a request of which a call holds the event loop."""
    case = _case(finding)
    plainly = trial.bench.generation == DATA and case["call"] not in ASYNC
    for data in _likely(trial, finding):
        for awaited in (False, True) if plainly else (True,):
            yield {
                "is": "held",
                "data": encoded(data),
                "what": case["what"],
                "limit": case["limit"],
                "awaited": awaited,
            }


def _growing(trial: Trial, finding: Finding) -> Iterator[Scene]:
    """IO-35, IO-36, IO-44: requests, answered or only begun, with one text and id, or others."""
    answered, unlike = _case(finding)["answered"], "unlike" in _case(finding)
    more = trial.once(loads.optional) if _case(finding).get("optional") else None
    known = more.data if more else trial.bench.stock.valid
    valid = [data for data in known if _portable(data)][:2]
    if count := _case(finding).get("room"):
        yield {"is": "room", "data": encoded(valid), "count": count}
        return
    how = {name: True for name in ("answered", "alike") if _case(finding).get(name)}
    if answered and not unlike:
        yield {"is": "alive", "data": encoded(valid)}
    for what in () if unlike else ("files", "growth"):
        yield {"is": what, "data": encoded(valid), **how}
    for data in valid:
        for place, value in places(data):
            if isinstance(value, str):
                yield {"is": "growth", "data": encoded([data]), "changed": list(place), **how}


def _sharing(trial: Trial, finding: Finding) -> Iterator[Scene]:
    """IO-39 and IO-42: the first request that changes something, and what it changes."""
    case = _case(finding)
    data, awaited = process.which(trial, case["served"])
    if _portable(data) and case["names"]:
        yield {"is": "shares", "data": encoded(data), "names": case["names"], "awaited": awaited}


_OTHERS: Mapping[str, Scenes] = {
    "IO-05": _naming("callable", "hook"),
    "IO-06": _awaiting,
    "IO-40": _meant,
    "IO-15": _naming("kept", "asked"),
    "IO-20": _interrupted("errors"),
    "IO-29": _offline,
    "IO-31": _threads,
    "IO-32": _holding,
    "IO-33": _holding,
    "IO-34": _interrupted("leaves"),
    "IO-35": _growing,
    "IO-36": _growing,
    "IO-39": _sharing,
    "IO-42": _sharing,
    "IO-44": _growing,
}
