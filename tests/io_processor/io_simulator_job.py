# SPDX-License-Identifier: Apache-2.0
"""Runs in a worker: pieces of the simulator that need vLLM, asked one by one."""

from __future__ import annotations

import contextlib
import json
import tempfile
from typing import TYPE_CHECKING, Any

import attrs
import hypothesis
from hypothesis import HealthCheck, Phase
from vllm.exceptions import VLLMValidationError
from vllm.plugins.io_processors.interface import IOProcessor
from vllm.renderers.inputs.preprocess import prompt_to_seq

from conformance.engine.pooling_models import named_model
from conformance.io_processor import bodies, checks, discovery, traffic
from conformance.io_processor.answers import Kind, of_error
from conformance.io_processor.bench import Bench
from conformance.io_processor.classics import classics
from conformance.io_processor.documented import restore_documented_base
from conformance.io_processor.isolation import SHAPES
from conformance.io_processor.prompts import parsed
from conformance.plugin import loader
from conformance.settings import Budget
from conformance.watching.endurance import Errand

if TYPE_CHECKING:
    from collections.abc import Mapping
    from multiprocessing.connection import Connection

    from conformance.io_processor.traffic import History, Played
    from conformance.plugin.target import Target

EXAMPLES = 40

ERRORS: Mapping[str, BaseException] = {
    "ValueError": ValueError("a\nb"),
    "TypeError": TypeError(),
    "OverflowError": OverflowError(),
    "UnicodeEncodeError": UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"),
    "VLLMValidationError": VLLMValidationError("bad", parameter="data"),
    "KeyError": KeyError("text"),
    "AttributeError": AttributeError(),
    "RuntimeError": RuntimeError(),
    "RecursionError": RecursionError(),
    "ZeroDivisionError": ZeroDivisionError(),
    "NotImplementedError": NotImplementedError(),
    "SystemExit": SystemExit(),
}


def statuses(connection: Connection) -> None:
    """Answer with the kind and the status of each exception, by name."""
    connection.recv()
    found = {name: of_error(error, "parse_data") for name, error in ERRORS.items()}
    connection.send({name: (each.kind.value, each.status) for name, each in found.items()})


def loads_in_an_old_host(connection: Connection, *, target: Target, model: str) -> None:
    """Answer with what IO-01 and IO-03 find where parse_data calls parse_request."""
    connection.recv()

    def parse_data(self: Any, data: Any) -> Any:  # noqa: ANN401 - as in 0.17 to 0.28
        return self.parse_request(data)

    IOProcessor.parse_data = parse_data
    restore_documented_base()
    bench = _bench(target, "io/request", model)
    trial = checks.trial(bench, {}, None, Budget.QUICK)
    found = [trial.find(rule) for rule in ("IO-01", "IO-03")]
    connection.send([(each.verdict.value, each.message, each.waits_for) for each in found])


def discover(connection: Connection, *, target: Target, model: str) -> None:
    """Answer with the data that are found for a plugin, and the keys that it looked for."""
    connection.recv()
    bench = _bench(target, "io/data", model)
    found = discovery.find(bench, {}, origin=None)
    connection.send((list(found.valid[: found.given]), list(found.keys), list(found.prompts)))


def prompts_of_what_a_server_is_sent(
    connection: Connection, *, target: Target, section: dict[str, Any]
) -> None:
    """Answer with the numbers of prompts that become of what is worth sending to a server."""
    connection.recv()
    bench = _bench(target, "io/data", section["model"])
    bench.stock = discovery.find(bench, section, origin="profile")
    asked = bodies.asking(bench, Budget.QUICK)
    with tempfile.TemporaryDirectory() as folder:
        errand = Errand("", folder, bench.path, 0, asked)
        found = bodies.send(loader.load_class(target), errand)
    assert isinstance(found, bodies.Found)
    counts = []
    for data in found.nearest:
        with contextlib.suppress(ValueError):
            plugin = bench.make()
            made = parsed(plugin, bench, data)
            counts.append(len(prompt_to_seq(plugin.pre_process(prompt=made, request_id="id"))))
    connection.send(counts)


def play(
    connection: Connection, *, target: Target, generation: str, section: dict[str, Any]
) -> None:
    """Answer with what came of histories of every shape, those written by hand first."""
    connection.recv()
    if generation == "io/request":
        restore_documented_base()
    bench = _bench(target, generation, section["model"])
    bench.stock = discovery.find(bench, section, origin="profile")
    told = {}
    for shape in SHAPES:
        valid = list(range(len(bench.stock.valid)))
        count = len(bench.stock.invalid)
        histories = [*classics(shape, valid, count), *_drawn(shape, len(valid), count)]
        told[shape.name] = [_told(history, bench.play(history)) for history in histories]
    connection.send(told)


def shrink(connection: Connection) -> None:
    """Answer with the smallest histories in which somebody leaves after somebody else came."""
    connection.recv()
    (troubled,) = (shape for shape in SHAPES if shape.trouble)

    def tells(history: History) -> bool:
        moves = [move.do for move in history.moves]
        return len(history.asked) > 1 and traffic.Do.LEAVE in moves[2:]

    found = [
        hypothesis.find(
            traffic.strategy(troubled, 5, 3),
            tells,
            settings=hypothesis.settings(max_examples=2_000, database=None, deadline=None),
        )
        for _ in range(2)
    ]
    connection.send([json.loads(json.dumps(attrs.asdict(history))) for history in found])


def _bench(target: Target, generation: str, model: str) -> Bench:
    return Bench.open(loader.load_class(target), generation, named_model(model), 1)


def _drawn(shape: traffic.Shape, valid: int, invalid: int) -> list[History]:
    found: list[History] = []

    @hypothesis.seed(1)
    @hypothesis.settings(
        max_examples=EXAMPLES,
        database=None,
        phases=(Phase.generate,),
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(traffic.strategy(shape, valid, invalid))
    def body(history: History) -> None:
        found.append(history)

    body()
    return found


def _told(history: History, played: Played) -> dict[str, Any]:
    return {
        "requests": [(each.id, each.valid) for each in history.asked],
        "kinds": {request: answer.kind.value for request, answer in played.answers.items()},
        "untouched": sorted(played.untouched),
        "late": list(played.late),
        "open": list(played.open),
        "steps": [(step.do, step.request, step.output, step.waits) for step in played.steps],
        "calls": [(call.name, call.request) for call in played.calls],
        "unfinished": [
            request for request, answer in played.answers.items() if answer.kind is Kind.UNFINISHED
        ],
    }
