# SPDX-License-Identifier: Apache-2.0
"""Live evidence of ``logits/slot``: which rules it is about, and what is watched in engines.

What the first engine sent the plugin is recorded, judged row by row against twins, and its orders
are played again in the simulator, where the plugin must be sent the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import torch

from conformance.engine.slot_recording import Applied, Entered, SlotRecording
from conformance.logits.calls import misshapen
from conformance.logits.roles import Roles
from conformance.logits.rows import differing, same
from conformance.logits_slot.bench import Alone
from conformance.logits_slot.host import Host, Joining, request_states

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from conformance.engine.offline import OfflineEngine, Order
    from conformance.engine.slot_recording import Event, Row
    from conformance.logits.ledger import Ledger
    from conformance.logits.offline import Trial
    from conformance.logits.workload import Job
    from conformance.logits_slot.bench import Bench

ROLES = Roles(
    runner="v2",
    loads="LS-01",
    alone="LS-03",
    opt_out="LS-04",
    acts="LS-05",
    refuses="LS-23",
    raises="LS-22",
    survives="LS-24",
    same="LS-30",
)

#: Rules that are about every row or call, and hold when nothing went wrong.
_GENERAL = ("LS-03", "LS-14", "LS-20", "LS-22", "LS-24")


class Watch:
    """Records what a slot processor is sent, and judges it."""

    by_processes = ("LS-23",)

    def insert(self, engine: OfflineEngine, plugin: type) -> SlotRecording:
        """Put a recording around the plugin in the engine."""
        return SlotRecording.insert(engine.runner.sampler, plugin)

    def claims(self, recording: SlotRecording) -> bool:
        """Return False: Model Runner V2 knows no claim of argmax invariance."""
        del recording
        return False

    def remove(self, recording: SlotRecording) -> None:
        """Take the plugin out of the engine."""
        recording.remove()

    def judge(
        self,
        trial: Trial,
        engine: OfflineEngine,
        recording: SlotRecording,
        jobs: list[Job],
        tokens: list[tuple[int, ...]] | None,
    ) -> None:
        """Judge every recorded row, and play the engine's orders again."""
        events = list(recording.events)
        bench: Bench = trial.bench  # type: ignore[assignment] # a bench of this generation
        _Witness(bench, trial.ledger, {job.prompt: job for job in jobs}).judge(events)
        if tokens is None:
            return
        for rule in _GENERAL:
            trial.ledger.saw(rule, sum(isinstance(event, Applied) for event in events))
        outputs = {job.prompt: given for job, given in zip(jobs, tokens, strict=True)}
        replayed = replay(bench, engine.orders, outputs, engine.runner.max_num_reqs)
        for number, (live, ours) in enumerate(zip(events, replayed, strict=False)):
            if live != ours:
                trial.ledger.fault = (
                    f"the simulator and the engine disagree in call {number}: the engine sent "
                    f"{live}, the simulator {ours}; please report this"
                )
                return


@attrs.define
class _Live:
    """A request of the recording."""

    job: Job
    twin: Alone
    event: str | None = None  #: the rule about what its next row has just been through


@attrs.define
class _Witness:
    """Follows the calls that one live engine makes."""

    bench: Bench
    ledger: Ledger
    jobs: Mapping[tuple[int, ...], Job]
    _entered: dict[str, Entered] = attrs.field(factory=dict)
    _known: dict[str, _Live] = attrs.field(factory=dict)
    _slots: set[int] = attrs.field(factory=set)
    _rules: dict[str, str] = attrs.field(factory=dict)

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
            self._rules[event.name] = "LS-08"
        elif event.slot in self._slots:
            self._rules[event.name] = "LS-06"
        self._slots.add(event.slot)

    def _judge(self, event: Applied, where: str) -> bool:
        if problem := misshapen(event.after, event.before, event.before.shape):
            self.ledger.fail("LS-20", f"{problem} in {where}")
            return False
        assert isinstance(event.after, torch.Tensor)
        if [row.slot for row in event.rows] != sorted(row.slot for row in event.rows):
            self.ledger.saw("LS-07")
        for row, before, after in zip(event.rows, event.before, event.after, strict=True):
            if row.unfinished:
                self._rules.setdefault(row.name, "LS-09")
            elif not self._judge_row(row, before.cpu(), after.cpu(), where):
                return False
        return True

    def _judge_row(self, row: Row, before: torch.Tensor, after: torch.Tensor, where: str) -> bool:
        live = self._live(row)
        choice = live.job.choice
        rule = self._rules.pop(row.name, None)
        changed = not torch.equal(before, after)
        if changed and choice[0] == "on":
            self.ledger.acted.add(choice)
        if changed and choice[0] == "off":
            self.ledger.fail("LS-04", f"a row of a request that did not opt in changed in {where}")
            return False
        if changed and not self._entered[row.name].answer:
            self.ledger.fail("LS-14", f"a row of a declined request was changed in {where}")
            return False
        for token in row.tokens[row.prompt_len + len(live.twin.outputs) :]:
            live.twin.append(token)
        live.twin.processed = True  # the engine did, for whatever reason
        expected = live.twin.row(before)
        if not same(after, expected):
            token, got, wanted = differing(after, expected)[0]
            self.ledger.fail(
                rule or "LS-03",
                f"the row of slot {row.slot} differs from the one that the request gets alone in "
                f"{where}: token {token} is {got:.5g}, expected {wanted:.5g}",
            )
            return False
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
    max_requests: int,
) -> list[Event]:
    """Play a live engine's orders in the simulator; return what a fresh instance is sent.

    Args:
        bench: the plugin.
        orders: what the scheduler ordered, step by step.
        outputs: the tokens that each prompt got in the engine.
        max_requests: slots of the engine.

    """
    states = request_states(bench.vocabulary, max_requests)
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
        host.process(torch.zeros(len(rows.names), bench.vocabulary), rows)

        def chosen(position: int, names: tuple[str, ...] = rows.names) -> tuple[int, ...]:
            name = names[position]
            given = outputs[host.prompts[name]]
            done = len(host.outputs[name])
            return given[done : done + 1] or (0,)

        host.complete(rows, chosen)
    return recording.events
