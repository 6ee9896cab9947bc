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
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

import attrs
from vllm.v1.sample.logits_processor import LOGITSPROCS_GROUP, cached_load_custom_logitsprocs

from conformance.engine.async_engine import AsyncEngine, AsyncEngineFailed, AsyncEngineSlow
from conformance.engine.beforehand import ENGINE_MODULES
from conformance.engine.entry_points import synthetic_distribution, unlisted
from conformance.engine.environment import has_no_room
from conformance.engine.model_runner import SYNCHRONOUS
from conformance.engine.offline import OfflineEngine
from conformance.logits import company, workload
from conformance.logits.fuzzing.explorer import Explored
from conformance.logits.fuzzing.live import in_engine
from conformance.logits.keywords import admissible
from conformance.logits.live_trial import LogitsTrial
from conformance.logits.ways import Reply, Ways, difference, hand_over
from conformance.logits.workload import Job
from conformance.settings import Budget
from conformance.watching.interruption import OutOfTime, PluginHung, limited, place_in

T = TypeVar("T")

#: An engine on a tiny model that has not started, or made another step, after this long hangs.
LIMIT = 120.0

#: Where Model Runner V2 keeps the classes that it has loaded.
_LOADER_V2 = "vllm.v1.worker.gpu.sample.logits_processor.loader"

BY_CLASS = "LLM.generate, loaded as a class"
BY_NAME = "LLM.generate, loaded by name"
BY_ENTRY_POINT = f"LLM.generate, loaded as a {LOGITSPROCS_GROUP} entry point"
_ASYNC = "AsyncLLM.generate"


class Watch(Protocol):
    """What a generation watches of a plugin in an engine."""

    #: Rules that are shown where the front end and the engine are different processes.
    by_processes: tuple[str, ...]

    def insert(self, engine: OfflineEngine, plugin: type) -> Any:  # noqa: ANN401 - its recording
        """Have everything recorded that the engine sends the plugin, until that is removed."""

    def claims(self, recording: object) -> bool:
        """Return whether the plugin claims argmax invariance."""

    def judge(
        self,
        trial: Trial,
        engine: OfflineEngine,
        recording: object,
        jobs: list[Job],
        tokens: list[tuple[int, ...]] | None,
    ) -> None:
        """Judge what was recorded while the jobs ran; there are no tokens where one failed."""


@attrs.define(eq=False)
class Trial(LogitsTrial):
    """The trial of one plugin in real engines; everything runs when it is opened."""

    watch: Watch
    #: Whether the plugin claims argmax invariance, as far as is known.
    claims: bool = attrs.field(init=False, default=True)
    _entry_points: str = attrs.field(init=False)  #: folder that has the plugin as an entry point
    #: Folder that hides an installed entry point of the plugin, if there is one.
    _unlisted: list[str] = attrs.field(init=False, factory=list)
    _async: dict[str, AsyncEngine] = attrs.field(init=False, factory=dict)  #: by way of loading

    def __attrs_post_init__(self) -> None:
        """Run the workload through the engines."""
        self.run_once()

    def ask(self) -> None:
        """Start engines, and end them when they have answered."""
        # Before anything here runs in threads.
        explored = self.explored()
        with tempfile.TemporaryDirectory(prefix="vllm-conformance-") as folder:
            self._entry_points = str(Path(folder) / "listed")
            if not self._builtin:
                found = unlisted(Path(folder) / "unlisted", self.bench.plugin)
                self._unlisted = [str(each) for each in found]
                sys.path[:0] = self._unlisted
                importlib.invalidate_caches()
            self._start_async()
            try:
                with limited(LIMIT):
                    self._run(explored)
            except OutOfTime as error:
                if place := place_in(error, self.opening.plugin.path):
                    raise PluginHung(f"the plugin ({place})", LIMIT) from None
                self.ledger.stop(str(error))
            finally:
                for engine in self._async.values():
                    engine.close()

    @property
    def _builtin(self) -> bool:
        """Whether every engine has the plugin, and a second one would act on its rows."""
        return self.roles.builtin(self.bench.plugin)

    def _start_async(self) -> None:
        """Start the asynchronous engines, before anything here runs in threads."""
        for module in ENGINE_MODULES:  # once is enough for all forks
            importlib.import_module(module)
        gc.freeze()  # what is not looked at by collections stays shared with the forks
        if self._builtin:
            self._async[_ASYNC] = AsyncEngine.start(
                self.opening.model, device=self.device, runner=self.roles.runner
            )
            return
        folder = synthetic_distribution(
            Path(self._entry_points),
            name="conformance-target",
            group=LOGITSPROCS_GROUP,
            entries={"conformance-target": self.opening.plugin.fqcn},
        )
        # Here every engine takes processor time. To AsyncLLM a class and a name are what they are
        # to LLM, and `vllm serve`, which is an AsyncLLM, is given the name.
        ways: list[tuple[str, list[Any], list[str], Mapping[str, Any]]] = []
        if not self.shared:
            ways.append(("as a class", [self.bench.plugin], self._unlisted, {}))
        path, synchronous = [*self._unlisted, str(folder)], SYNCHRONOUS[self.roles.runner]
        ways.append((f"as a {LOGITSPROCS_GROUP} entry point", [], path, synchronous))
        if self.opening.settings.budget is Budget.DEEP:
            ways.append(("by name", [self.opening.plugin.fqcn], self._unlisted, {}))
        for how, processors, path, options in ways:
            self._async[f"{_ASYNC}, loaded {how}"] = AsyncEngine.start(
                self.opening.model,
                processors,
                python_path=path,
                device=self.device,
                runner=self.roles.runner,
                options=options,
            )

    def _run(self, explored: Explored) -> None:
        processors: list[Any] = [] if self._builtin else [self.bench.plugin]
        engine = self.attempt(
            self.roles.loads,
            "with the class the engine did not start",
            lambda: self._start(processors),
            starts=True,
        )
        if engine is None:
            return
        self.ledger.saw(self.roles.loads)
        recording = self.watch.insert(engine, self.bench.plugin)
        self.claims = self.watch.claims(recording)
        if not self.claims:
            why = "the plugin does not claim argmax invariance"
            self.ledger.beside |= dict.fromkeys(self.roles.claimed, why)
        jobs = workload.crowd(self.bench, invariant=self.claims)
        tokens = self.attempt(
            self.roles.raises, "a request failed", lambda: workload.answers(engine, jobs)
        )
        self.watch.judge(self, engine, recording, jobs, tokens)
        if tokens is None:
            return
        self._check_admission(engine, jobs[0])
        if self.ledger.blocked:
            return
        company.keep(engine, self.bench, self.ledger, self.roles.combined, lambda: self._start([]))
        if self.ledger.blocked:
            return
        self._check_ways(engine, list(zip(jobs, tokens, strict=True)))
        if self.ledger.blocked:
            return
        in_engine(self.ledger, self.roles.harmless, engine, explored.nearest, self.bench)
        if self._builtin:
            recording.remove()  # what follows runs without the plugin
        without = engine if self._builtin else self._start([])
        self._compare_control(jobs, tokens, workload.answers(without, jobs))
        if explored.harm is not None and not self._builtin:
            in_engine(self.ledger, self.roles.harmless, engine, [explored.harm], self.bench)

    def _compare_control(
        self, jobs: list[Job], tokens: list[tuple[int, ...]], control: list[tuple[int, ...]]
    ) -> None:
        """Requests that opt out get the tokens of an engine without the plugin."""
        for job, got, expected in zip(jobs, tokens, control, strict=True):
            if job.greedy and job.choice[0] == "off":
                reply = Reply(expected, len(expected))
                if problem := difference(reply, got, "without the plugin"):
                    self.ledger.fail(self.roles.opt_out, f"{job.label} got other tokens: {problem}")
                    return
                self.ledger.saw(self.roles.opt_out)

    def _check_ways(
        self, engine: OfflineEngine, known: Sequence[tuple[Job, tuple[int, ...]]]
    ) -> None:
        """However the plugin is loaded and asked, the tokens are the same."""
        asked = workload.questions(self.bench, invariant=self.claims)
        prompts = [job.prompt for job in asked]
        replies = [
            Reply(*answer)
            for answer in engine.generate_decided(prompts, [job.params() for job in asked])
        ]
        reference = "LLM.generate" if self._builtin else BY_CLASS
        ways = Ways(self.ledger, self.roles.same, reference, asked, replies)
        hand_over(ways, self.opening.folder)
        if not self._builtin and not (
            self._check_loading(BY_NAME, [self.opening.plugin.fqcn], ways, known)
            and self._check_loading(BY_ENTRY_POINT, [], ways, known, self._entry_points)
        ):
            return
        for way, other in self._async.items():
            try:
                other.wait_started()
            except AsyncEngineSlow as error:
                self.ledger.stop(f"{way}: {error}")
                return
            except AsyncEngineFailed as error:
                why = f"{way}: the engine did not start: {error}"
                self.ledger.did_not_start(self.roles.loads, why)
                return
            self.ledger.saw(self.roles.loads)
            try:
                answers = other.generate(prompts, [job.params() for job in asked])
            except AsyncEngineSlow as error:
                self.ledger.stop(f"{way}: {error}")
                return
            except AsyncEngineFailed as error:
                self.ledger.fail(self.roles.same, f"a request failed with {way}: {error}")
                return
            if not ways.compare(way, answers):
                return
            # Here the front end, which validates, and the engine are different processes.
            for rule in self.watch.by_processes:
                self.ledger.saw(rule, len(asked))

    def _check_loading(
        self,
        way: str,
        processors: list[Any],
        ways: Ways,
        known: Sequence[tuple[Job, tuple[int, ...]]],
        path: str | None = None,
    ) -> bool:
        """Start an engine in another way; compare the answers to questions and to the workload."""
        # Of both engines one is enough, and in Model Runner V2 no processor is told of embeddings.
        embeds = way == BY_NAME and self.roles.runner == "v1"
        options = {} if path is None else SYNCHRONOUS[self.roles.runner]
        jobs = [job for job, _ in known]
        with _entry_points_in(path):
            engine = self.attempt(
                self.roles.loads,
                f"{way}: the engine did not start",
                lambda: self._start(processors, embeds=embeds, options=options),
                starts=True,
            )
            if engine is None:
                return False
            self.ledger.saw(self.roles.loads)
            answers = self.attempt(
                self.roles.same,
                f"a request failed with {way}",
                lambda: workload.answers(engine, ways.jobs),
            )
            again = self.attempt(
                self.roles.same,
                f"a request failed with {way}",
                lambda: workload.answers(engine, jobs),
            )
        if answers is None or again is None or not ways.compare(way, answers):
            return False
        # The same steps again: here not even rounding differs.
        replies = [Reply(tokens, len(tokens) * job.greedy) for job, tokens in known]
        if not attrs.evolve(ways, jobs=jobs, replies=replies).compare(way, again):
            return False
        if embeds and not self.roles.needs_prompt(self.bench):
            company.keep_embedded(
                engine,
                self.bench,
                self.ledger,
                self.roles.combined,
                lambda: self._start([], embeds=True),
            )
        return self.ledger.blocked is None

    def _start(
        self,
        processors: list[Any],
        *,
        embeds: bool = False,
        options: Mapping[str, Any] = MappingProxyType({}),
    ) -> OfflineEngine:
        return OfflineEngine.start(
            self.opening.model,
            processors,
            device=self.device,
            runner=self.roles.runner,
            embeds=embeds,
            options=options,
        )

    def attempt(
        self, rule: str, what: str, action: Callable[[], T], *, starts: bool = False
    ) -> T | None:
        """Run an action, which may be to start an engine; whatever it raises breaks ``rule``."""
        try:
            return action()
        except OutOfTime:
            raise
        except Exception as error:  # noqa: BLE001 - whatever ends an engine
            traceback.print_exception(error)  # in the log: the engine runs in this process
            cause: BaseException = error
            while cause.__cause__ is not None:
                cause = cause.__cause__
            if has_no_room(str(cause)):
                self.ledger.stop(f"{what}: {cause}")
                return None
            fail = self.ledger.did_not_start if starts else self.ledger.fail
            fail(rule, f"{what}: {type(cause).__name__}: {cause}")
            return None

    def _check_admission(self, engine: OfflineEngine, job: Job) -> None:
        """Refused requests raise at admission, and the engine serves the next one."""
        for name, keywords, params in admissible(self.parameters.invalid):
            params.max_tokens = keywords.get("max_tokens", 2)
            try:
                engine.generate([job.prompt], [params])
            except ValueError:
                pass
            except OutOfTime:
                raise
            except Exception as error:  # noqa: BLE001 - anything else is the finding
                if type(error).__name__ != "VLLMValidationError":
                    self.ledger.fail(
                        self.roles.refuses, f"{name} = {keywords}: {type(error).__name__}: {error}"
                    )
                    return
            else:
                self.ledger.fail(
                    self.roles.refuses, f"{name} = {keywords} was accepted by the engine"
                )
                return
            self.ledger.saw(self.roles.refuses, 1)
        self.attempt(
            self.roles.refuses,
            "after a refused request the engine serves nothing",
            lambda: engine.generate([job.prompt], [job.params()]),
        )


@contextlib.contextmanager
def _entry_points_in(path: str | None) -> Iterator[None]:
    """Let engines of this process see the entry points in a folder, if one is named."""
    if path is None:
        yield
        return
    # The front end keeps what it has loaded, for engines without names under the same key.
    _forget_loaded()
    sys.path.insert(0, path)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(path)
        _forget_loaded()


def _forget_loaded() -> None:
    cached_load_custom_logitsprocs.cache_clear()
    if (loader := sys.modules.get(_LOADER_V2)) is not None:
        loader._cached_load_v2_logitsprocs.cache_clear()  # noqa: SLF001 - as above
