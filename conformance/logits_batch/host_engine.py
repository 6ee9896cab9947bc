# SPDX-License-Identifier: Apache-2.0
"""Recording what the installed host does, in a real engine.

Two processors are loaded.  The first is not argmax-invariant and leaves each request two tokens,
of which the second is less likely; the second is argmax-invariant and leaves only the likelier.
So the tokens that a request gets say whether each processor acted on the right row in each step,
and whether what it returned was sampled from.
Worker processes only: vLLM is imported.
"""

from __future__ import annotations

import random
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

import attrs
import torch
import vllm
from vllm.config import VllmConfig
from vllm.sampling_params import SamplingParams
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor

from conformance.engine.environment import chosen_device
from conformance.engine.models import VOCABULARY
from conformance.engine.offline import OfflineEngine
from conformance.hosts import change
from conformance.logits.requests import LAST_SPECIAL
from conformance.logits_batch.host_check import Record
from conformance.logits_batch.recording import Rows
from conformance.settings import Device

#: Lengths of prompts: within a step's tokens, close to them, and beyond.
LENGTHS = (6, 40, 28, 58)

#: Requests that wait, are chunked and preempted: some greedy, then all.
MIXED, GREEDY = 9, 4

#: Output tokens of requests that fill the batch and never wait: the lower half of it finishes in
#: one step, and the upper half moves down.
TOGETHER = (8, 8, 16, 16)


@attrs.frozen
class Asked:
    """A request of the workload."""

    name: str
    prompt: tuple[int, ...]
    tokens: int
    greedy: bool
    mark: int

    def expected(self) -> list[int]:
        """Return the tokens that the processors leave it."""
        return [_token(self.mark, position) for position in range(self.tokens)]

    def params(self) -> SamplingParams:
        """Return its parameters."""
        return SamplingParams(
            temperature=0.0 if self.greedy else 1.0,
            max_tokens=self.tokens,
            ignore_eos=True,
            extra_args={"request": self.name, "mark": self.mark},
        )


def workload(seed: int) -> tuple[list[Asked], ...]:
    """Return the requests of each phase; those of a phase are sent at once."""
    chance = random.Random(seed)

    def asked(number: int, length: int, tokens: int, *, greedy: bool) -> Asked:
        # No two prompts are the same.
        prompt = (number + 3, *(chance.randrange(3, VOCABULARY) for _ in range(length - 1)))
        return Asked(f"r{number}", prompt, tokens, greedy, number)

    waiting = [
        asked(
            number,
            LENGTHS[number % len(LENGTHS)] + chance.randrange(3),
            chance.randrange(8, 22),
            greedy=number >= MIXED or number % 2 == 0,
        )
        for number in range(MIXED + GREEDY)
    ]
    together = [
        asked(MIXED + GREEDY + index, LENGTHS[0], tokens, greedy=False)
        for index, tokens in enumerate(TOGETHER)
    ]
    return waiting[:MIXED], waiting[MIXED:], together


@attrs.define
class Tape:
    """Everything that was recorded, in order."""

    records: list[Record] = attrs.field(factory=list)
    names: dict[str, str] = attrs.field(factory=dict)  #: the engine's request ids -> ours
    runner: Any = None

    def write(self, event: str, **fields: object) -> None:
        """Append a record."""
        self.records.append({"event": event, **fields})

    def rows(self) -> list[str] | None:
        """Return the requests by row as the runner has them, where it says so."""
        batch = getattr(self.runner, "input_batch", None)
        ids = getattr(batch, "req_ids", None)
        return None if ids is None else [self.names.get(str(name), str(name)) for name in ids]

    def order(self, order: Any) -> None:  # noqa: ANN401 - SchedulerOutput
        """Write down what the scheduler ordered."""
        for new in order.scheduled_new_reqs:
            self.names[new.req_id] = (new.sampling_params.extra_args or {}).get(
                "request", new.req_id
            )
        cached = order.scheduled_cached_reqs
        scheduled = order.num_scheduled_tokens
        computed = dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        computed |= {new.req_id: new.num_computed_tokens for new in order.scheduled_new_reqs}
        self.write(
            "step",
            finished=sorted(self.names.get(name, name) for name in order.finished_req_ids),
            scheduled={self.names.get(name, name): int(n) for name, n in scheduled.items()},
            computed={self.names.get(name, name): int(n) for name, n in computed.items()},
        )


class _Recorder(LogitsProcessor):
    """A processor that writes down every call."""

    tape: Tape  #: set before an engine is started
    invariant: bool

    def __init__(self, *arguments: object, **keywords: object) -> None:
        given = [*arguments, *keywords.values()]
        self._rows: Rows[tuple[SamplingParams, list[int]]] = Rows()
        self.tape.write(
            "built",
            processor=type(self).__name__,
            argmax_invariant=self.invariant,
            arguments=[
                "VllmConfig" if isinstance(value, VllmConfig) else type(value).__name__
                for value in given
            ],
        )

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        """Write down that a request was asked about; refuse those that say so."""
        arguments = sampling_params.extra_args or {}
        cls.tape.write("validated", processor=cls.__name__, request=str(arguments.get("request")))
        if arguments.get("refuse"):
            raise ValueError("this request asks to be refused")

    def is_argmax_invariant(self) -> bool:
        """Return the claim of the class."""
        return self.invariant

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Write an update down, with the lists of outputs after it."""
        # As they are now: vLLM goes on to use the lists.
        document = None if batch_update is None else _document(batch_update)
        if batch_update is not None:
            self._rows.update(batch_update, lambda _i, params, _p, outputs, _o: (params, outputs))
        self.tape.write(
            "update",
            processor=type(self).__name__,
            update=document,
            outputs=self._outputs(),
            rows=self.tape.rows(),
        )

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Write a call down, and leave each request its tokens."""
        self.tape.write(
            "apply",
            processor=type(self).__name__,
            shape=list(logits.shape),
            dtype=str(logits.dtype).removeprefix("torch."),
            outputs=self._outputs(),
        )
        return self._act(logits)

    def _act(self, logits: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    def _outputs(self) -> dict[str, list[int]]:
        return {str(row): list(outputs) for row, (_, outputs) in sorted(self._rows.at.items())}


class MarkingProcessor(_Recorder):
    """Leaves each request two tokens, in place."""

    invariant = False

    def _act(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (params, outputs) in self._rows.at.items():
            mark = (params.extra_args or {}).get("mark")
            if mark is not None and row < len(logits):
                token = _token(mark, len(outputs))
                logits[row] = -torch.inf
                logits[row, token] = 1.0
                logits[row, _other(token)] = 0.5
        return logits


class BestProcessor(_Recorder):
    """Leaves each request its likeliest token, in a tensor of its own."""

    invariant = True

    def _act(self, logits: torch.Tensor) -> torch.Tensor:
        best = logits.argmax(dim=-1, keepdim=True)
        return torch.full_like(logits, -torch.inf).scatter_(-1, best, 1.0)


def _token(mark: int, position: int) -> int:
    """Return the token that a request is to get at a position: another one at each."""
    return LAST_SPECIAL + 1 + (mark * 37 + position * 11) % (VOCABULARY - LAST_SPECIAL - 1)


def _other(token: int) -> int:
    return token + 1 if token + 1 < VOCABULARY else token - 1


def _document(update: BatchUpdate) -> Record:
    """Return an update as JSON values."""
    return {
        "batch_size": update.batch_size,
        "removed": list(update.removed),
        "added": [
            {
                "index": index,
                "prompt": None if prompt is None else list(prompt),
                "params": _params(params),
                "outputs": list(outputs),
            }
            for index, params, prompt, outputs in update.added
        ],
        "moved": [[a, b, way.name] for a, b, way in update.moved],
    }


def _params(params: SamplingParams) -> Record:
    return {
        "temperature": params.temperature,
        "max_tokens": params.max_tokens,
        "extra_args": params.extra_args,
    }


def record(
    connection: Connection, *, model: str, device: Device, seed: int, patch: str | None = None
) -> None:
    """Run the workload in an engine; answer with (context, records, failure).

    Args:
        connection: to the caller.
        model: folder of the model.
        device: where the engine runs.
        seed: of the workload.
        patch: ``module:function`` that changes the host before the engine starts.

    """
    connection.recv()
    place = chosen_device(device)
    tape = _Recorder.tape = Tape()
    context = {
        "vllm": vllm.__version__,
        # Its own type would make the reader import torch.
        "torch": str(torch.__version__),
        "device": place,
    }
    failure = None
    try:
        change(patch)
        _run(tape, model, place, seed)
        context["runner"] = type(tape.runner).__name__
    except Exception as error:  # noqa: BLE001 - what was recorded is judged nevertheless
        traceback.print_exc()
        failure = f"{type(error).__name__}: {error}"
    connection.send((context, tape.records, failure))


def _run(tape: Tape, model: str, device: str, seed: int) -> None:
    engine = OfflineEngine.start(model, [MarkingProcessor, BestProcessor], device=device)
    tape.runner = runner = engine.runner
    asynchronous = bool(getattr(runner, "use_async_scheduling", False))
    # What was written while the engine started comes after this.
    host = {"event": "host", "asynchronous": asynchronous, "vocabulary": VOCABULARY}
    tape.records.insert(0, host)
    update_states = runner._update_states  # noqa: SLF001 - the one place orders arrive at

    def watched(order: object) -> Any:  # noqa: ANN401 - SchedulerOutput
        tape.order(order)
        return update_states(order)

    runner._update_states = watched  # noqa: SLF001 - as above
    for number, phase in enumerate(workload(seed)):
        _serve(tape, engine, phase)
        if number == 0:
            _refuse(tape, engine)


def _serve(tape: Tape, engine: OfflineEngine, phase: Sequence[Asked]) -> None:
    """Send the requests of a phase at once and wait for their outputs."""
    for asked in phase:
        tape.write(
            "sent",
            request=asked.name,
            prompt=list(asked.prompt),
            params=_params(asked.params()),
            expected=asked.expected(),
        )
    outputs = engine.generate([a.prompt for a in phase], [a.params() for a in phase])
    for asked, tokens in zip(phase, outputs, strict=True):
        tape.write("finished", request=asked.name, outputs=list(tokens))


def _refuse(tape: Tape, engine: OfflineEngine) -> None:
    """Send a request that the processors refuse."""
    params = SamplingParams(max_tokens=2, extra_args={"request": "refused", "refuse": True})
    prompt = [3, 4, 5]
    tape.write("sent", request="refused", prompt=prompt, params=_params(params))
    raised = None
    try:
        engine.generate([prompt], [params])
    except Exception as error:  # noqa: BLE001 - any refusal
        raised = type(error).__name__
    tape.write("refused", request="refused", raised=raised)
