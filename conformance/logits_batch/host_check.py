# SPDX-License-Identifier: Apache-2.0
"""Judging what a host sent its batch logits processors, from a recorded stream alone.

A stream is a list of JSON objects in the order of what happened; :mod:`.host_engine` records one,
and so may any other engine.  Each has an ``event``:

=========== ====================================================================================
host        ``asynchronous``: whether steps are scheduled before the last one's tokens are known;
            ``vocabulary``: its size
built       ``processor``, ``argmax_invariant``, ``arguments``: type names of what the constructor
            got
sent        ``request``, ``prompt``, ``params``: what a user asked for; ``expected``: the output
            tokens that the processors leave no choice about
validated   ``processor``, ``request``: ``validate_params`` was called
refused     ``request``, ``raised``: what the client of a request that ``validate_params`` refuses
            got, or null
step        ``finished``, ``scheduled`` and ``computed``: the scheduler's order, tokens by request
update      ``processor``, ``update``: null for None, else the fields of ``BatchUpdate``, where
            ``added`` holds objects with ``index``, ``prompt``, ``params`` and ``outputs``;
            ``outputs``: the retained lists, by row after the update; ``rows``: requests by row as
            the runner has them
apply       ``processor``, ``shape``, ``dtype``, ``outputs``: as in an update
finished    ``request``, ``outputs``: what its user got
=========== ====================================================================================

``request`` is a name that is unique in the stream; an added request is known by
``params.extra_args.request``, else by its prompt.  What a stream does not hold (``step``, ``rows``,
``expected``, ...) is not judged.  Imports neither vLLM nor torch.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import attrs

from conformance.logits_batch.batch_model import ONE_WAY, SWAP, Update, judge
from conformance.logits_batch.host_rules import OPTIONAL, RULES, SIDES
from conformance.rules import Evidence
from conformance.verdict import RuleResult, Verdict

PLACEHOLDER = -1

Record = dict[str, Any]


class Finding(NamedTuple):
    """One way in which a host broke a rule."""

    rule: str
    step: int  #: the engine step, from 0
    sentence: str


@attrs.define
class _Processor:
    """What is known about one processor."""

    invariant: bool | None = None
    rows: tuple[str, ...] | None = ()  #: requests by row; None after an illegal update
    added: frozenset[str] = frozenset()  #: requests that the latest update added
    updates: int = 0  #: calls in the current step
    applied: int = 0


@attrs.define
class _Request:
    """What is known about one request."""

    sent: Record
    final: list[int] | None = None
    count: int = 0  #: output tokens sampled before the current step
    validated: set[str] = attrs.field(factory=set)

    @property
    def greedy(self) -> bool:
        """Whether the request is sampled at temperature 0."""
        return bool(self.sent["params"].get("temperature", 1.0) == 0)


@attrs.define
class Judge:
    """A stream, judged record by record."""

    findings: list[Finding] = attrs.field(factory=list)
    tested: Counter[str] = attrs.field(factory=Counter)  #: how often each rule was
    sides: dict[str, set[str]] = attrs.field(factory=lambda: defaultdict(set))
    step: int = -1
    _asynchronous: bool = False
    _vocabulary: int | None = None
    _processors: dict[str, _Processor] = attrs.field(factory=lambda: defaultdict(_Processor))
    _requests: dict[str, _Request] = attrs.field(factory=dict)
    _by_prompt: dict[tuple[int, ...], str] = attrs.field(factory=dict)
    _refused: set[str] = attrs.field(factory=set)
    _order: Record | None = None
    _sampled: frozenset[str] = frozenset()  #: requests that get a token in this step

    def judge(self, records: Sequence[Record]) -> None:
        """Judge a whole stream."""
        for record in records:
            if record["event"] == "sent":
                self._requests[record["request"]] = _Request(record)
                self._by_prompt[tuple(record["prompt"])] = record["request"]
        for record in records:
            if record["event"] == "finished":
                self._requests[record["request"]].final = record["outputs"]
        for record in records:
            if (handler := getattr(self, f"_on_{record['event']}", None)) is not None:
                handler(record)
        self._end_step()

    def _find(self, rule: str, sentence: str) -> None:
        self.findings.append(Finding(rule, max(self.step, 0), sentence))

    def _test(self, rule: str, sentence: str, *, holds: bool, side: str | None = None) -> None:
        self.tested[rule] += 1
        if side is not None:
            self.sides[rule].add(side)
        if not holds:
            self._find(rule, sentence)

    def _on_host(self, record: Record) -> None:
        self._asynchronous = record["asynchronous"]
        self._vocabulary = record["vocabulary"]

    def _on_built(self, record: Record) -> None:
        self._processors[record["processor"]].invariant = record["argmax_invariant"]
        arguments = record["arguments"]
        self._test(
            "HB-19",
            f"the constructor got ({', '.join(arguments)}), expected (VllmConfig, device, bool)",
            holds=arguments == ["VllmConfig", "device", "bool"],
        )

    def _on_validated(self, record: Record) -> None:
        if (request := self._requests.get(record["request"])) is not None:
            request.validated.add(record["processor"])

    def _on_refused(self, record: Record) -> None:
        name = record["request"]
        self._refused.add(name)
        self._test(
            "HB-18",
            f"request {name} was served, though validate_params refuses it",
            holds=record["raised"] is not None,
            side="a refusal",
        )

    def _on_finished(self, record: Record) -> None:
        expected = self._requests[record["request"]].sent.get("expected")
        if expected is None:
            return
        got = record["outputs"]
        pairs = enumerate(zip(got, expected, strict=False))
        wrong = next((i for i, (a, b) in pairs if a != b), min(len(got), len(expected)))
        self._test(
            "HB-20",
            f"request {record['request']} got other tokens than its processors left it, from "
            f"output {wrong} on",
            holds=got == expected,
        )

    def _on_step(self, record: Record) -> None:
        self._end_step()
        self.step += 1
        self._order = record
        sampled = set()
        for name, tokens in record["scheduled"].items():
            if (request := self._requests.get(name)) is not None:
                length = len(request.sent["prompt"]) + request.count
                if record["computed"].get(name, 0) + tokens >= length:
                    sampled.add(name)
        self._sampled = frozenset(sampled)
        for processor in self._processors.values():
            processor.updates = processor.applied = 0

    def _end_step(self) -> None:
        order, self._order = self._order, None
        if order is None:
            return
        scheduled = [self._requests[r] for r in order["scheduled"] if r in self._requests]
        greedy = bool(scheduled) and all(request.greedy for request in scheduled)
        for name, processor in self._processors.items():
            if order["scheduled"]:
                self._test(
                    "HB-14",
                    f"update_state of {name} was called {processor.updates} times",
                    holds=processor.updates == 1,
                )
            self._count_applies(name, processor, greedy=greedy)
        for request in self._sampled:
            self._requests[request].count += 1

    def _count_applies(self, name: str, processor: _Processor, *, greedy: bool) -> None:
        """Judge how often a processor was applied in the step that ends."""
        count = processor.applied
        side = "an all-greedy batch" if greedy else "a mixed batch"
        if processor.invariant is False and self._sampled:
            sentence = f"{name} was applied {count} times to {side}"
            self._test("HB-16", sentence, holds=count == 1, side=side)
        elif processor.invariant and greedy:
            sentence = f"{name} was applied to an all-greedy batch"
            self._test("HB-17", sentence, holds=count == 0, side=side)
        elif processor.invariant and not all(self._requests[r].greedy for r in self._sampled):
            sentence = f"{name} was applied {count} times in a step that samples at random"
            self._test("HB-17", sentence, holds=count == 1, side=side)

    def _on_update(self, record: Record) -> None:
        processor = self._processors[record["processor"]]
        processor.updates += 1
        added = record["update"]["added"] if record["update"] else []
        names = [self._name(index, entry) for index, entry in enumerate(added)]
        processor.added = frozenset(names)
        update = _update(record["update"], names)
        self._count(update)
        if processor.rows is not None:
            judgement = judge(update, processor.rows, self._leaving(processor))
            for rule, sentence in judgement.findings:
                self._find(rule, sentence)
            processor.rows = judgement.rows
            self._check_rows(record, processor.rows)
        if processor.rows is None and record.get("rows") is not None:
            # One broken update must not hide what follows.
            processor.rows = tuple(record["rows"])
        for name, entry in zip(names, added, strict=True):
            self._check_added(record["processor"], name, entry)
        self._check_outputs(processor, record, repaired=False)

    def _leaving(self, processor: _Processor) -> set[str] | None:
        """Return who leaves by the scheduler's order; None where it leaves that to the runner."""
        if self._order is None or not self._order["scheduled"]:
            return None
        stay: set[str] = (
            self._order["scheduled"].keys() - set(self._order["finished"]) - processor.added
        )
        return set(processor.rows or ()) - stay

    def _name(self, position: int, entry: Record) -> str:
        name = (entry["params"].get("extra_args") or {}).get("request")
        if name in self._requests:
            return str(name)
        known = self._by_prompt.get(tuple(entry["prompt"] or ()))
        return known if known is not None else f"unknown request {self.step}.{position}"

    def _count(self, update: Update[str] | None) -> None:
        self.tested["HB-01"] += 1
        self.sides["HB-01"].add("None" if update is None else "an update")
        if update is None:
            return
        ways = {way for _, _, way in update.moved}
        self.tested["HB-02"] += len(update.removed)
        self.tested["HB-03"] += len(update.added)
        self.tested["HB-04"] += len(update.added)
        self.tested["HB-05"] += ONE_WAY in ways
        self.tested["HB-06"] += SWAP in ways
        self.tested["HB-07"] += 1

    def _check_rows(self, record: Record, rows: tuple[str, ...] | None) -> None:
        """Judge the rows that an update leads to against the scheduler's order and the runner."""
        if rows is None:
            return
        rule = "HB-08" if record["update"] else "HB-01"
        told = "the update" if record["update"] else "None"
        if self._order is not None:
            scheduled = set(self._order["scheduled"])
            gone = set(rows) - scheduled if scheduled else {*rows} & {*self._order["finished"]}
            missing = scheduled - set(rows)
            sentence = f"after {told} {', '.join(sorted(gone))} is still in the batch"
            if not gone:
                sentence = f"after {told} {', '.join(sorted(missing))} is not in the batch"
            self._test(rule, sentence, holds=not gone and not missing)
        if record.get("rows") is not None:
            sentence = f"after {told} the rows are {list(rows)}, the runner has {record['rows']}"
            self._test(rule, sentence, holds=list(rows) == record["rows"])

    def _check_added(self, processor: str, name: str, entry: Record) -> None:
        if (request := self._requests.get(name)) is None:
            return
        sent = request.sent
        self._test(
            "HB-12",
            f"the prompt of request {name} is {entry['prompt']}, sent was {sent['prompt']}",
            holds=entry["prompt"] == sent["prompt"],
        )
        params = {key: entry["params"].get(key) for key in sent["params"]}
        self._test(
            "HB-13",
            f"the parameters of request {name} are {params}, sent were {sent['params']}",
            holds=params == sent["params"],
        )
        asked = processor in request.validated and name not in self._refused
        self._test(
            "HB-18",
            f"request {name} was added before validate_params of {processor} allowed it",
            holds=asked,
            side="an admission",
        )

    def _on_apply(self, record: Record) -> None:
        processor = self._processors[record["processor"]]
        processor.applied += 1
        if self._order is not None and not processor.updates:
            self._find("HB-14", f"{record['processor']} was applied before update_state")
        if processor.rows is not None:
            wanted = [len(processor.rows), self._vocabulary or record["shape"][-1]]
            self._test(
                "HB-15",
                f"apply got {record['dtype']} {record['shape']}, expected float32 {wanted}",
                holds=record["shape"] == wanted and record["dtype"] == "float32",
            )
        self._check_outputs(processor, record, repaired=True)

    def _check_outputs(self, processor: _Processor, record: Record, *, repaired: bool) -> None:
        """Judge the retained lists of output tokens, at ``update_state`` and at ``apply``."""
        for row, name in enumerate(processor.rows or ()):
            tokens = record["outputs"].get(str(row))
            request = self._requests.get(name)
            if tokens is None or request is None:
                continue
            if tokens and (self._asynchronous or PLACEHOLDER in tokens):
                end = [] if repaired else [PLACEHOLDER]
                when = "apply" if repaired else "update_state"
                known = list(tokens)
                while end and known and known[-1] == PLACEHOLDER:
                    known.pop()
                sentence = f"the outputs of request {name} are {tokens} in {when}"
                self._test("HB-11", sentence, holds=PLACEHOLDER not in known)
            self._check_tokens(name, request, tokens, fresh=name in processor.added)

    def _check_tokens(
        self, name: str, request: _Request, tokens: list[int], *, fresh: bool
    ) -> None:
        if self._order is None:
            return
        if fresh and self._asynchronous and len(tokens) == request.count - 1:
            # The token in flight when the request was preempted is sampled again.
            request.count = len(tokens)
        final = request.final or []
        same = all(a in (PLACEHOLDER, b) for a, b in zip(tokens, final, strict=False))
        resumed = fresh and request.count > 0
        if fresh and not resumed:
            return
        self._test(
            "HB-10" if resumed else "HB-09",
            f"the outputs of request {name} are {tokens}, expected {request.count} tokens "
            f"that begin {final[: request.count]}",
            holds=len(tokens) == request.count and same,
        )


def results(records: Sequence[Record]) -> list[RuleResult]:
    """Judge a recorded stream; return one result for each host rule."""
    judged = Judge()
    judged.judge(records)
    return [_result(judged, rule.id) for rule in RULES]


def _result(judged: Judge, rule: str) -> RuleResult:
    found = [finding for finding in judged.findings if finding.rule == rule]
    tested = judged.tested[rule]
    missing = sorted(SIDES.get(rule, set()) - judged.sides[rule])
    message = None
    if found:
        verdict = Verdict.FAIL
        message = f"step {found[0].step}: {found[0].sentence}"
        if len(found) > 1:
            message += f" (and {len(found) - 1} more)"
    elif not tested and rule in OPTIONAL:
        verdict, message = Verdict.NOT_APPLICABLE, OPTIONAL[rule]
    elif not tested or missing:
        verdict = Verdict.NOT_VERIFIED
        message = f"the stream does not show {' or '.join(missing)}" if missing else "never tested"
    else:
        verdict = Verdict.PASS
    return RuleResult(rule, verdict, Evidence.OFFLINE, tested, tested, message=message)


def _update(document: Mapping[str, Any] | None, names: Sequence[str]) -> Update[str] | None:
    """Read an update, with the names of those that are added."""
    if document is None:
        return None
    return Update(
        document["batch_size"],
        tuple(document["removed"]),
        tuple((entry["index"], name) for entry, name in zip(document["added"], names, strict=True)),
        tuple((a, b, way) for a, b, way in document["moved"]),
    )
