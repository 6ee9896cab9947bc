# SPDX-License-Identifier: Apache-2.0
"""Judging what a live engine sent a slot plugin: each row against the request's twin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import numpy as np
import torch

from conformance.engine.offline import Order
from conformance.engine.slot_recording import Applied, Entered, Event, Row, SlotRecording
from conformance.inputs.history import Choice
from conformance.ledger import Ledger
from conformance.logits.calls import misshapen
from conformance.logits.rows import differing, same
from conformance.logits_slot.bench import Alone, Bench
from conformance.logits_slot.host import Host, Joining, request_states
from conformance.logits_slot.live import CHUNKED, RESUMED, Found, Judge
from conformance.rules import Evidence


def judge(plugin: type, errand: Judge) -> Found:
    """Judge every row that an engine sampled from, and play its orders again."""
    bench = Bench(plugin, errand.model, errand.parameters, errand.seed)
    bench.meaning = errand.meaning
    witness = _Witness(bench, dict(errand.jobs))
    witness.judge(errand.events)
    replayed = replay(bench, errand.orders, errand.outputs, errand.free)
    for number, (live, ours) in enumerate(zip(errand.events, replayed, strict=False)):
        if live != ours:
            witness.ledger.fault = (
                f"the simulator and the engine disagree in call {number}: the engine sent "
                f"{live}, the simulator {ours}; please report this"
            )
            break
    return Found(witness.ledger, witness.acted)


@attrs.define
class _Live:
    """A request of the recording."""

    choice: Choice
    twin: Alone
    astray: bool = False  #: whether its rows differed, for which they are judged no more


@attrs.define
class _Witness:
    """Follows the calls that one live engine makes."""

    bench: Bench
    jobs: Mapping[tuple[int, ...], Choice]
    ledger: Ledger = attrs.field(factory=lambda: Ledger(Evidence.OFFLINE))
    acted: set[Choice] = attrs.field(factory=set)
    _entered: dict[str, Entered] = attrs.field(factory=dict)
    _known: dict[str, _Live] = attrs.field(factory=dict)
    _slots: set[int] = attrs.field(factory=set)
    _rules: dict[str, str] = attrs.field(factory=dict)
    #: The advice that the rows of a request are about, whatever else happens to it.
    _advice: dict[str, str] = attrs.field(factory=dict)

    def judge(self, events: Sequence[Event]) -> None:
        """Judge all calls; the first row that is wrong ends it."""
        for number, event in enumerate(events):
            if isinstance(event, Entered):
                self._enter(event)
            elif isinstance(event, Applied) and not self._judge(event, f"call {number}"):
                return

    def _enter(self, event: Entered) -> None:
        self._entered[event.name] = event
        if event.prefill_len > event.prompt_len:
            self._rules[event.name] = self._advice[event.name] = RESUMED
        elif event.slot in self._slots:
            self._rules[event.name] = "LS-06"
        self._slots.add(event.slot)

    def _judge(self, event: Applied, where: str) -> bool:
        given, got = torch.from_numpy(event.before), event.after
        got = torch.from_numpy(got) if isinstance(got, np.ndarray) else got
        if problem := misshapen(got, given, given.shape):
            self.ledger.fail("LS-20", f"{problem} in {where}")
            return False
        assert isinstance(got, torch.Tensor)
        if [row.slot for row in event.rows] != sorted(row.slot for row in event.rows):
            self.ledger.saw("LS-07")
        for row, before, after in zip(event.rows, given, got, strict=True):
            if row.unfinished:
                self._rules.setdefault(row.name, CHUNKED)
                self._advice.setdefault(row.name, CHUNKED)
            elif not self._judge_row(row, before, after, where):
                return False
        return True

    def _judge_row(self, row: Row, before: torch.Tensor, after: torch.Tensor, where: str) -> bool:
        live = self._live(row)
        choice = live.choice
        rule = self._rules.pop(row.name, None)
        changed = not torch.equal(before, after)
        if changed and choice[0] == "on":
            self.acted.add(choice)
        if changed and choice[0] == "off":
            self.ledger.fail("LS-04", f"a row of a request that did not opt in changed in {where}")
            return False
        if changed and not self._entered[row.name].answer:
            self.ledger.fail("LS-14", f"a row of a declined request was changed in {where}")
            return False
        for token in row.tokens[row.prompt_len + len(live.twin.outputs) :]:
            live.twin.append(token)
        if live.astray:
            return True
        live.twin.processed = True  # the engine did, for whatever reason
        expected = live.twin.row(before)
        if not same(after, expected):
            token, got, wanted = differing(after, expected)[0]
            advice = self._advice.get(row.name)
            live.astray = advice is not None
            note = self.ledger.advise if live.astray else self.ledger.fail
            note(
                advice or rule or "LS-03",
                f"the row of slot {row.slot} differs from the one that the request gets alone in "
                f"{where}: token {token} is {got:.5g}, expected {wanted:.5g}",
            )
            return live.astray
        if (meaning := self.bench.meaning) is not None:
            said = self._entered[row.name].params, live.twin.prompt, live.twin.outputs
            meaning.note(self.ledger, "LS-43", *said, before=before, after=after)
        self.ledger.saw(rule or "LS-03")
        self.ledger.saw("LS-04", int(choice[0] == "off"))
        return True

    def _live(self, row: Row) -> _Live:
        if row.name not in self._known:
            prompt = row.tokens[: row.prompt_len]
            twin = Alone(self.bench.new(trusted=True), self._entered[row.name].params, prompt)
            self._known[row.name] = _Live(self.jobs[prompt], twin)
        return self._known[row.name]


def replay(
    bench: Bench,
    orders: Sequence[Order],
    outputs: Mapping[tuple[int, ...], tuple[int, ...]],
    free: Sequence[int],
) -> list[Event]:
    """Play a live engine's orders in the simulator; return what a fresh instance is sent.

    Args:
        bench: the plugin.
        orders: what the scheduler ordered, step by step.
        outputs: the tokens that each prompt got in the engine.
        free: slots of the engine before its first request, the next to be given away last.

    """
    states = request_states(bench.vocabulary, len(free))
    states.free_indices = list(free)
    host = Host(states, bench.construct(states), bench.model)
    recording = SlotRecording.insert(host.sampler, bench.plugin)
    for order in orders:
        host.schedule(
            finish=[name for name in order.finished if name in host.running],
            pause=order.preempted,
            join=[
                Joining(
                    name,
                    prefill.tokens[: prefill.prompt_len],
                    prefill.tokens[prefill.prompt_len :],
                    params,
                )
                for name, _, params in order.new
                for prefill in (order.prefills[name],)
            ],
            scheduled=order.scheduled,
        )
        if not host.scheduled:
            continue
        rows = host.prepare({})
        host.process(torch.zeros(len(rows.names), bench.vocabulary, dtype=torch.float32), rows)

        def chosen(position: int, names: tuple[str, ...] = rows.names) -> tuple[int, ...]:
            name = names[position]
            given = outputs[host.prompts[name]]
            done = len(host.outputs[name])
            return given[done : done + 1] or (0,)

        host.complete(rows, chosen)
    return recording.events
