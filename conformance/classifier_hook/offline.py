# SPDX-License-Identifier: Apache-2.0
"""Evidence ``offline``: the hook on a real ``AsyncLLM``, in a program of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import attrs

from conformance.classifier_hook import live
from conformance.classifier_hook.live import Answer, HookTrial
from conformance.classifier_hook.program import Ask, Cancelled, Order, Program
from conformance.classifier_hook.timing import ENDING, STEP
from conformance.engine.async_engine import AsyncEngineFailed
from conformance.watching.comparison import shortened

#: How a text is asked for.
WAYS = ("FINAL_ONLY", "DELTA", "CUMULATIVE")

#: Requests whose contexts hold more, or another finish reason, than those of most.
CONTEXTS = (
    Ask(params={"max_tokens": 4}, way="generate, cut off"),
    Ask(params={"max_tokens": 4, "logprobs": 1, "prompt_logprobs": 1}, way="generate, logprobs"),
    Ask(params={"max_tokens": 4, "extra_args": {"tenant": "a", "tags": ["x"]}}, way="extra_args"),
    Ask(n=2, params={"max_tokens": 4, "temperature": 1.0, "seed": 1}, way="generate, n = 2"),
    Ask(params={"max_tokens": 1}, kind="DELTA", way="generate, one token"),
)

#: How many turns of the event loop after hooks have begun requests are aborted.
TURNS = (1, 2, 4, 8)

#: Completions that end in the same step of the engine.
CROWD = 32

#: Requests after each of which one more task is left: the tasks are the calls', not the hook's own.
ROW = 6


@attrs.define(eq=False)
class Trial(HookTrial):
    """The trial of one hook in a program, which starts when the trial is opened."""

    host: ClassVar[str] = "AsyncLLM"

    program: Program = attrs.field(init=False)

    def start(self) -> None:
        """Start the program, or its process."""
        order = Order(
            self.opening.model,
            (self.opening.plugin.module, self.opening.plugin.qualname),
            dict(self.bench.arguments),
            [*self.opening.python_path(), live.runtime_folder()],
            self.device,
            held=not self.first,
        )
        self.program = Program.start(order)
        self.ends.callback(self.program.close)

    def run(self) -> None:
        """Ask the engine, in every way that it is asked."""
        if not self.first:
            self.program.begin()
            self.judge.prepare()
        try:
            self._run(self.program)
        except AsyncEngineFailed as error:
            self.ledger.fail(live.SURVIVES, str(error))
        self.judge.finish()

    def _run(self, program: Program) -> None:
        self.opening.progress("starting AsyncLLM")
        if refused := program.wait_started():
            self.ledger.fail(live.LOADS, refused)
            return
        if self.judge.entry is None:
            self.ledger.fault = "an engine took a hook that the simulator refuses"
            return
        self.ledger.saw(live.LOADS)
        for judge in (
            self._answers,
            self._contexts,
            self._crowd,
            self._waits,
            self._ends,
            self._leaves,
        ):
            judge(program)
            if self.ledger.over:
                return
        self.ledger.saw(live.SURVIVES)

    def _asked(self, program: Program, ask: Ask) -> list[Answer]:
        """Ask, again while the hook is late."""
        found: list[Answer] = []
        for _ in range(live.TIMES):
            (found,) = program.do("ask", [ask])
            if not any(map(self.judge.late, found)):
                break
        return found

    def _answers(self, program: Program) -> None:
        """Every text gets the scores of the simulator, and what they ask for goes out."""
        for text in self.texts():
            for kind in WAYS:
                ask = Ask(text, kind=kind, way=f"generate, {kind}")
                self._judge(self._asked(program, ask))
                if self.ledger.over:
                    return

    def _judge(self, answers: Sequence[Answer]) -> None:
        for answer in answers:
            if not self.ledger.over:
                self.judge.alone(answer)

    def _contexts(self, program: Program) -> None:
        """What engines say of completions of every kind is scored."""
        for ask in CONTEXTS:
            self._judge(self._asked(program, ask))

    def _crowd(self, program: Program) -> None:
        """Completions that end in the same step of an engine do not mix."""
        texts = self.texts()
        asks = [Ask(texts[n % len(texts)], request_id=f"id-{n}", way="crowd") for n in range(CROWD)]
        for (answer,) in program.do("crowd", asks):
            when = f"among {CROWD} completions that ended at once"
            self.judge.among(answer, live.TOGETHER, when)
            if self.ledger.over:
                return

    def _waits(self, program: Program) -> None:
        """No step of the hook keeps the event loop of the engine waiting."""
        for text in self.texts():
            shortest = float("inf")
            for _ in range(live.TIMES):
                shortest = min(shortest, program.do("waited", text))
                if shortest <= STEP:
                    break
            if shortest > STEP:
                self.ledger.fail(
                    live.WAITS,
                    f"score waited {shortest * 1000:.0f} ms on the engine's event loop, for "
                    f"{shortened(text)} (at most {STEP * 1000:.0f} ms)",
                )
                return
            self.ledger.saw(live.WAITS)

    def _ends(self, program: Program) -> None:
        """When a request is aborted its hook ends, and leaves no task."""
        for text in self.texts()[:2]:
            for turns in TURNS:
                came: Cancelled = program.do("abort", text, turns)
                for _ in range(live.TIMES - 1):  # the machine may be busy
                    if not came.at_work or not (came.ignored or came.left):
                        break
                    came = program.do("abort", text, turns)
                if not came.at_work:
                    continue
                where = f"{shortened(text)} was aborted {turns} turns of the event loop later"
                if came.ignored:
                    within = f"{ENDING * 1000:.0f} ms"
                    self.ledger.fail(
                        live.ENDS, f"{where}, and score went on for more than {within}"
                    )
                    return
                if came.left:
                    self.ledger.fail(
                        live.LEAVES_NOTHING, f"{where}, and {came.left} task(s) were left behind"
                    )
                    return
                self.ledger.saw(live.ENDS)
        self.ledger.beside[live.ENDS] = "score was never at work when a request was aborted"

    def _leaves(self, program: Program) -> None:
        """No task is left of requests; one that serves all calls is the hook's own."""
        asks = [Ask(params={"max_tokens": 2}, request_id=f"id-{n}") for n in range(ROW)]
        left: list[int] = program.do("left", asks)
        if all(left):
            self.ledger.fail(
                live.LEAVES_NOTHING, f"each of {ROW} requests left {left[-1]} task(s) behind"
            )
            return
        self.ledger.saw(live.LEAVES_NOTHING, len(left))
