# SPDX-License-Identifier: Apache-2.0
"""Evidence ``offline``: the plugin in a real ``vllm.LLM``.

Three engines start in this process: with the class, with its fully-qualified name, and without
the plugin.  The same requests run through each; what the first engine sent the plugin is
recorded, judged row by row against twins, and played again in the simulator.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import torch
from vllm.v1.sample.logits_processor import BUILTIN_LOGITS_PROCESSORS, BatchUpdate

from conformance.engine.environment import chosen_device
from conformance.engine.offline import OfflineEngine
from conformance.logits_batch.bench import (
    Watched,
    call,
    limited,
    misshapen,
    sampling_params,
)
from conformance.logits_batch.ledger import Ledger
from conformance.logits_batch.play import describe_update, differing, same
from conformance.logits_batch.recording import Recording, Rows, replay
from conformance.rules import Evidence
from conformance.settings import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm.sampling_params import SamplingParams

    from conformance.history import Choice
    from conformance.logits_batch.bench import Bench
    from conformance.logits_batch.parameters import Parameters
    from conformance.logits_batch.recording import Recorded
    from conformance.settings import Settings
    from conformance.target import Plugin
    from conformance.verdict import RuleResult

T = TypeVar("T")

#: An engine on a tiny model that has not finished its requests after this long hangs.
LIMIT = 120.0

#: What a row has just been through, and the rule that is about it.
RULE_OF_EVENT = {"replaced": "LB-06", "moved": "LB-07", "resumed": "LB-11", "chunked": "LB-18"}

#: Rules that are about every row or call, and hold when nothing went wrong.
_GENERAL = ("LB-03", "LB-14", "LB-16", "LB-21", "LB-22", "LB-24")


@attrs.frozen
class Job:
    """One request of the workload."""

    prompt: tuple[int, ...]
    choice: Choice


@attrs.define
class _Live:
    """A request in the recording."""

    job: Job
    twin: Watched
    outputs: list[int]
    params: SamplingParams
    event: str = "joined"
    started: bool = False


@attrs.define
class Trial:
    """The trial of one plugin in real engines; everything runs when it is opened."""

    plugin: Plugin
    parameters: Parameters
    bench: Bench
    model: str
    settings: Settings
    folder: str
    ledger: Ledger = attrs.field(init=False)
    seconds: float = attrs.field(init=False, default=0.0)
    runner: str = attrs.field(init=False, default="V1")

    def __attrs_post_init__(self) -> None:
        """Run the workload through the engines."""
        self.ledger = Ledger(Evidence.OFFLINE, self.parameters)
        started = time.perf_counter()
        with limited(LIMIT):
            self._run()
        self.seconds = time.perf_counter() - started

    def context(self) -> dict[str, Any]:
        """Return what a certificate says about this trial."""
        return {
            "profile": self.parameters.document(),
            "device": self.device,
            "runner": self.runner,
            "model": "tiny random Llama",
        }

    @property
    def device(self) -> str:
        """Where the engines run: ``cpu`` or ``cuda``."""
        return chosen_device(self.settings.device)

    def check(self, rule: str) -> RuleResult:
        """Judge one rule by what happened in the engines."""
        # One run of the engines serves all rules: its time is shown once, with the first.
        seconds, self.seconds = self.seconds, 0.0
        return self.ledger.result(rule, seconds)

    def _run(self) -> None:
        jobs = workload(self.bench)
        builtin = self.bench.plugin in BUILTIN_LOGITS_PROCESSORS
        # A built-in is in every engine already; a second one would act on the first one's rows.
        engine = self._attempt(
            "LB-01",
            "with the class the engine did not start",
            lambda: self._start([] if builtin else [self.bench.plugin]),
        )
        if engine is None:
            return
        recording = Recording.insert(engine.runner, self.bench.plugin)
        invariant = recording.is_argmax_invariant()
        params = [self._params(job, invariant) for job in jobs]
        prompts = [job.prompt for job in jobs]
        tokens = self._attempt(
            "LB-16", "a request failed", lambda: engine.generate(prompts, params)
        )
        self._judge(engine, recording, jobs)
        if tokens is None:
            return
        for rule in _GENERAL:
            self.ledger.saw(rule, len(recording.steps))
        self._check_ladder(engine, recording, jobs, tokens)
        self._check_admission(engine, jobs[0])
        if self.ledger.blocked:
            return
        greedy = [index for index, p in enumerate(params) if p.temperature == 0]
        if builtin:
            self.ledger.saw("LB-01")
            without = engine
            recording.remove()
        else:
            by_name = self._attempt(
                "LB-01",
                f"with {self.plugin.fqcn} the engine did not start",
                lambda: self._start([self.plugin.fqcn]),
            )
            if by_name is None:
                return
            again = by_name.generate(prompts, params)
            self.ledger.saw("LB-01", len(greedy))
            self._compare("LB-01", tokens, again, jobs, greedy, how="loaded by name")
            without = self._start([])
        plain = [self._params(attrs.evolve(job, choice=("off", 0)), invariant) for job in jobs]
        control = without.generate(prompts, plain)
        off = [index for index in greedy if jobs[index].choice == ("off", 0)]
        self.ledger.saw("LB-04", len(off))
        self._compare("LB-04", control, tokens, jobs, off, how="than without the plugin")

    def _start(self, processors: list[Any]) -> OfflineEngine:
        return OfflineEngine.start(self.model, processors, device=self.device)

    def _attempt(self, rule: str, what: str, action: Callable[[], T]) -> T | None:
        """Run an action; whatever it raises breaks ``rule``."""
        try:
            return action()
        except Exception as error:  # noqa: BLE001 - whatever ends an engine
            cause: BaseException = error
            while cause.__cause__ is not None:
                cause = cause.__cause__
            self.ledger.fail(rule, f"{what}: {type(cause).__name__}: {cause}")
            return None

    def _params(self, job: Job, invariant: bool) -> SamplingParams:  # noqa: FBT001 - private
        """Return engine parameters: greedy, so that tokens can be compared, where that shows."""
        keywords = dict(self.bench.parameters.get(job.choice, {}))
        keywords.setdefault("max_tokens", 20 + 5 * (len(job.prompt) % 3))
        keywords.setdefault("ignore_eos", True)
        if not (invariant and job.choice[0] == "on"):
            # The engine never shows an argmax-invariant plugin to an all-greedy batch.
            keywords.setdefault("temperature", 0.0)
        return sampling_params(keywords, str(job.choice))

    def _judge(self, engine: OfflineEngine, recording: Recording, jobs: list[Job]) -> None:
        """Judge every recorded row against the request's twin."""
        by_prompt = {job.prompt: job for job in jobs}
        known: dict[tuple[int, ...], _Live] = {}
        rows: Rows[_Live] = Rows()

        def enter(
            index: int,  # noqa: ARG001 - the signature of Rows.update
            params: SamplingParams,
            prompt: list[int] | None,
            outputs: list[int],
            before: _Live | None,
        ) -> _Live:
            key = tuple(prompt or ())
            if key not in known:
                known[key] = _Live(by_prompt[key], self._twin(engine), [], params)
            live = known[key]
            resumed = live.started and bool(outputs)
            live.event = "resumed" if resumed else "replaced" if before else "joined"
            return live

        def moved(live: _Live) -> None:
            live.event = "moved"

        for number, step in enumerate(recording.steps):
            if step.update is None:
                self.ledger.saw("LB-09", 1)
            else:
                self.ledger.saw("LB-19", len(step.update.removed))
                rows.update(_as_it_was(step), enter, moved)
            if step.applied is not None and not self._judge_step(number, step, rows):
                return
        for step in recording.steps:
            for (_, params, _, _), kept in zip(
                step.update.added if step.update else (), step.params, strict=True
            ):
                if params != kept:
                    self.ledger.fail("LB-21", "the plugin wrote to the parameters of a request")

    def _judge_step(self, number: int, step: Recorded, rows: Rows[_Live]) -> bool:
        assert step.applied is not None
        before, after = step.applied.before, step.applied.after
        where = f"step {number} ({describe_update(step.update)})"
        if problem := misshapen(after, before, before.shape):
            self.ledger.fail("LB-14", f"{problem} in {where}")
            return False
        assert isinstance(after, torch.Tensor)
        for row, live in sorted(rows.at.items()):
            if row in step.applied.discarded:
                live.event = "chunked" if live.event == "joined" else live.event
                continue
            live.outputs[:] = step.outputs[row]
            changed = not torch.equal(before[row], after[row])
            if changed and live.job.choice[0] == "on":
                self.ledger.acted.add(live.job.choice)
            if changed and live.job.choice[0] == "off":
                self.ledger.fail(
                    RULE_OF_EVENT.get(live.event, "LB-04"),
                    f"row {row} of a request that did not opt in was changed in {where}",
                )
                return False
            if torch.isnan(after[row]).any() and not torch.isnan(before[row]).any():
                self.ledger.fail("LB-22", f"row {row} holds NaN in {where}")
                return False
            expected = self._expected(live, before[row])
            if not same(after[row], expected):
                token, got, wanted = differing(after[row], expected)[0]
                self.ledger.fail(
                    RULE_OF_EVENT.get(live.event, "LB-03"),
                    f"row {row} differs from the one the request gets alone in {where}: "
                    f"token {token} is {got:.5g}, expected {wanted:.5g}",
                )
                return False
            self.ledger.saw(RULE_OF_EVENT.get(live.event, "LB-03"))
            # A choice without effect shows nothing about rows that were left alone.
            self.ledger.saw("LB-04", int(live.job.choice[0] == "off"))
        return True

    def _twin(self, engine: OfflineEngine) -> Watched:
        config = engine.llm.llm_engine.vllm_config
        device = torch.device(self.device)
        return Watched(call("__init__", self.bench.plugin, config, device, False))  # noqa: FBT003 - vLLM's own call

    def _expected(self, live: _Live, logits: torch.Tensor) -> torch.Tensor:
        if live.started:
            live.twin.update_state(None)
        else:
            # The engine's own parameters: its front end adds to them (end-of-sequence tokens).
            added = [(0, live.params, list(live.job.prompt), live.outputs)]
            live.twin.update_state(BatchUpdate(1, [], added, []))
            live.started = True
        result: torch.Tensor = live.twin.apply(logits.clone().unsqueeze(0))
        return result[0]

    def _check_ladder(
        self,
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
            vocabulary=self.bench.vocabulary,
            reorder=isinstance(threshold, int),
            asynchronous=bool(getattr(engine.runner, "use_async_scheduling", False)),
        )
        live = [step.call for step in recording.steps]
        # Idle steps at the very end may differ: the engine stops when nothing is left to do.
        for number, (engines, ours) in enumerate(zip(live, simulated, strict=False)):
            if engines != ours:
                self.ledger.fault = (
                    f"the simulator and the engine disagree in step {number}: the engine sent "
                    f"{engines}, the simulator {ours}; please report this"
                )
                return
        if abs(len(live) - len(simulated)) > 1:
            self.ledger.fault = (
                f"the engine made {len(live)} updates, the simulator {len(simulated)}"
            )

    def _check_admission(self, engine: OfflineEngine, job: Job) -> None:
        """Refused requests raise at admission, and the engine serves the next one."""
        for index, keywords in enumerate(self.parameters.invalid):
            name = f"invalid[{index}] = {keywords}"
            try:
                params = sampling_params(keywords, name)
            except UsageError:
                continue
            params.max_tokens = 2
            try:
                engine.generate([job.prompt], [params])
            except ValueError:
                pass
            except Exception as error:  # noqa: BLE001 - anything else is the finding
                if type(error).__name__ != "VLLMValidationError":
                    self.ledger.fail("LB-15", f"{name}: {type(error).__name__}: {error}")
                    return
            else:
                self.ledger.fail("LB-15", f"{name} was accepted by the engine")
                return
            self.ledger.saw("LB-15", 1)
        self._attempt(
            "LB-15",
            "after a refused request the engine serves nothing",
            lambda: engine.generate([job.prompt], [sampling_params({"max_tokens": 2}, "{}")]),
        )

    def _compare(
        self,
        rule: str,
        expected: list[tuple[int, ...]],
        got: list[tuple[int, ...]],
        jobs: list[Job],
        indices: list[int],
        *,
        how: str,
    ) -> None:
        for index in indices:
            if expected[index] != got[index]:
                position = next(
                    i
                    for i, (a, b) in enumerate(zip(expected[index], got[index], strict=False))
                    if a != b
                )
                self.ledger.fail(
                    rule,
                    f"request {index} ({jobs[index].choice[0]}) got other tokens {how}: token "
                    f"{position} is {got[index][position]}, expected {expected[index][position]}",
                )
                return


def workload(bench: Bench) -> list[Job]:
    """Return requests of both kinds, of many lengths, each with a prompt of its own."""
    choices = bench.choices or (("off", 0),)
    count = max(16, 2 * len(choices))
    tokens = bench.tokens
    jobs = []
    for index in range(count):
        length = (6, 40, 17, 60)[index % 4]
        prompt = [
            3 + (index * 7 + position * 5) % (bench.vocabulary - 8) for position in range(length)
        ]
        # History readers meet the tokens they look for in prompts, too.
        prompt[-2:] = [tokens[index % len(tokens)], tokens[(index + 1) % len(tokens)]]
        prompt[0] = 3 + index
        # Every length meets every choice: who is chunked and preempted depends on lengths.
        choice = choices[(index + index // 4) % len(choices)]
        jobs.append(Job(tuple(prompt), choice))
    return jobs


def _as_it_was(step: Recorded) -> BatchUpdate:
    """Return a recorded update with the parameters and outputs of its time."""
    assert step.update is not None
    assert step.call is not None
    added = [
        (index, params, None if prompt is None else list(prompt), list(outputs))
        for (index, prompt, outputs), params in zip(step.call[1], step.params, strict=True)
    ]
    return BatchUpdate(step.update.batch_size, step.update.removed, added, step.update.moved)
