# SPDX-License-Identifier: Apache-2.0
"""The same questions, whichever way the plugin is loaded and asked, and their answers."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from conformance.ledger import Ledger
    from conformance.logits.workload import Job

#: What the trial in offline engines leaves for the trial on servers, in the plugin's folder.
HANDOVER = "offline-tokens.json"


@attrs.frozen
class Reply:
    """The tokens that a request got, and how many of them no rounding can change."""

    tokens: tuple[int, ...]
    decided: int


@attrs.define
class Ways:
    """What was asked, the answers in one way, and how the other ways compare."""

    ledger: Ledger
    rule: str  #: that they are the same
    reference: str  #: how the reference answers were obtained
    jobs: Sequence[Job]
    replies: Sequence[Reply]

    def compare(self, way: str, answers: Iterable[tuple[int, ...]]) -> bool:
        """Note whether the answers of another way are the same, and return it."""
        for job, reply, tokens in zip(self.jobs, self.replies, answers, strict=True):
            if problem := difference(reply, tokens, f"with {self.reference}"):
                what = f"{job.label} got other tokens with {way}: {problem}"
                self.ledger.fail(self.rule, what)
                return False
            self.ledger.saw(self.rule, int(reply.decided > 0))
        return True


def difference(reply: Reply, tokens: Sequence[int], where: str) -> str | None:
    """Say where tokens first differ from a reply's, as far as those are decided."""
    for position in range(reply.decided):
        if position >= len(tokens):
            return f"{len(tokens)} of them, {where} {len(reply.tokens)}"
        if tokens[position] != reply.tokens[position]:
            return f"token {position} is {tokens[position]}, {where} {reply.tokens[position]}"
    if reply.decided == len(reply.tokens) < len(tokens):
        return f"{len(tokens)} of them, {where} {len(reply.tokens)}"
    return None


def hand_over(ways: Ways, folder: str) -> None:
    """Leave questions and answers for the trial on servers of the same run."""
    document = {
        "run": os.getppid(),
        "answers": [
            [job.choice, job.prompt, reply.tokens, reply.decided]
            for job, reply in zip(ways.jobs, ways.replies, strict=True)
        ],
    }
    path = Path(folder) / HANDOVER
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(document), encoding="utf-8")
    draft.replace(path)


def handed_over(jobs: Sequence[Job], folder: str) -> list[Reply] | None:
    """Return the answers that offline engines gave to these questions in the same run, if any.

    Trials of one run are forks of one process; what another run has left says nothing.
    """
    try:
        document = json.loads((Path(folder) / HANDOVER).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    if document["run"] != os.getppid():
        return None
    answers = {
        (tuple(choice), tuple(prompt)): Reply(tuple(tokens), decided)
        for choice, prompt, tokens, decided in document["answers"]
    }
    found = [answers.get((job.choice, job.prompt)) for job in jobs]
    return [reply for reply in found if reply] if all(found) else None
