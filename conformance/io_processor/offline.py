# SPDX-License-Identifier: Apache-2.0
"""Evidence ``offline``: the plugin in real ``vllm.LLM`` engines.

What an engine hands the plugin is recorded and given to a fresh instance again,
which must make the same of it.
"""

from __future__ import annotations

import copy
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import attrs
import torch

from conformance.engine.entry_points import TRIED
from conformance.engine.pooling import PoolingEngine
from conformance.engine.pooling_models import naming_plugin
from conformance.io_processor import hostile, live, parameters
from conformance.io_processor.answers import of_error
from conformance.io_processor.calling import entry_point
from conformance.io_processor.live import IOProcessorTrial
from conformance.plugin.expectation import OracleFailed
from conformance.watching.comparison import difference, plain, shortened
from conformance.watching.raised import said

#: What config.json names where the engine's arguments are to come first.
OTHER = "a-plugin-that-is-not-installed"


@attrs.define(eq=False)
class Trial(IOProcessorTrial):
    """The trial of one plugin in offline engines."""

    host: ClassVar[str] = "LLM.encode"

    #: One that goes away takes the process groups of the others with it.
    _engines: list[PoolingEngine] = attrs.field(init=False, factory=list)

    def __attrs_post_init__(self) -> None:
        """Find out what the plugin is tried with."""
        self.ledger.blocked = self.refused()
        if self.ledger.blocked is None:
            self.prepare()

    def run(self) -> None:
        """Start engines and ask them, each with the plugin named at another place."""
        with entry_point(self.opening.qualname) as folder:
            self._run(folder)

    def _run(self, folder: Path) -> None:
        self.opening.progress("starting an offline engine")
        engine = self._start(self.model, TRIED, "in the engine arguments")
        if engine is None:
            return
        self.ledger.saw(live.LOADS)
        answers = self._answers(engine)
        if answers is None:
            return
        self._refusals(engine, answers)
        if self.ledger.blocked is None:
            hostile.in_engine(self.ledger, engine, self.bench, self.explored(), answers)
        self._selected(folder, answers)
        if self.ledger.blocked is None:
            self.ledger.saw(live.SURVIVES)

    def _start(self, model: str | Path, plugin: str | None, how: str) -> PoolingEngine | None:
        try:
            engine = PoolingEngine.start(model, self.length, plugin=plugin, device=self.device)
        except Exception as error:  # noqa: BLE001 - vLLM and the plugin may raise anything
            rule = live.LOADS if plugin and model == self.model else live.SELECTED
            why = said(error, self.bench.path)
            why = f"an engine with the plugin named {how} does not start: {why}"
            self.ledger.did_not_start(rule, why)
            return None
        engine.task = self.bench.task_to_name
        self._engines.append(engine)
        return engine

    def _answers(self, engine: PoolingEngine) -> list[Any] | None:
        """Return what valid requests are answered, or None where one is not."""
        answers = []
        stock = self.bench.stock
        for data in stock.originals:
            recorded = _Recorded.insert(engine)
            try:
                answers.append(plain(engine.encode(copy.deepcopy(data))))
            except Exception as error:  # noqa: BLE001 - the plugin may raise anything
                if why := parameters.no_pooler(self.bench, engine.tasks):
                    self.ledger.blocked = why
                    return None
                answer = of_error(error, "", path=self.bench.path)
                cause = parameters.params_trouble(self.bench)
                self.ledger.fail(
                    live.ANSWERS,
                    f"the valid request {shortened(data)} {answer.describe(served=False)}"
                    + (f": {cause}" if cause else ""),
                )
                return None
            finally:
                recorded.remove()
            self.ledger.saw(live.ANSWERS)
            if why := self._replayed(data, recorded, answers[-1]):
                self.ledger.fault = why
            self._means(data, recorded, answers[-1])
        if all(answer is None for answer in answers):
            self.ledger.fail(live.ANSWERS, "every valid request was answered with nothing")
            return None
        return answers

    def _replayed(self, data: object, recorded: _Recorded, answer: object) -> str | None:
        """Give a fresh instance what the engine's got; say what is different."""
        bench = self.bench
        fresh = bench.make()
        given = fresh.parse_data(copy.deepcopy(data))
        prompts = plain(fresh.pre_process(prompt=given))
        if what := difference(prompts, recorded.prompts):
            return f"in the simulator {shortened(data)} becomes other prompts: {what}"
        with torch.inference_mode():
            again = plain(fresh.post_process(recorded.outputs))
        what = difference(again, answer, bench.hidden)
        return what and f"from the same outputs the simulator gives {what} for {shortened(data)}"

    def _means(self, data: object, recorded: _Recorded, answer: object) -> None:
        """Hold an answer against what the author says for the outputs of the engine."""
        if self.meaning is None:
            return
        try:
            wanted = self.meaning.answer(data, recorded.outputs)
        except OracleFailed as error:
            self.ledger.remarks[live.MEANS] = str(error)
            return
        if what := self.meaning.wrong(self.bench, answer, wanted):
            self.ledger.advise(live.MEANS, f"for {shortened(data)} the plugin gave {what}")
        else:
            self.ledger.saw(live.MEANS)

    def _refusals(self, engine: PoolingEngine, answers: list[Any]) -> None:
        """Invalid requests are refused, and the next valid one is answered as before."""
        stock = self.bench.stock
        for data in stock.invalid:
            with suppress(Exception):
                made = engine.encode(copy.deepcopy(data))
                self.ledger.fail(
                    live.REFUSES,
                    f"the invalid request {shortened(data)} was answered {shortened(plain(made))}",
                )
                return
            self.ledger.saw(live.REFUSES)
        again = plain(engine.encode(copy.deepcopy(stock.valid[0])))
        if what := difference(again, answers[0], self.bench.hidden):
            self.ledger.fail(
                live.ANSWERS, f"asked again, {shortened(stock.valid[0])} was answered {what}"
            )

    def _selected(self, folder: Path, answers: list[Any]) -> None:
        """The plugin answers the same, wherever its name stands."""
        data = self.bench.stock.valid[0]
        base = self.model
        for how, name, argument in (
            ("in the model's config.json", TRIED, None),
            ("in the engine arguments, and another in config.json,", OTHER, TRIED),
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
                answer = of_error(error, "", path=self.bench.path)
                self.ledger.fail(
                    live.SELECTED,
                    f"named {how} the plugin's request {answer.describe(served=False)}",
                )
                return
            if what := difference(got, answers[0], self.bench.hidden):
                self.ledger.fail(live.SELECTED, f"named {how} the plugin gave {what}")
                return
            self.ledger.saw(live.SELECTED)


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

    def pre_process(self, *arguments: object, **keywords: object) -> Any:  # noqa: ANN401 - the plugin's
        """Call the plugin, and keep the prompts."""
        prompts = self.plugin.pre_process(*arguments, **keywords)
        self.prompts = plain(copy.deepcopy(prompts))
        return prompts

    def post_process(self, outputs: object, *arguments: object, **keywords: object) -> Any:  # noqa: ANN401 - as vLLM calls it
        """Keep the outputs, and call the plugin."""
        self.outputs = copy.deepcopy(outputs)
        return self.plugin.post_process(outputs, *arguments, **keywords)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - an attribute of the plugin
        return getattr(self.plugin, name)
