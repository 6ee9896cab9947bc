# SPDX-License-Identifier: Apache-2.0
"""The host check: the installed vLLM, hosts broken in one way, and recorded streams."""

from __future__ import annotations

import copy
import functools
import json
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from support import FIXTURES

from conformance.cli import main
from conformance.commands.host import build, observe, read_stream
from conformance.logits_batch.host_check import Finding, Judge, results
from conformance.logits_batch.host_rules import OPTIONAL, RULES, SIDES
from conformance.settings import DEFAULT_SEED
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from conformance.worker import Zygote

DEFECTIVE = FIXTURES / "defective" / "hosts"
UNUSUAL = FIXTURES / "unusual" / "hosts"
STREAM = FIXTURES / "streams" / "vllm-0.32-cpu.jsonl"

Record = dict[str, Any]

HOSTS = [
    (Path(entry["file"]).stem, entry["rule"])
    for entry in tomllib.loads((DEFECTIVE / "index.toml").read_text(encoding="utf-8"))["host"]
]
PROCESSOR = "MarkingProcessor"


def _certify(zygote: Zygote, folder: Path, patch: str | None = None) -> dict[str, Record]:
    """Return the rules of ``host.json`` by id."""
    recorded = observe(
        zygote,
        folder,
        patch=patch and f"{patch}:patch",
        python_path=[str(DEFECTIVE), str(UNUSUAL)],
    )
    document = build(recorded, seed=DEFAULT_SEED, seconds=0.0)
    return {rule["id"]: rule for rule in document["rules"]}


def judge_stream(records: list[Record]) -> list[Finding]:
    """Return (rule, engine step, sentence) for all that is illegal in a recorded stream."""
    judged = Judge()
    judged.judge(records)
    return judged.findings


def _broken(rules: dict[str, Record]) -> dict[str, str]:
    good = (Verdict.PASS, Verdict.NOT_APPLICABLE)
    return {name: rule["message"] for name, rule in rules.items() if rule["verdict"] not in good}


@pytest.mark.engine
def test_the_installed_host_passes(zygote: Zygote, tmp_path: Path) -> None:
    """The installed vLLM keeps every rule, and only what it does not do is not applicable."""
    rules = _certify(zygote, tmp_path)

    assert not _broken(rules)
    idle = {name for name, rule in rules.items() if rule["verdict"] == Verdict.NOT_APPLICABLE}
    assert idle <= set(OPTIONAL)
    assert all(rule["examples"] for name, rule in rules.items() if name not in idle)


@pytest.mark.engine
@pytest.mark.parametrize("name", sorted(path.stem for path in UNUSUAL.glob("*.py")))
def test_unusual_hosts_pass(zygote: Zygote, name: str, tmp_path: Path) -> None:
    """A host within the document passes, also where it does what the installed vLLM does not."""
    rules = _certify(zygote, tmp_path, name)

    assert not _broken(rules)
    if name == "reorders_batches":
        assert rules["HB-06"]["verdict"] == Verdict.PASS


@pytest.mark.engine
@pytest.mark.parametrize(("name", "rule"), HOSTS, ids=[name for name, _ in HOSTS])
def test_defective_hosts_fail_by_their_rule(
    zygote: Zygote, name: str, rule: str, tmp_path: Path
) -> None:
    """A host that is broken in one way fails by the rule that is about it."""
    broken = _certify(zygote, tmp_path, name)[rule]

    assert broken["verdict"] == Verdict.FAIL
    assert broken["message"]


def test_every_rule_has_a_defective_host() -> None:
    """No rule is without a host that it catches, and no host's rule is unknown."""
    assert {rule for _, rule in HOSTS} == {rule.id for rule in RULES}
    assert set(OPTIONAL) | set(SIDES) <= {rule.id for rule in RULES}
    assert {name for name, _ in HOSTS} == {p.stem for p in DEFECTIVE.glob("*.py")} - {"wrapping"}


@pytest.fixture
def stream() -> list[Record]:
    """Return what vLLM 0.32 sent its processors on a CPU."""
    return read_stream(STREAM)


def test_a_recorded_stream_is_legal(stream: list[Record]) -> None:
    """Every rule that a CPU engine shows is shown by the committed stream, and none is broken."""
    assert judge_stream(stream) == []
    found = {result.rule: result.verdict for result in results(stream)}
    assert {name for name, verdict in found.items() if verdict is not Verdict.PASS} == set(OPTIONAL)


def test_a_recorded_stream_replays_in_the_simulator(
    zygote: Zygote, stream: list[Record], tmp_path: Path
) -> None:
    """The orders of the committed stream, played in the simulator, make the same calls."""
    job = zygote.fork(
        "host_check_job:play_stream",
        {},
        log=tmp_path / "job.log",
        directory=tmp_path,
        python_path=[str(folder) for folder in Path(__file__).parents[:2]],
    )
    calls = job.ask(stream, limit=60)
    job.close()

    assert calls == [_call(record["update"]) for record in _updates(stream)]


def test_streams_of_every_kind_of_host_are_legal(zygote: Zygote, tmp_path: Path) -> None:
    """Hosts that reorder, preempt and schedule asynchronously are judged without a finding."""
    job = zygote.fork(
        "host_check_job:record_histories",
        {},
        log=tmp_path / "job.log",
        directory=tmp_path,
        python_path=[str(folder) for folder in Path(__file__).parents[:2]],
    )
    streams = job.ask(200, limit=120)
    job.close()

    assert [judge_stream(stream) for stream in streams] == [[]] * 200
    shown = [{r.rule for r in results(stream) if r.verdict is Verdict.PASS} for stream in streams]
    for rule in ("HB-05", "HB-06", "HB-09", "HB-10", "HB-11", "HB-14"):
        assert sum(rule in rules for rules in shown) > 20


def test_what_a_stream_does_not_hold_is_not_judged(stream: list[Record]) -> None:
    """An engine that records its updates alone is judged by the rules about them alone."""
    updates = [
        {key: value for key, value in record.items() if key != "rows"}
        for record in stream
        if record["event"] == "update"
    ]
    found = {result.rule: result.verdict for result in results(updates)}

    shown = {name for name, verdict in found.items() if verdict is Verdict.PASS}
    assert shown == {"HB-01", "HB-02", "HB-03", "HB-04", "HB-05", "HB-07"}
    assert Verdict.FAIL not in found.values()
    assert {r.verdict for r in results([])} == {Verdict.NOT_VERIFIED, Verdict.NOT_APPLICABLE}


def _updates(stream: list[Record]) -> list[Record]:
    return [r for r in stream if r["event"] == "update" and r["processor"] == PROCESSOR]


def _applies(stream: list[Record]) -> list[Record]:
    return [r for r in stream if r["event"] == "apply" and r["processor"] == PROCESSOR]


def _call(update: Record | None) -> object:
    return update and (
        tuple(sorted(update["removed"])),
        tuple((a["index"], tuple(a["prompt"]), tuple(a["outputs"])) for a in update["added"]),
        tuple(tuple(move) for move in update["moved"]),
    )


def _with(stream: list[Record], field: str, count: int = 1) -> Record:
    """Return the first update that lists at least so many in a field."""
    return next(
        record["update"]
        for record in _updates(stream)
        if record["update"] and len(record["update"][field]) >= count
    )


def _drop_add(stream: list[Record]) -> None:
    _with(stream, "added", 2)["added"].pop()


def _add_at_same_row(stream: list[Record]) -> None:
    added = _with(stream, "added", 2)["added"]
    added[1]["index"] = added[0]["index"]


def _remove_twice(stream: list[Record]) -> None:
    removed = _with(stream, "removed")["removed"]
    removed.append(removed[0])


def _remove_and_add(stream: list[Record]) -> None:
    updates = _updates(stream)
    for before, record in pairwise(updates):
        added = record["update"]["added"] if record["update"] else []
        if added and added[0]["index"] < len(before["rows"]):
            record["update"]["removed"].append(added[0]["index"])
            return


def _reverse_moves(stream: list[Record]) -> None:
    _with(stream, "moved", 2)["moved"].reverse()


def _grow(stream: list[Record]) -> None:
    _with(stream, "added")["batch_size"] += 1


def _say_none(stream: list[Record]) -> None:
    next(record for record in _updates(stream)[1:] if record["update"])["update"] = None


def _exchange_rows(stream: list[Record]) -> None:
    next(record for record in _updates(stream) if len(record["rows"]) > 1)["rows"].reverse()


def _swap_with_itself(stream: list[Record]) -> None:
    _with(stream, "added")["moved"].append([0, 0, "SWAP"])


def _freeze_outputs(stream: list[Record]) -> None:
    for record in stream:
        if "outputs" in record and record["event"] != "finished":
            record["outputs"] = {row: tokens[:1] for row, tokens in record["outputs"].items()}


def _forget_outputs(stream: list[Record]) -> None:
    for record in _updates(stream):
        for entry in record["update"]["added"] if record["update"] else ():
            if entry["outputs"]:
                record["outputs"][str(entry["index"])] = []
                return


def _change_output(stream: list[Record]) -> None:
    tokens = next(list_ for r in _applies(stream) for list_ in r["outputs"].values() if list_)
    tokens[0] += 1


def _keep_placeholder(stream: list[Record]) -> None:
    tokens = next(list_ for r in _applies(stream) for list_ in r["outputs"].values() if list_)
    tokens[-1] = -1


def _cut_prompt(stream: list[Record]) -> None:
    _with(stream, "added")["added"][0]["prompt"].pop()


def _change_argument(stream: list[Record]) -> None:
    _with(stream, "added")["added"][0]["params"]["extra_args"]["mark"] += 1


def _drop_update(stream: list[Record]) -> None:
    stream.remove(next(record for record in _updates(stream) if record["update"] is None))


def _narrow(stream: list[Record]) -> None:
    _applies(stream)[0]["dtype"] = "bfloat16"


def _drop_apply(stream: list[Record]) -> None:
    stream.remove(_applies(stream)[-1])


def _drop_invariant_apply(stream: list[Record]) -> None:
    applied = [r for r in stream if r["event"] == "apply" and r["processor"] != PROCESSOR]
    stream.remove(applied[-1])


def _drop_validation(stream: list[Record]) -> None:
    stream.remove(next(record for record in stream if record["event"] == "validated"))


def _serve_refused(stream: list[Record]) -> None:
    next(record for record in stream if record["event"] == "refused")["raised"] = None


def _build_otherwise(stream: list[Record]) -> None:
    next(record for record in stream if record["event"] == "built")["arguments"].pop()


def _sample_elsewhere(stream: list[Record]) -> None:
    next(record for record in stream if record["event"] == "finished")["outputs"][-1] += 1


@pytest.mark.parametrize(
    ("rule", "corrupt"),
    [
        ("HB-01", _say_none),
        ("HB-02", _remove_twice),
        ("HB-03", _remove_and_add),
        ("HB-04", _add_at_same_row),
        ("HB-05", _reverse_moves),
        ("HB-06", _swap_with_itself),
        ("HB-07", _grow),
        ("HB-07", _drop_add),
        ("HB-08", _exchange_rows),
        ("HB-09", _freeze_outputs),
        ("HB-09", _change_output),
        ("HB-10", _forget_outputs),
        ("HB-11", _keep_placeholder),
        ("HB-12", _cut_prompt),
        ("HB-13", _change_argument),
        ("HB-14", _drop_update),
        ("HB-15", _narrow),
        ("HB-16", _drop_apply),
        ("HB-17", _drop_invariant_apply),
        ("HB-18", _drop_validation),
        ("HB-18", _serve_refused),
        ("HB-19", _build_otherwise),
        ("HB-20", _sample_elsewhere),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__.strip("_"),
)
def test_corrupted_streams_are_illegal(
    stream: list[Record], rule: str, corrupt: Callable[[list[Record]], None]
) -> None:
    """One change to a legal stream is found at once, by the rule that is about it."""
    corrupted = copy.deepcopy(stream)
    corrupt(corrupted)
    assert corrupted != stream

    findings = judge_stream(corrupted)
    assert findings[0].rule == rule


def _asynchronous(update: list[int], apply: list[int]) -> list[Record]:
    """Return a stream of two steps of one request, with its outputs in the second."""
    order = {"event": "step", "finished": [], "scheduled": {"a": 1}}
    added = [{"index": 0, "prompt": [7], "params": {"extra_args": {"request": "a"}}, "outputs": []}]
    first = {"batch_size": 1, "removed": [], "added": added, "moved": []}
    call = {"event": "apply", "processor": "p", "shape": [1, 16], "dtype": "float32"}
    return [
        {"event": "host", "asynchronous": True, "vocabulary": 16},
        {"event": "sent", "request": "a", "prompt": [7], "params": {}},
        {**order, "computed": {"a": 0}},
        {"event": "update", "processor": "p", "update": first, "outputs": {"0": []}},
        {**call, "outputs": {"0": []}},
        {**order, "computed": {"a": 1}},
        {"event": "update", "processor": "p", "update": None, "outputs": {"0": update}},
        {**call, "outputs": {"0": apply}},
        {"event": "finished", "request": "a", "outputs": [9, 10]},
    ]


def _broken_rules(update: list[int], apply: list[int]) -> set[str]:
    # Nobody asked validate_params here.
    return {finding.rule for finding in judge_stream(_asynchronous(update, apply))} - {"HB-18"}


def test_placeholders_of_asynchronous_scheduling() -> None:
    """The newest token may be a placeholder until ``apply``; one that stays is found."""
    assert _broken_rules([-1], [9]) == set()
    assert _broken_rules([9], [9]) == set()
    assert _broken_rules([-1], [-1]) == {"HB-11"}
    assert _broken_rules([], [9]) == {"HB-09"}


def test_a_stream_is_judged_on_the_command_line(stream: list[Record], tmp_path: Path) -> None:
    """``host --stream`` needs no engine: exit status 0 for the committed stream, 1 for another."""
    report = ["--conformance-report", str(tmp_path / "report")]
    passed = CliRunner().invoke(main, ["host", "--stream", str(STREAM), *report])
    assert passed.exit_code == 0
    assert "CONFORMANT" in passed.output

    _grow(stream)
    broken = tmp_path / "broken.jsonl"
    broken.write_text("\n".join(map(json.dumps, stream)), encoding="utf-8")
    failed = CliRunner().invoke(main, ["host", "--stream", str(broken), "--json", *report])
    assert failed.exit_code == 1
    document = json.loads(failed.output)
    assert document["verdict"] == "non-conformant"
    assert document == json.loads((tmp_path / "report" / "host.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "there is no stream"),
        ("{", "line 1: no JSON object"),
        ('{"event": "apply"}', "the stream is damaged"),
    ],
)
def test_a_mistaken_stream_is_a_usage_error(text: str | None, said: str, tmp_path: Path) -> None:
    """A stream that is missing or damaged is said in one sentence, with exit status 4."""
    path = tmp_path / "stream.jsonl"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    report = ["--conformance-report", str(tmp_path / "report")]
    found = CliRunner().invoke(main, ["host", "--stream", str(path), *report])

    assert found.exit_code == 4
    assert said in found.output
    assert "Traceback" not in found.output


@pytest.mark.engine
@pytest.mark.usefixtures("shared_zygote")
def test_the_installed_host_is_certified_on_the_command_line(tmp_path: Path) -> None:
    """``host`` runs an engine, prints rule by rule, and leaves the document and the stream."""
    report = tmp_path / "report"
    found = CliRunner().invoke(main, ["host", "--conformance-report", str(report)])

    assert found.exit_code == 0, found.output
    assert all(rule.id in found.output for rule in RULES)
    document = json.loads((report / "host.json").read_text(encoding="utf-8"))
    assert document["verdict"] == "conformant"
    assert document["environment"]["runner"]
    assert judge_stream(read_stream(report / "stream.jsonl")) == []


def test_an_engine_that_ends_early_proves_nothing(stream: list[Record]) -> None:
    """What was recorded before an engine failed makes no rule pass."""
    document = build(({}, stream, "RuntimeError: out of memory"), seed=0, seconds=0.0)

    assert document["verdict"] == "incomplete"
    assert Verdict.PASS not in {rule["verdict"] for rule in document["rules"]}


def test_a_host_that_does_not_start_proves_nothing(zygote: Zygote, tmp_path: Path) -> None:
    """What keeps the engine from starting is said, and no rule is judged."""
    recorded = observe(zygote, tmp_path, patch="builtins:abs")
    document = build(recorded, seed=DEFAULT_SEED, seconds=0.0)

    assert str(document["failure"]).startswith("TypeError")
    assert document["verdict"] == "incomplete"


@pytest.mark.usefixtures("shared_zygote")
def test_a_host_that_ends_its_process_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """When the process of the engine ends, one sentence says so, with exit status 3."""
    ending = functools.partial(observe, patch="os:abort")
    monkeypatch.setattr("conformance.commands.host.observe", ending)
    found = CliRunner().invoke(main, ["host", "--conformance-report", str(tmp_path)])

    assert found.exit_code == 3
    assert "ended by signal SIGABRT" in found.output
    assert "Traceback" not in found.output
