# SPDX-License-Identifier: Apache-2.0
"""Evidence ``offline``: the plugin in real ``vllm.LLM`` and ``vllm.AsyncLLM`` engines.

Engines start in this process with the class, its fully-qualified name, its entry point, and
without the plugin; others, asynchronous, in processes of their own.
What the first engine sent the plugin is recorded, judged row by row against twins, and played
again in the simulator; then all engines are asked the same questions.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import torch
from vllm.v1.sample.logits_processor import (
    BUILTIN_LOGITS_PROCESSORS,
    LOGITSPROCS_GROUP,
    cached_load_custom_logitsprocs,
)

from conformance.engine.async_engine import AsyncEngine, AsyncEngineFailed
from conformance.engine.entry_points import synthetic_distribution
from conformance.engine.environment import chosen_device
from conformance.engine.offline import OfflineEngine
from conformance.logits.calls import limited
from conformance.logits.requests import admissible, sampling_params
from conformance.logits_batch import workload
from conformance.logits_batch.ledger import Ledger
from conformance.logits_batch.recording import Recording, replay
from conformance.logits_batch.ways import Reply, Ways, difference, hand_over
from conformance.logits_batch.witness import Witness
from conformance.rules import Evidence
from conformance.settings import Budget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from conformance.logits.parameters import Parameters
    from conformance.logits_batch.bench import Bench
    from conformance.logits_batch.workload import Job
    from conformance.settings import Settings
    from conformance.target import Plugin
    from conformance.verdict import RuleResult

T = TypeVar("T")

#: An engine on a tiny model that has not finished its requests after this long hangs.
LIMIT = 120.0

#: What every engine imports when it starts; once is enough for all forks.
ENGINE_MODULES = ("vllm.entrypoints.llm", "vllm.model_executor.models.llama")
CPU_MODULES = ("vllm.v1.worker.cpu_worker",)

#: Rules that are about every row or call, and hold when nothing went wrong.
_GENERAL = ("LB-03", "LB-14", "LB-16", "LB-21", "LB-22", "LB-24")

BY_CLASS = "LLM.generate, loaded as a class"
BY_NAME = "LLM.generate, loaded by name"
BY_ENTRY_POINT = f"LLM.generate, loaded as a {LOGITSPROCS_GROUP} entry point"
_ASYNC = "AsyncLLM.generate"


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
    _entry_points: str = attrs.field(init=False)  #: folder that has the plugin as an entry point
    _async: dict[str, AsyncEngine] = attrs.field(init=False, factory=dict)  #: by way of loading

    def __attrs_post_init__(self) -> None:
        """Run the workload through the engines."""
        self.ledger = Ledger(Evidence.OFFLINE, self.parameters)
        started = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="vllm-conformance-") as self._entry_points:
            self._start_async()
            try:
                with limited(LIMIT):
                    self._run()
            finally:
                for engine in self._async.values():
                    engine.close()
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

    @property
    def _builtin(self) -> bool:
        """Whether every engine has the plugin, and a second one would act on its rows."""
        return self.bench.plugin in BUILTIN_LOGITS_PROCESSORS

    def _start_async(self) -> None:
        """Start the asynchronous engines, before anything here runs in threads."""
        for module in (*ENGINE_MODULES, *(CPU_MODULES if self.device == "cpu" else ())):
            importlib.import_module(module)
        gc.freeze()  # what is not looked at by collections stays shared with the forks
        if self._builtin:
            self._async[_ASYNC] = AsyncEngine.start(self.model, device=self.device)
            return
        folder = synthetic_distribution(
            Path(self._entry_points),
            name="conformance-target",
            group=LOGITSPROCS_GROUP,
            entries={"conformance-target": self.plugin.fqcn},
        )
        ways: list[tuple[str, list[Any], list[str]]] = [
            ("as a class", [self.bench.plugin], []),
            (f"as a {LOGITSPROCS_GROUP} entry point", [], [str(folder)]),
        ]
        if self.settings.budget is Budget.DEEP:
            # To AsyncLLM a name is what it is to LLM, and here every engine takes processor time.
            ways.append(("by name", [self.plugin.fqcn], []))
        for how, processors, path in ways:
            self._async[f"{_ASYNC}, loaded {how}"] = AsyncEngine.start(
                self.model, processors, python_path=path, device=self.device
            )

    def _run(self) -> None:
        processors: list[Any] = [] if self._builtin else [self.bench.plugin]
        engine = self._attempt(
            "LB-01",
            "with the class the engine did not start",
            lambda: self._start(processors),
        )
        if engine is None:
            return
        self.ledger.saw("LB-01")
        recording = Recording.insert(engine.runner, self.bench.plugin)
        invariant = self.ledger.claims = recording.is_argmax_invariant()
        jobs = workload.crowd(self.bench, invariant=invariant)
        tokens = self._attempt("LB-16", "a request failed", lambda: _ask(engine, jobs))
        witness = Witness(
            self.bench,
            self.ledger,
            engine.llm.llm_engine.vllm_config,
            torch.device(self.device),
            invariant,
        )
        witness.judge(recording.steps, jobs)
        if tokens is None:
            return
        for rule in _GENERAL:
            self.ledger.saw(rule, len(recording.steps))
        self._check_ladder(engine, recording, jobs, tokens)
        if invariant and self.parameters.on and not self.ledger.blocked:
            self._check_skipping(engine, recording, witness, len(jobs))
        self._check_admission(engine, jobs[0])
        if self.ledger.blocked:
            return
        self._check_ways(engine, list(zip(jobs, tokens, strict=True)))
        if self.ledger.blocked:
            return
        if self._builtin:
            recording.remove()
        without = engine if self._builtin else self._start([])
        self._compare_control(jobs, tokens, _ask(without, jobs))

    def _compare_control(
        self, jobs: list[Job], tokens: list[tuple[int, ...]], control: list[tuple[int, ...]]
    ) -> None:
        """LB-04: requests that opt out get the tokens of an engine without the plugin."""
        for job, got, expected in zip(jobs, tokens, control, strict=True):
            if job.greedy and job.choice[0] == "off":
                reply = Reply(expected, len(expected))
                if problem := difference(reply, got, "without the plugin"):
                    self.ledger.fail("LB-04", f"{job.label} got other tokens: {problem}")
                    return
                self.ledger.saw("LB-04")

    def _check_skipping(
        self, engine: OfflineEngine, recording: Recording, witness: Witness, first: int
    ) -> None:
        """LB-26: requests come and go while ``apply`` is skipped, then random ones join."""
        start = len(recording.steps)
        waves = workload.greedy_then_random(self.bench, first)
        greedy, random = [([j.prompt for j in jobs], [j.params() for j in jobs]) for jobs in waves]
        steps = self._attempt(
            "LB-26",
            "after steps in which apply was skipped a request failed",
            lambda: engine.run_in_waves(greedy, workload.GREEDY_STEPS, random),
        )
        if steps:
            witness.judge(recording.steps[start:], [*waves[0], *waves[1]], skipping=True)

    def _check_ways(
        self, engine: OfflineEngine, known: Sequence[tuple[Job, tuple[int, ...]]]
    ) -> None:
        """LB-32: however the plugin is loaded and asked, the tokens are the same."""
        asked = workload.questions(self.bench, invariant=self.ledger.claims)
        prompts = [job.prompt for job in asked]
        replies = [
            Reply(*answer)
            for answer in engine.generate_decided(prompts, [job.params() for job in asked])
        ]
        ways = Ways(self.ledger, "LLM.generate" if self._builtin else BY_CLASS, asked, replies)
        hand_over(ways, self.folder)
        if not self._builtin and not (
            self._check_loading(BY_NAME, [self.plugin.fqcn], ways, known)
            and self._check_loading(BY_ENTRY_POINT, [], ways, known, self._entry_points)
        ):
            return
        for way, other in self._async.items():
            try:
                other.wait_started()
            except AsyncEngineFailed as error:
                self.ledger.fail("LB-01", f"{way}: the engine did not start: {error}")
                return
            self.ledger.saw("LB-01")
            try:
                answers = other.generate(prompts, [job.params() for job in asked])
            except AsyncEngineFailed as error:
                self.ledger.fail("LB-32", f"a request failed with {way}: {error}")
                return
            if not ways.compare(way, answers):
                return
            # Here the front end, which validates, and the engine are different processes.
            self.ledger.saw("LB-31", len(asked))

    def _check_loading(
        self,
        way: str,
        processors: list[Any],
        ways: Ways,
        known: Sequence[tuple[Job, tuple[int, ...]]],
        path: str | None = None,
    ) -> bool:
        """Start an engine in another way; compare the answers to questions and to the workload."""
        jobs = [job for job, _ in known]
        with _entry_points_in(path):
            engine = self._attempt(
                "LB-01", f"{way}: the engine did not start", lambda: self._start(processors)
            )
            if engine is None:
                return False
            self.ledger.saw("LB-01")
            answers = self._attempt(
                "LB-32", f"a request failed with {way}", lambda: _ask(engine, ways.jobs)
            )
            again = self._attempt(
                "LB-32", f"a request failed with {way}", lambda: _ask(engine, jobs)
            )
        if answers is None or again is None or not ways.compare(way, answers):
            return False
        # The same steps again: here not even rounding differs.
        replies = [Reply(tokens, len(tokens) * job.greedy) for job, tokens in known]
        return Ways(self.ledger, ways.reference, jobs, replies).compare(way, again)

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
        for name, keywords, params in admissible(self.parameters.invalid):
            params.max_tokens = 2
            try:
                engine.generate([job.prompt], [params])
            except ValueError:
                pass
            except Exception as error:  # noqa: BLE001 - anything else is the finding
                if type(error).__name__ != "VLLMValidationError":
                    self.ledger.fail(
                        "LB-15", f"{name} = {keywords}: {type(error).__name__}: {error}"
                    )
                    return
            else:
                self.ledger.fail("LB-15", f"{name} = {keywords} was accepted by the engine")
                return
            self.ledger.saw("LB-15", 1)
        self._attempt(
            "LB-15",
            "after a refused request the engine serves nothing",
            lambda: engine.generate([job.prompt], [sampling_params({"max_tokens": 2}, "{}")]),
        )


def _ask(engine: OfflineEngine, jobs: Sequence[Job]) -> list[tuple[int, ...]]:
    return engine.generate([job.prompt for job in jobs], [job.params() for job in jobs])


@contextlib.contextmanager
def _entry_points_in(path: str | None) -> Iterator[None]:
    """Let engines of this process see the entry points in a folder, if one is named."""
    if path is None:
        yield
        return
    # The front end keeps what it has loaded, for engines without names under the same key.
    cached_load_custom_logitsprocs.cache_clear()
    sys.path.insert(0, path)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(path)
        cached_load_custom_logitsprocs.cache_clear()
