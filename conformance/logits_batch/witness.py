# SPDX-License-Identifier: Apache-2.0
"""Judging what a plugin did in a live engine: every recorded row against the request's twin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import torch
from vllm.sampling_params import SamplingParams, SamplingType
from vllm.v1.sample.logits_processor import BatchUpdate

from conformance.inputs.history import Choice
from conformance.ledger import Ledger
from conformance.logits.calls import call, misshapen
from conformance.logits.rows import dethroned, differing, same
from conformance.logits.workload import Job
from conformance.logits_batch.bench import Bench, Watched
from conformance.logits_batch.play import describe_update
from conformance.logits_batch.recording import Recorded, Rows
from conformance.logits_batch.twins import Twin

#: What a row has just been through, and the rule that is about it.
RULE_OF_EVENT = {
    "replaced": "LB-06",
    "moved": "LB-07",
    "resumed": "LB-11",
    "chunked": "LB-18",
}

#: Rules that are advice: what a request lost by such an event may show in any later row.
_ADVICE = frozenset(("LB-11", "LB-18"))


@attrs.define
class _Live:
    """A request in the recording."""

    job: Job
    twin: Twin  #: with the engine's own parameters: its front end adds to them
    event: str = "joined"
    advice: str | None = None  #: the advice that its rows are about, whatever else happens to it
    astray: bool = False  #: whether its rows differed, for which they are judged no more


@attrs.define
class Witness:
    """Follows the steps of one live engine."""

    bench: Bench
    ledger: Ledger
    config: Any  #: the engine's ``VllmConfig``
    device: torch.device
    claims: bool  #: whether the plugin claims argmax invariance
    acted: set[Choice]  #: takes parameter sets that had an effect
    _skipped: bool = False  #: whether ``apply`` was skipped in the step before
    _skips: int = 0  #: for how many steps the twins took part in spite of that
    _by_prompt: dict[tuple[int, ...], Job] = attrs.field(factory=dict)
    _known: dict[tuple[int, ...], _Live] = attrs.field(factory=dict)
    _rows: Rows[_Live] = attrs.field(factory=Rows)
    _number: int = 0

    def judge(
        self, steps: Sequence[Recorded], jobs: Sequence[Job], *, skipping: bool = False
    ) -> None:
        """Judge the next steps of the engine.

        Args:
            steps: what was recorded since the last call.
            jobs: the requests that these steps are about.
            skipping: whether twins take part in steps in which the engine skipped ``apply``; only
                where no prefill is chunked, for which rows would belong to nobody's token.

        """
        self._by_prompt |= {job.prompt: job for job in jobs}
        for step in steps:
            self._number += 1
            if step.update is None:
                self.ledger.saw("LB-09", 1)
            else:
                self.ledger.saw("LB-19", len(step.update.removed))
                self._rows.update(_as_it_was(step), self._enter, _moved)
            if step.applied is not None:
                if not self._judge_step(step):
                    return
                self._skipped = False
            elif self._rows.at:
                self._skipped = self.claims
                if skipping:
                    self._pass_over(step)
        for step in steps:
            for (_, params, _, _), kept in zip(
                step.update.added if step.update else (), step.params, strict=True
            ):
                if params != kept:
                    self.ledger.fail("LB-43", "the plugin wrote to the parameters of a request")

    def _enter(
        self,
        index: int,  # noqa: ARG002 - the signature of Rows.update
        params: SamplingParams,
        prompt: list[int] | None,
        outputs: list[int],
        before: _Live | None,
    ) -> _Live:
        key = tuple(prompt or ())
        if key not in self._known:
            instance = Watched(
                call("__init__", self.bench.plugin, self.config, self.device, False)  # noqa: FBT003 - vLLM's own call
            )
            self._known[key] = _Live(self._by_prompt[key], Twin(instance, params, list(key), []))
        live = self._known[key]
        resumed = live.twin.started and bool(outputs)
        live.event = "resumed" if resumed else "replaced" if before else "joined"
        live.advice = RULE_OF_EVENT["resumed"] if resumed else live.advice
        return live

    def _judge_step(self, step: Recorded) -> bool:
        assert step.applied is not None
        before, after = step.applied.before, step.applied.after
        where = f"step {self._number - 1} ({describe_update(step.update)})"
        if problem := misshapen(after, before, before.shape):
            self.ledger.fail("LB-14", f"{problem} in {where}")
            return False
        assert isinstance(after, torch.Tensor)
        for row, live in sorted(self._rows.at.items()):
            if row in step.applied.discarded:
                live.event = "chunked" if live.event == "joined" else live.event
                live.advice = live.advice or RULE_OF_EVENT["chunked"]
                continue
            live.twin.outputs[:] = step.outputs[row]
            if not self._judge_row(live, row, before[row], after[row], where):
                return False
        # Rows were right although the logits were not packed.
        self.ledger.saw("LB-29", int(not step.applied.contiguous))
        return True

    def _judge_row(
        self, live: _Live, row: int, before: torch.Tensor, after: torch.Tensor, where: str
    ) -> bool:
        changed = not torch.equal(before, after)
        rule = "LB-26" if self._skipped else RULE_OF_EVENT.get(live.event)
        if changed and live.job.choice[0] == "on":
            self.acted.add(live.job.choice)
        if changed and live.job.choice[0] == "off":
            self.ledger.fail(
                rule or "LB-04",
                f"row {row} of a request that did not opt in was changed in {where}",
            )
            return False
        random = live.twin.params.sampling_type is not SamplingType.GREEDY
        for what, find in (("NaN", torch.isnan), ("+inf", torch.isposinf))[: 1 + random]:
            if find(after).any() and not find(before).any():
                self.ledger.fail("LB-22", f"row {row} holds {what} in {where}")
                return False
        if live.astray:
            return True
        expected = live.twin.row(before)
        if not same(after, expected):
            token, got, wanted = differing(after, expected)[0]
            broken = live.advice or rule or "LB-03"
            live.astray = broken in _ADVICE
            note = self.ledger.advise if live.astray else self.ledger.fail
            note(
                broken,
                f"row {row} differs from the one the request gets alone in {where}: "
                f"token {token} is {got:.5g}, expected {wanted:.5g}",
            )
            return live.astray
        if (meaning := self.bench.meaning) is not None:
            said = live.twin.params, live.job.prompt, live.twin.outputs
            meaning.note(self.ledger, "LB-46", *said, before=before, after=after)
        if self.claims and dethroned(before, after):
            self.ledger.fail("LB-12", f"row {row} has another highest logit in {where}")
            return False
        self.ledger.saw(RULE_OF_EVENT.get(live.event, "LB-03"))
        # A choice without effect shows nothing about rows that were left alone.
        self.ledger.saw("LB-04", int(live.job.choice[0] == "off"))
        self.ledger.saw("LB-12", int(self.claims and changed))
        self.ledger.saw("LB-26", int(self._skips > 0 and changed))
        return True

    def _pass_over(self, step: Recorded) -> None:
        """Let the twins have the step that the engine spared the plugin."""
        self._skips += 1
        for row, live in self._rows.at.items():
            live.twin.outputs[:] = step.outputs[row]
            if live.astray:
                continue
            # Which logits must not matter.
            any_logits = self.bench.table[self._number % len(self.bench.table)]
            live.twin.row(any_logits.to(self.device))


def _moved(live: _Live) -> None:
    live.event = "moved"


def _as_it_was(step: Recorded) -> BatchUpdate:
    """Return a recorded update with the parameters and outputs of its time."""
    assert step.update is not None
    assert step.call is not None
    added = [
        (index, params, None if prompt is None else list(prompt), list(outputs))
        for (index, prompt, outputs), params in zip(step.call[1], step.params, strict=True)
    ]
    return BatchUpdate(step.update.batch_size, step.update.removed, added, step.update.moved)
