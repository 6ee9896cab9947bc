# SPDX-License-Identifier: Apache-2.0
"""Runs in a worker: what the hosts of the simulator call, and with what."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import torch
from vllm.entrypoints.pooling.pooling.protocol import IOProcessorResponse
from vllm.plugins.io_processors.interface import IOProcessor
from vllm.pooling_params import PoolingParams

from conformance.engine.pooling_models import named_model
from conformance.io_processor.bench import Bench
from conformance.io_processor.documented import restore_documented_base
from conformance.io_processor.stock import Stock

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from conformance.io_processor.watched import Call

DATA = {"lines": ["red", "green"]}

#: What the plugin was given, in the order of its calls.
given: list[dict[str, Any]] = []


def _note(name: str, **values: Any) -> None:  # noqa: ANN401 - whatever a host gives
    given.append(
        {
            "name": name,
            "main": threading.current_thread() is threading.main_thread(),
            "inference": torch.is_inference_mode_enabled(),
            **values,
        }
    )


class _Noting(IOProcessor[list[str], list[int]]):
    """Notes what it is given."""

    def pre_process(self, prompt: list[str], request_id: str | None = None, **_: Any) -> list[str]:  # noqa: ANN401
        _note("pre_process", prompt=prompt, request_id=request_id)
        return prompt

    def post_process(self, model_output: Any, request_id: str | None = None, **_: Any) -> list[int]:  # noqa: ANN401
        shapes = [list(output.outputs.data.shape) for output in model_output]
        _note("post_process", shapes=shapes, request_id=request_id)
        return [len(output.prompt_token_ids) for output in model_output]


class _ForData(_Noting):
    def parse_data(self, data: object) -> list[str]:
        _note("parse_data", data=data)
        assert isinstance(data, dict)
        return list(data["lines"])

    def merge_pooling_params(self, params: PoolingParams | None = None) -> PoolingParams:
        _note("merge_pooling_params", none=params is None)
        params = PoolingParams() if params is None else params
        params.task = "embed"
        return params


class _ForRequest(_Noting):
    def parse_request(self, request: Any) -> list[str]:  # noqa: ANN401 - three forms
        _note("parse_request", type=type(request).__name__)
        data = getattr(request, "data", request)
        return list(data.get("data", data)["lines"])

    def validate_or_generate_params(self, params: PoolingParams | None = None) -> PoolingParams:
        _note("validate_or_generate_params", none=params is None)
        params = PoolingParams() if params is None else params
        params.task = "embed"
        return params

    def output_to_response(self, plugin_output: list[int]) -> IOProcessorResponse[list[int]]:
        _note("output_to_response", output=plugin_output)
        return IOProcessorResponse(data=plugin_output)


def serve(connection: Connection, *, generation: str) -> None:
    """Answer with what one request made each host call: online, awaited and offline."""
    connection.recv()
    restore_documented_base()
    cls = _ForData if generation == "io/data" else _ForRequest
    bench = Bench.open(cls, generation, named_model("tiny-embedding"), 1)
    bench.stock = Stock((DATA,), (), "profile", 1)
    told: dict[str, Any] = {}
    for name, awaited in (("online", False), ("awaited", True)):
        given.clear()
        played = bench.play(_alone(), awaited=awaited)
        told[name] = _told(list(played.calls), played.answers[0].data)
    bench.try_offline(DATA)
    given.clear()  # what the harness itself asks of others first is asked once
    plugin = bench.make()
    answer = bench.ask_offline(plugin, DATA)
    told["offline"] = _told(plugin.calls, answer.data)
    connection.send(told)


def _alone() -> Any:  # noqa: ANN401 - a History
    from conformance.io_processor.bench import ALONE

    return ALONE


def _told(calls: list[Call], answer: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON values
    return {
        "calls": [(call.name, call.arguments) for call in calls],
        "on_loop": [call.on_loop for call in calls],
        "given": list(given),
        "answer": answer,
    }
