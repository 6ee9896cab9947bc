# SPDX-License-Identifier: Apache-2.0
"""Evidence ``server``: the hook in a live ``vllm serve``, as its clients see it.

A server of our own holds streams back, so that nothing of a blocked answer may arrive, and puts
scores into the bodies.
With ``--server-url`` a running server is used instead, which must serve the hook and do the latter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import attrs

from conformance.classifier_hook import clients, live
from conformance.classifier_hook.clients import WAYS, Question
from conformance.classifier_hook.live import Answer, HookTrial
from conformance.counterexample.source import flat, literal
from conformance.engine.entry_points import HOOK_RUNTIME
from conformance.engine.server import Server
from conformance.plugin.target import Plugin

#: Requests at the same time, and those that disconnect.
CROWD, LEAVING = 50, 20

#: Seconds after which clients disconnect: while answers are generated, and while hooks are asked.
IMPATIENCE = (0.02, 0.05, 0.1, 0.2, 0.4)

#: How often a crowd is asked in which every call was late.
CROWDS = 3

#: Requests that the engine works on at once: those with the same text end in the same step.
AT_ONCE = 64

MIDDLEWARE = "--middleware=reference_plugins.classifier_hook.body.ScoresInBody"

_MODULE = "vllm_conformance_hooks"
_WITNESS = "conformance.classifier_hook.witness:Witness"


@attrs.define(eq=False)
class Trial(HookTrial):
    """The trial of one hook in a live server, which starts when the trial is opened."""

    host: ClassVar[str] = "completions and chat"

    def start(self) -> None:
        """Start the server, or take the one that runs already."""
        if self.first:
            self.serve(self.running() or self._start())

    def _start(self) -> Server:
        opening, folder = self.opening, Path(self.opening.folder)
        entry = folder / "entry"
        entry.mkdir(parents=True, exist_ok=True)
        (entry / f"{_MODULE}.py").write_text(
            _factory(opening.plugin, self.bench.arguments), encoding="utf-8"
        )
        return Server.start(
            opening.model,
            log=folder / "server.log",
            python_path=[
                entry,
                *opening.python_path(),
                live.runtime_folder(),
                Path(__file__).parents[2],
            ],
            entry_points=HOOK_RUNTIME,
            device=self.device,
            arguments=[
                MIDDLEWARE,
                "--max-model-len=512",
                f"--max-num-seqs={AT_ONCE}",
                *opening.settings.server_arguments,
            ],
            environment={
                "CLASSIFIER_HOOKS": f"{_MODULE}:hook,{_WITNESS}",
                "CLASSIFIER_HOOKS_STREAMING": "hold",
                "CLASSIFIER_HOOKS_REFUSAL": "",
            },
            imported=self.first,
        )

    def run(self) -> None:
        """Ask the server in every way, alone and among many."""
        if not self.first:
            self.serve(self._start())
            self.judge.prepare()
        self._run()
        self.judge.finish()

    def _run(self) -> None:
        if not self.healthy(loads=live.LOADS, how="as a hook of vllm serve"):
            return
        if self.judge.entry is None:
            self.ledger.fault = "a server took a hook that the simulator refuses"
            return
        if not self._shows_scores():
            return
        self.ledger.saw(live.LOADS)
        for judge in (self._answers, self._again, self._crowds, self._harmless):
            judge()
            if death := self.death():
                self.ledger.fault = None  # whatever was seen of it
                self.ledger.fail(live.SURVIVES, death)
            if self.ledger.over:
                return
        self.ledger.saw(live.SURVIVES)

    def _shows_scores(self) -> bool:
        """Tell whether the answers of a server hold scores of the hook."""
        if self.own:
            return True
        (answer,) = self._ask([Question(None, max_tokens=2)])
        if self.judge.entry.name in (answer.scores or {}):
            return True
        self.ledger.blocked = (
            f"{self.server.url} shows no scores under {self.judge.entry.name!r}: "
            f"start it with the hook and with {MIDDLEWARE}"
        )
        return False

    def _ask(self, questions: Sequence[Question], *, together: bool = False) -> list[Answer]:
        ask = clients.together if together else clients.asked
        return asyncio.run(ask(self.server.url, self.server.model_name, questions))

    def _answers(self) -> None:
        """Every text, asked for in every way, gets what the simulator says of it."""
        for text in self.texts():
            for way in WAYS:
                (answer,) = self._ask([Question(text, way)])
                for _ in range(live.TIMES - 1):
                    if self.judge.late(answer):
                        (answer,) = self._ask([Question(text, way)])
                self.judge.alone(answer)
                if self.ledger.over:
                    return
        for way in WAYS:  # what the model says by itself, cut off; and several at once
            for n in (1, 2):
                for answer in self._ask([Question(None, way, max_tokens=4, n=n)]):
                    self.judge.alone(answer)
                    if self.ledger.over:
                        return

    def _again(self) -> None:
        """Asked again in another order, every text gets the same."""
        texts = self.texts()
        questions = [Question(text) for text in reversed(texts)]
        for answer in self._ask(questions):
            self.judge.among(answer, live.SEQUENCE, "asked again after others,")
            if self.ledger.over:
                return

    def _crowds(self) -> None:
        """Everybody gets the same among many, with ids of their own and with the same id."""
        texts, count = self.texts(), self.opening.settings.crowd or CROWD
        for rule, same in ((live.TOGETHER, False), (live.SAME_IDS, True)):
            with_id = " with the same X-Request-Id" if same else ""
            for _ in range(CROWDS):
                questions = [
                    Question(
                        texts[place % len(texts)],
                        WAYS[place // len(texts) % len(WAYS)],
                        "same" if same else f"id-{place}",
                    )
                    for place in range(count)
                ]
                answers = self._ask(questions, together=True)
                for answer in answers:
                    self.judge.among(answer, rule, f"among {count} requests at once{with_id}")
                    if self.ledger.over:
                        return
                if self.ledger.seen[rule]:
                    break

    def _harmless(self) -> None:
        """After clients that disconnected everybody gets the same."""
        texts = self.texts()
        leaving = [
            Question(
                texts[place % len(texts)],
                WAYS[place % len(WAYS)],
                leaves=IMPATIENCE[place % len(IMPATIENCE)],
            )
            for place in range(LEAVING)
        ]
        asyncio.run(clients.leave(self.server.url, self.server.model_name, leaving))
        for answer in self._ask([Question(text) for text in texts]):
            when = f"after {LEAVING} clients had disconnected,"
            self.judge.among(answer, live.HARMLESS, when)
            if self.ledger.over:
                return


def _factory(plugin: Plugin, arguments: Mapping[str, Any]) -> str:
    """Return the source of a module whose function makes the hook as the profile says."""
    outer = plugin.qualname.partition(".")[0]
    given = f"**{flat(literal(dict(arguments)))}" if arguments else ""
    return (
        f"import datetime\n\nfrom {plugin.module} import {outer}\n\n\n"
        f"def hook():\n    return {plugin.qualname}({given})\n"
    )
