# SPDX-License-Identifier: Apache-2.0
"""Runs in a worker: random histories in vLLM's own batch and in the model of it."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

from prediction import disagreement, predict
from vllm.sampling_params import SamplingParams
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor

from conformance.logits.configuration import MAX_REQUESTS
from conformance.logits_batch.batch_model import Update, judge
from conformance.logits_batch.host import Host, Joining

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    import torch

VOCABULARY = 64
PARAMS = SamplingParams(max_tokens=64)


class _Nothing(LogitsProcessor):
    """A plugin that does nothing."""

    def __init__(self) -> None:
        pass

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        pass

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        return logits


class History:
    """One random history, played in both at once."""

    def __init__(self, chance: random.Random, plugin: LogitsProcessor | None = None) -> None:
        self.chance = chance
        self.host = Host(
            plugin or _Nothing(),
            VOCABULARY,
            reorder=chance.random() < 0.5,
            asynchronous=chance.random() < 0.5,
        )
        self.prefill: dict[str, int] = {}  #: live request -> tokens still to compute
        self.rows: tuple[str, ...] = ()
        self.joined = 0
        self.seen: Counter[str] = Counter()

    def step(self) -> str | None:
        """Advance by a step; return in what the two differ, or None."""
        chance, host = self.chance, self.host
        busy = chance.random() < 0.7  # in the other steps nobody comes or goes
        live = list(self.prefill)
        finish = [name for name in live if busy and chance.random() < 0.3]
        for name in finish:
            del self.prefill[name]
        room = MAX_REQUESTS - len(self.prefill)
        join = [self._new() for _ in range(min(room, chance.choice((0, 0, 1, 2, 4)) * busy))]
        pause = [name for name in self.prefill if name in live and busy and chance.random() < 0.2]
        chunk: dict[str, int] = {}
        for name in self.prefill:
            if name not in pause and self.prefill[name] > 1 and chance.random() < 0.5:
                chunk[name] = chance.randint(1, self.prefill[name] - 1)
        self.schedule(finish=finish, join=join, pause=pause, chunk=chunk)
        wrong = self._compare({*finish, *pause}, [request.name for request in join])
        self.complete()
        for name in self.prefill:
            state = host.requests[name]
            tokens = len(state.prompt_token_ids or ()) + len(host.outputs[name])
            computed = 0 if name in pause else state.num_computed_tokens
            self.prefill[name] = max(1, tokens - computed)
        return wrong

    def schedule(self, **what: Any) -> None:  # noqa: ANN401 - the arguments of the host
        """Begin a step."""
        self.host.schedule(**what)

    def complete(self) -> None:
        """End a step."""
        self.host.batch.update_async_output_token_ids()
        self.host.complete(lambda row: row + 3)

    def params(self, name: str) -> SamplingParams:  # noqa: ARG002 - for others to use
        """Return the parameters of a request."""
        return PARAMS

    def _new(self) -> Joining:
        name = f"r{self.joined}"
        self.joined += 1
        length = self.chance.randint(1, 5)
        self.prefill[name] = length
        return Joining(name, [7] * length, self.params(name))

    def _compare(self, leaving: set[str], new: list[str]) -> str | None:
        host = self.host
        back = [name for name in host.scheduled if name not in {*self.rows, *new}]
        prediction = predict(self.rows, leaving, [*new, *back])
        update = self._update()
        before, self.rows = self.rows, tuple(host.batch.req_ids)
        wrong = disagreement(prediction, update, self.rows)
        judgement = judge(update, before)
        if wrong is None and judgement.findings:
            wrong = f"vLLM's own update is called illegal: {judgement.findings}"
        if wrong is None and judgement.rows != self.rows:
            wrong = f"judged to end in {judgement.rows}, and the rows are {self.rows}"
        self._count(update)
        return wrong and f"{wrong}; before {before}, update {update}"

    def _update(self) -> Update[str] | None:
        """Return the host's update, with the names of those that were added."""
        real = self.host.update
        if real is None:
            return None
        by_outputs = {id(s.output_token_ids): name for name, s in self.host.requests.items()}
        return Update(
            real.batch_size,
            tuple(real.removed),
            tuple((index, by_outputs[id(outputs)]) for index, _, _, outputs in real.added),
            tuple((a, b, way.name) for a, b, way in real.moved),
        )

    def _count(self, update: Update[str] | None) -> None:
        self.seen["steps"] += 1
        if update is None:
            self.seen["none"] += 1
            return
        self.seen["added"] += len(update.added)
        self.seen["removed"] += len(update.removed)
        self.seen.update(way for _, _, way in update.moved)


def compare(connection: Connection) -> None:
    """Play as many histories as asked for, from a seed; answer with the first difference."""
    seed, histories = connection.recv()
    seen: Counter[str] = Counter()
    wrong: str | None = None
    for number in range(histories):
        chance = random.Random(f"{seed}-{number}")
        history = History(chance)
        for step in range(chance.randint(4, 8)):
            if (wrong := history.step()) is not None:
                wrong = f"history {number}, step {step}: {wrong}"
                break
        seen += history.seen
        if wrong:
            break
    connection.send((wrong, dict(seen)))
