# SPDX-License-Identifier: Apache-2.0
"""What tests ask of real offline engines; runs in a fork that has imported vLLM."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conformance.engine.entry_points import TRIED
from conformance.engine.models import CONTEXT
from conformance.engine.pooling import PoolingEngine
from conformance.engine.pooling_models import naming_plugin, tiny_embedding
from conformance.io_processor.calling import entry_point

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from pathlib import Path


def selection(connection: Connection, folder: Path) -> None:
    """Answer with what engines say of a plugin that is not there, asked for in each way."""
    connection.recv()
    told = {}
    with entry_point("moody_plugin.Moody"):
        for how, model, plugin in (
            ("argument", tiny_embedding(), "nope"),
            ("config", naming_plugin("nope", folder, tiny_embedding()), None),
            ("argument first", naming_plugin("nope", folder, tiny_embedding()), TRIED),
        ):
            try:
                engine = PoolingEngine.start(model, CONTEXT, plugin=plugin)
                told[how] = str(engine.encode({"texts": ["one", "two words"]}))
            except ValueError as error:
                told[how] = str(error)
    connection.send(told)
