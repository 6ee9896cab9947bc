# SPDX-License-Identifier: Apache-2.0
"""Live evidence of ``logits/batch``: which rules it is about, and what is watched in engines.

What the first engine sent the plugin is recorded, judged row by row against twins, and played
again in the simulator.
"""

from __future__ import annotations

from operator import attrgetter

import torch
from vllm.v1.sample.logits_processor import BUILTIN_LOGITS_PROCESSORS

from conformance.engine.offline import OfflineEngine
from conformance.logits import workload
from conformance.logits.offline import Trial
from conformance.logits.roles import Roles
from conformance.logits.workload import Job
from conformance.logits_batch.effects import needs_prompt
from conformance.logits_batch.recording import Recording, replay
from conformance.logits_batch.witness import Witness

ROLES = Roles(
    runner="v1",
    loads="LB-01",
    alone="LB-03",
    opt_out="LB-04",
    acts="LB-05",
    refuses="LB-15",
    raises="LB-16",
    harmless="LB-38",
    client_error="LB-42",
    survives="LB-24",
    combined="LB-39",
    means="LB-46",
    same="LB-32",
    claimed=("LB-12", "LB-26"),
    invariant=attrgetter("invariant"),
    needs_prompt=needs_prompt,
    builtin=BUILTIN_LOGITS_PROCESSORS.__contains__,
)

#: Rules that are about every row or call, and hold when nothing went wrong.
_GENERAL = ("LB-03", "LB-14", "LB-16", "LB-22", "LB-24", "LB-43")


class Watch:
    """Records what a batch processor is sent, and judges it."""

    by_processes = ("LB-31",)

    def insert(self, engine: OfflineEngine, plugin: type) -> Recording:
        """Put a recording around the plugin in the engine."""
        return Recording.insert(engine.runner, plugin)

    def claims(self, recording: Recording) -> bool:
        """Return the plugin's claim of argmax invariance."""
        return bool(recording.is_argmax_invariant())

    def judge(
        self,
        trial: Trial,
        engine: OfflineEngine,
        recording: Recording,
        jobs: list[Job],
        tokens: list[tuple[int, ...]] | None,
    ) -> None:
        """Judge every recorded row, and play the engine's orders again."""
        witness = Witness(
            trial.bench,  # type: ignore[arg-type] # a bench of this generation
            trial.ledger,
            engine.llm.llm_engine.vllm_config,
            torch.device(trial.device),
            trial.claims,
            trial.acted,
        )
        witness.judge(recording.steps, jobs)
        if tokens is None:
            return
        for rule in _GENERAL:
            trial.ledger.saw(rule, len(recording.steps))
        _check_ladder(trial, engine, recording, jobs, tokens)
        if trial.claims and trial.parameters.on and not trial.ledger.blocked:
            _check_skipping(trial, engine, recording, witness, len(jobs))


def _check_ladder(
    trial: Trial,
    engine: OfflineEngine,
    recording: Recording,
    jobs: list[Job],
    tokens: list[tuple[int, ...]],
) -> None:
    """Play the engine's orders in the simulator: the plugin must get the same calls."""
    outputs = {job.prompt: token_ids for job, token_ids in zip(jobs, tokens, strict=True)}
    names = {name: outputs[prompt] for order in engine.orders for name, prompt, _ in order.new}
    threshold = getattr(engine.runner, "reorder_batch_threshold", None)
    simulated = replay(
        engine.orders,
        names,
        vocabulary=trial.bench.vocabulary,
        reorder=isinstance(threshold, int),
        asynchronous=bool(getattr(engine.runner, "use_async_scheduling", False)),
    )
    live = [step.call for step in recording.steps]
    # Idle steps at the very end may differ: the engine stops when nothing is left to do.
    for number, (engines, ours) in enumerate(zip(live, simulated, strict=False)):
        if engines != ours:
            trial.ledger.fault = (
                f"the simulator and the engine disagree in step {number}: the engine sent "
                f"{engines}, the simulator {ours}; please report this"
            )
            return
    if abs(len(live) - len(simulated)) > 1:
        trial.ledger.fault = f"the engine made {len(live)} updates, the simulator {len(simulated)}"


def _check_skipping(
    trial: Trial, engine: OfflineEngine, recording: Recording, witness: Witness, first: int
) -> None:
    """Requests come and go while ``apply`` is skipped, then random ones join."""
    start = len(recording.steps)
    waves = workload.greedy_then_random(trial.bench, first)
    greedy, random = [([j.prompt for j in jobs], [j.params() for j in jobs]) for jobs in waves]
    steps = trial.attempt(
        "LB-26",
        "after steps in which apply was skipped a request failed",
        lambda: engine.run_in_waves(greedy, workload.GREEDY_STEPS, random),
    )
    if steps:
        witness.judge(recording.steps[start:], [*waves[0], *waves[1]], skipping=True)
