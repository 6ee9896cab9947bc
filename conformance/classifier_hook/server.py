# SPDX-License-Identifier: Apache-2.0
"""Evidence ``server``: the hook in a live ``vllm serve``, as its clients see it.

A server of our own holds streams back, so that nothing of a blocked answer may arrive, and puts
scores into the bodies.
With ``--server-url`` a running server is used instead, which must serve the hook and do the latter.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import vllm

from conformance.classifier_hook import clients, live
from conformance.classifier_hook.clients import WAYS, Question
from conformance.classifier_hook.live import Judge, Subject
from conformance.counterexample.source import flat, literal
from conformance.engine import serving
from conformance.engine.entry_points import HOOK_RUNTIME
from conformance.engine.server import ExternalServer, Server, external
from conformance.ledger import Ledger
from conformance.rules import Evidence

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from conformance.classifier_hook.live import Answer
    from conformance.verdict import RuleResult

#: What of the server a hook is reached by, as certificates have it.
HOST = "completions and chat"

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


@attrs.define
class Trial:
    """The trial of one hook in a live server, which starts when the trial is opened."""

    subject: Subject
    ledger: Ledger = attrs.field(init=False)
    judge: Judge = attrs.field(init=False)
    server: Server | ExternalServer | None = attrs.field(init=False, default=None)
    progress: Callable[[str], None] = attrs.field(init=False, default=lambda _: None)
    _done: bool = attrs.field(init=False, default=False)

    @classmethod
    def open(cls, *arguments: Any) -> Trial:  # noqa: ANN401 - those of live.Subject
        """Open the trial, and start the server in the background."""
        return cls(Subject(*arguments))

    def __attrs_post_init__(self) -> None:
        """Start the server, and find out meanwhile what does not apply."""
        url = self.subject.settings.server_url
        self.ledger = Ledger(Evidence.SERVER)
        # A fork of this process, which has not touched the hook yet.
        self.server = external(url) if url else self._start()
        self.judge = Judge(self.subject, self.ledger, held=not url)
        self.judge.prepare()

    def _start(self) -> Server:
        subject, folder = self.subject, Path(self.subject.folder)
        entry = folder / "entry"
        entry.mkdir(parents=True, exist_ok=True)
        (entry / f"{_MODULE}.py").write_text(_factory(subject), encoding="utf-8")
        return Server.start(
            subject.model,
            log=folder / "server.log",
            python_path=[
                entry,
                *subject.python_path(),
                live.runtime_folder(),
                Path(__file__).parents[2],
            ],
            entry_points=HOOK_RUNTIME,
            device=subject.device,
            arguments=[MIDDLEWARE, "--max-model-len=512", f"--max-num-seqs={AT_ONCE}"],
            environment={
                "CLASSIFIER_HOOKS": f"{_MODULE}:hook,{_WITNESS}",
                "CLASSIFIER_HOOKS_STREAMING": "hold",
                "CLASSIFIER_HOOKS_REFUSAL": "",
            },
            imported=True,
        )

    def close(self) -> None:
        """End the server."""
        if self.server is not None:
            self.server.stop()

    def context(self) -> dict[str, Any]:
        """Return what a certificate says about this trial."""
        host = f"{HOST} of vllm serve {vllm.__version__}"
        told = live.context(self.subject, Evidence.SERVER, host)
        return told | serving.context(self.server, HOST)

    def check(self, rule: str) -> RuleResult:
        """Judge one rule by what happened on the server."""
        if not self._done and self.server is not None:
            with self.ledger.timed():
                self._run(self.server)
                self.judge.finish()
        self._done = True
        return self.ledger.result(rule)

    def _run(self, server: Server | ExternalServer) -> None:
        how = "as a hook of vllm serve"
        if not serving.healthy(server, self.ledger, self.progress, loads=live.LOADS, how=how):
            return
        if self.judge.entry is None:
            self.ledger.fault = "a server took a hook that the simulator refuses"
            return
        if not self._shows_scores():
            return
        self.ledger.saw(live.LOADS)
        for judge in (self._answers, self._again, self._crowds, self._harmless):
            judge()
            if death := serving.death(self.server):
                self.ledger.fault = None  # whatever was seen of it
                self.ledger.fail(live.SURVIVES, death)
            if self.ledger.over:
                return
        self.ledger.saw(live.SURVIVES)

    def _shows_scores(self) -> bool:
        """Tell whether the answers of a server hold scores of the hook."""
        if isinstance(self.server, Server):
            return True
        (answer,) = self._ask([Question(None, max_tokens=2)])
        if self.judge.entry.name in (answer.scores or {}):
            return True
        self.ledger.blocked = (
            f"{self.server and self.server.url} shows no scores under {self.judge.entry.name!r}: "
            f"start it with the hook and with {MIDDLEWARE}"
        )
        return False

    def _ask(self, questions: Sequence[Question], *, together: bool = False) -> list[Answer]:
        assert self.server is not None
        ask = clients.together if together else clients.asked
        return asyncio.run(ask(self.server.url, self.server.model_name, questions))

    def _answers(self) -> None:
        """Every text, asked for in every way, gets what the simulator says of it."""
        for text in self.subject.texts():
            for way in WAYS:
                (answer,) = self._ask([Question(text, way)])
                for _ in range(live.TIMES - 1):
                    if self.judge.late(answer):
                        (answer,) = self._ask([Question(text, way)])
                self.judge.alone(answer)
                if self.ledger.over:
                    return
        for way in WAYS:  # what the model says by itself, cut off
            (answer,) = self._ask([Question(None, way, max_tokens=4)])
            self.judge.alone(answer)
            if self.ledger.over:
                return

    def _again(self) -> None:
        """Asked again in another order, every text gets the same."""
        texts = self.subject.texts()
        questions = [Question(text) for text in reversed(texts)]
        for answer in self._ask(questions):
            self.judge.among(answer, live.SEQUENCE, "asked again after others,")
            if self.ledger.over:
                return

    def _crowds(self) -> None:
        """Everybody gets the same among many, with ids of their own and with the same id."""
        texts = self.subject.texts()
        for rule, same in ((live.TOGETHER, False), (live.SAME_IDS, True)):
            with_id = " with the same X-Request-Id" if same else ""
            for _ in range(CROWDS):
                questions = [
                    Question(
                        texts[place % len(texts)],
                        WAYS[place // len(texts) % len(WAYS)],
                        "same" if same else f"id-{place}",
                    )
                    for place in range(CROWD)
                ]
                answers = self._ask(questions, together=True)
                for answer in answers:
                    self.judge.among(answer, rule, f"among {CROWD} requests at once{with_id}")
                    if self.ledger.over:
                        return
                if self.ledger.seen[rule]:
                    break

    def _harmless(self) -> None:
        """After clients that disconnected everybody gets the same."""
        texts = self.subject.texts()
        leaving = [
            Question(
                texts[place % len(texts)],
                WAYS[place % len(WAYS)],
                leaves=IMPATIENCE[place % len(IMPATIENCE)],
            )
            for place in range(LEAVING)
        ]
        assert self.server is not None
        asyncio.run(clients.leave(self.server.url, self.server.model_name, leaving))
        for answer in self._ask([Question(text) for text in texts]):
            when = f"after {LEAVING} clients had disconnected,"
            self.judge.among(answer, live.HARMLESS, when)
            if self.ledger.over:
                return


def _factory(subject: Subject) -> str:
    """Return the source of a module whose function makes the hook as the profile says."""
    module, qualname = subject.plugin.module, subject.plugin.qualname
    outer = qualname.partition(".")[0]
    given = dict(subject.bench.arguments)
    arguments = f"**{flat(literal(given))}" if given else ""
    return (
        f"import datetime\n\nfrom {module} import {outer}\n\n\n"
        f"def hook():\n    return {qualname}({arguments})\n"
    )
