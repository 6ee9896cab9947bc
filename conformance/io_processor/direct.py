# SPDX-License-Identifier: Apache-2.0
"""A request served by hand, hook by hook, with outputs that tell what is done with them."""

from __future__ import annotations

from typing import Any

import torch
from vllm.outputs import PoolingRequestOutput

from conformance.counterexample.io_engine_player import output_of
from conformance.io_processor import REQUEST
from conformance.io_processor.bench import Bench
from conformance.io_processor.host import Documented
from conformance.io_processor.messages import as_json, response_class
from conformance.io_processor.parameters import asks
from conformance.io_processor.prompts import prompts_of
from conformance.io_processor.watched import Watched


def prepared(
    plugin: Watched,
    bench: Bench,
    data: object,
    request_id: str | None = "id-0",
) -> list[PoolingRequestOutput]:
    """Take a request to where its outputs are there; return them in the order of its prompts."""
    given = prompts_of(plugin, bench, data, request_id)
    params = asks(plugin, bench)()
    if params.task is None:
        params.task = "plugin"
    rendered = Documented(bench.generation, bench.around).render(given)
    return [
        output_of(f"{request_id}-{index}", prompt, params, bench.around.config)
        for index, prompt in enumerate(rendered)
    ]


def finished(
    plugin: Watched,
    bench: Bench,
    outputs: list[PoolingRequestOutput],
    request_id: str | None = "id-0",
) -> Any:  # noqa: ANN401 - JSON values
    """Return what the client gets for outputs."""
    with torch.inference_mode():
        result = plugin.post_process(outputs, request_id=request_id)
    if bench.generation == REQUEST:
        return as_json(plugin.output_to_response(result))
    return as_json(response_class()(request_id=request_id, data=result))


def served(bench: Bench, data: object, request_id: str | None = "id-0") -> Any:  # noqa: ANN401 - JSON values
    """Return what the client gets for a request that a new instance serves alone."""
    plugin = bench.make()
    return finished(plugin, bench, prepared(plugin, bench, data, request_id), request_id)
