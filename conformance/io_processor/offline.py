# SPDX-License-Identifier: Apache-2.0
"""Evidence ``offline``: the plugin in real ``vllm.LLM`` engines.

What an engine hands the plugin is recorded and given to a fresh instance again,
which must make the same of it.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import attrs
import torch
import vllm

from conformance.comparison import difference, first_line, plain, shortened
from conformance.engine.pooling import PoolingEngine
from conformance.engine.pooling_models import naming_plugin
from conformance.io_processor import live
from conformance.io_processor.answers import Kind, of_error
from conformance.io_processor.calling import NAME, entry_point
from conformance.ledger import Ledger
from conformance.rules import Evidence

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conformance.io_processor.live import Subject
    from conformance.verdict import RuleResult

#: What config.json names where the engine's arguments are to come first.
OTHER = "a-plugin-that-is-not-installed"


@attrs.define
class Trial:
    """The trial of one plugin in offline engines."""

    subject: Subject
    ledger: Ledger = attrs.field(init=False)
    progress: Callable[[str], None] = attrs.field(init=False, default=lambda _: None)
    _done: bool = attrs.field(init=False, default=False)
    #: One that goes away takes the process groups of the others with it.
    _engines: list[PoolingEngine] = attrs.field(init=False, factory=list)

    @classmethod
    def open(cls, *arguments: Any) -> Trial:  # noqa: ANN401 - those of live.Subject
        """Open the trial; engines start when the first rule is asked for."""
        return cls(live.Subject(*arguments))

    def __attrs_post_init__(self) -> None:
        """Find out what the plugin is tried with."""
        self.ledger = Ledger(Evidence.OFFLINE, blocked=live.refused(self.subject))
        if self.ledger.blocked is None:
            live.prepare(self.subject, self.ledger)

    def check(self, rule: str) -> RuleResult:
        """Judge one rule by what happened in the engines."""
        if not self._done and self.ledger.blocked is None:
            with self.ledger.timed(), entry_point(self.subject.qualname) as folder:
                self._run(folder)
        self._done = True
        return self.ledger.result(rule)

    def context(self) -> dict[str, Any]:
        """Return what a certificate says about this trial."""
        host = f"LLM.encode of vLLM {vllm.__version__}"
        return live.context(self.subject, Evidence.OFFLINE, host)

    def _run(self, folder: Path) -> None:
        self.progress("starting an offline engine")
        engine = self._start(self.subject.model, NAME, "in the engine arguments")
        if engine is None:
            return
        self.ledger.saw(live.LOADS)
        answers = self._answers(engine)
        if answers is None:
            return
        self._refusals(engine, answers)
        self._selected(folder, answers)
        if self.ledger.blocked is None:
            self.ledger.saw(live.SURVIVES)

    def _start(self, model: str | Path, plugin: str | None, how: str) -> PoolingEngine | None:
        try:
            engine = PoolingEngine.start(model, plugin=plugin, device=self.subject.device)
        except Exception as error:  # noqa: BLE001 - vLLM and the plugin may raise anything
            rule = live.LOADS if plugin and model == self.subject.model else live.SELECTED
            why = f"{type(error).__name__}: {first_line(str(error))}"
            self.ledger.fail(rule, f"an engine with the plugin named {how} does not start: {why}")
            return None
        self._engines.append(engine)
        return engine

    def _answers(self, engine: PoolingEngine) -> list[Any] | None:
        """Return what valid requests are answered, or None where one is not."""
        answers = []
        stock = self.subject.bench.stock
        for data in stock.valid[: stock.given]:
            recorded = _Recorded.insert(engine)
            try:
                answers.append(plain(engine.encode(copy.deepcopy(data))))
            except Exception as error:  # noqa: BLE001 - the plugin may raise anything
                if "Unsupported task" in str(error):
                    self.ledger.blocked = _no_pooler(self.subject, error)
                    return None
                answer = of_error(error, "")
                self.ledger.fail(
                    live.ANSWERS, f"the valid request {shortened(data)} {answer.describe()}"
                )
                return None
            finally:
                recorded.remove()
            self.ledger.saw(live.ANSWERS)
            if why := self._replayed(data, recorded, answers[-1]):
                self.ledger.fault = why
        return answers

    def _replayed(self, data: Any, recorded: _Recorded, answer: Any) -> str | None:  # noqa: ANN401
        """Give a fresh instance what the engine's got; say what is different."""
        bench = self.subject.bench
        fresh = bench.make()
        given = fresh.parse_data(copy.deepcopy(data))
        prompts = plain(fresh.pre_process(prompt=given))
        if what := difference(prompts, recorded.prompts):
            return f"in the simulator {shortened(data)} becomes other prompts: {what}"
        with torch.inference_mode():
            again = plain(fresh.post_process(recorded.outputs))
        what = difference(again, answer, bench.hidden)
        return what and f"from the same outputs the simulator gives {what} for {shortened(data)}"

    def _refusals(self, engine: PoolingEngine, answers: list[Any]) -> None:
        """Invalid requests are refused, and the next valid one is answered as before."""
        stock = self.subject.bench.stock
        for data in stock.invalid:
            try:
                made = engine.encode(copy.deepcopy(data))
            except Exception as error:  # noqa: BLE001 - what it means is the question
                answer = of_error(error, "")
                if answer.kind is not Kind.REFUSED:
                    self.ledger.fail(
                        live.REFUSES, f"the invalid request {shortened(data)} {answer.describe()}"
                    )
                    return
            else:
                self.ledger.fail(
                    live.REFUSES,
                    f"the invalid request {shortened(data)} was answered {shortened(plain(made))}",
                )
                return
            self.ledger.saw(live.REFUSES)
        again = plain(engine.encode(copy.deepcopy(stock.valid[0])))
        if what := difference(again, answers[0], self.subject.bench.hidden):
            self.ledger.fail(
                live.ANSWERS, f"asked again, {shortened(stock.valid[0])} was answered {what}"
            )

    def _selected(self, folder: Path, answers: list[Any]) -> None:
        """The plugin answers the same, wherever its name stands."""
        data = self.subject.bench.stock.valid[0]
        base = self.subject.model
        for how, name, argument in (
            ("in the model's config.json", NAME, None),
            ("in the engine arguments, and another in config.json,", OTHER, NAME),
        ):
            if self.ledger.blocked is not None:
                return
            model = naming_plugin(name, folder, base)
            engine = self._start(model, argument, how)
            if engine is None:
                return
            try:
                got = plain(engine.encode(copy.deepcopy(data)))
            except Exception as error:  # noqa: BLE001 - the plugin may raise anything
                answer = of_error(error, "")
                self.ledger.fail(
                    live.SELECTED, f"named {how} the plugin's request {answer.describe()}"
                )
                return
            if what := difference(got, answers[0], self.subject.bench.hidden):
                self.ledger.fail(live.SELECTED, f"named {how} the plugin gave {what}")
                return
            self.ledger.saw(live.SELECTED)


def _no_pooler(subject: Subject, error: Exception) -> str:
    model = subject.section.get("model", "tiny-embedding")
    return (
        f"the model {model} has no pooler for what the plugin asks ({first_line(str(error))}): "
        "name one that has in [io-processor] model"
    )


@attrs.define
class _Recorded:
    """What an engine hands over to its plugin, and gets from it."""

    holder: Any
    name: str
    plugin: Any
    prompts: Any = None
    outputs: Any = None

    @classmethod
    def insert(cls, engine: PoolingEngine) -> _Recorded:
        """Put a recording around the plugin of an engine."""
        holder, name = engine.plugin()
        recorded = cls(holder, name, getattr(holder, name))
        setattr(holder, name, recorded)
        return recorded

    def remove(self) -> None:
        """Take it away again."""
        setattr(self.holder, self.name, self.plugin)

    def pre_process(self, *arguments: Any, **keywords: Any) -> Any:  # noqa: ANN401 - the plugin's
        """Call the plugin, and keep the prompts."""
        prompts = self.plugin.pre_process(*arguments, **keywords)
        self.prompts = plain(copy.deepcopy(prompts))
        return prompts

    def post_process(self, outputs: Any, *arguments: Any, **keywords: Any) -> Any:  # noqa: ANN401
        """Keep the outputs, and call the plugin."""
        self.outputs = copy.deepcopy(outputs)
        return self.plugin.post_process(outputs, *arguments, **keywords)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - an attribute of the plugin
        return getattr(self.plugin, name)
