# SPDX-License-Identifier: Apache-2.0
"""Live evidence of ``logits/slot``: which rules it is about, and what is watched in engines.

What the first engine sent the plugin is recorded, judged row by row against twins, and its orders
are played again in the simulator, where the plugin must be sent the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import torch

from conformance.engine.slot_recording import Applied, SlotRecording
from conformance.logits.roles import Roles

if TYPE_CHECKING:
    from collections.abc import Mapping

    from conformance.engine.offline import OfflineEngine, Order
    from conformance.engine.slot_recording import Event
    from conformance.inputs.history import Choice
    from conformance.ledger import Ledger
    from conformance.logits.meaning import Meaning
    from conformance.logits.offline import Trial
    from conformance.logits.workload import Job
    from conformance.watching.untouched import Errands

ROLES = Roles(
    runner="v2",
    loads="LS-01",
    alone="LS-03",
    opt_out="LS-04",
    acts="LS-05",
    refuses="LS-23",
    raises="LS-22",
    harmless="LS-35",
    client_error="LS-39",
    survives="LS-24",
    combined="LS-36",
    means="LS-43",
    same="LS-30",
)

#: What a request loses by being preempted or computed in parts: no other rule waits for it.
RESUMED, CHUNKED = "LS-08", "LS-09"

#: Rules that are about every row or call, and hold when nothing went wrong.
_GENERAL = ("LS-03", "LS-14", "LS-20", "LS-22", "LS-24")


@attrs.define
class Watch:
    """Records what a slot processor is sent, and has it judged.

    What judges replaces parts of torch: it runs in a process without an engine.
    """

    untouched: Errands
    model: str
    by_processes: tuple[str, ...] = ("LS-41",)

    def insert(self, engine: OfflineEngine, plugin: type) -> SlotRecording:
        """Put a recording around the plugin in the engine."""
        return SlotRecording.insert(engine.runner.sampler, plugin)

    def claims(self, recording: SlotRecording) -> bool:
        """Return False: Model Runner V2 knows no claim of argmax invariance."""
        del recording
        return False

    def judge(
        self,
        trial: Trial,
        engine: OfflineEngine,
        recording: SlotRecording,
        jobs: list[Job],
        tokens: list[tuple[int, ...]] | None,
    ) -> None:
        """Have every recorded row judged, and the engine's orders played again."""
        errand = Judge(
            self.model,
            trial.bench.parameters,
            trial.bench.seed,
            tuple((job.prompt, job.choice) for job in jobs),
            tuple(_plain(event) for event in recording.events),
            tuple(engine.orders) if tokens is not None else (),
            {job.prompt: given for job, given in zip(jobs, tokens or (), strict=False)},
            recording.free,
            trial.bench.meaning,
        )
        found: Found = self.untouched.run(errand)
        trial.ledger.include(found.ledger)
        trial.acted |= found.acted
        if tokens is not None:
            for rule in _GENERAL:
                trial.ledger.saw(rule, sum(isinstance(e, Applied) for e in recording.events))


@attrs.frozen
class Found:
    """What the rows and calls of one engine come to."""

    ledger: Ledger
    acted: set[Choice]


@attrs.frozen
class Judge:
    """An errand: judge what an engine sent a plugin."""

    model: str
    parameters: Mapping[Choice, Mapping[str, Any]]
    seed: int
    jobs: tuple[tuple[tuple[int, ...], Choice], ...]  #: prompt and parameter set of each
    events: tuple[Event, ...]
    orders: tuple[Order, ...]  #: none where a request failed
    outputs: Mapping[tuple[int, ...], tuple[int, ...]]  #: the tokens that each prompt got
    free: tuple[int, ...]  #: all slots, the next to be given away last
    meaning: Meaning | None = None
    what: str = "conformance.logits_slot.witness:judge"


def _plain(event: Event) -> Event:
    """Return an event without tensors, which torch would hand to another process by reference."""
    if not isinstance(event, Applied):
        return event
    after = event.after
    if isinstance(after, torch.Tensor):
        after = (
            after.float().cpu().numpy() if after.dtype is torch.bfloat16 else after.cpu().numpy()
        )
    return attrs.evolve(event, before=event.before.cpu().numpy(), after=after)
