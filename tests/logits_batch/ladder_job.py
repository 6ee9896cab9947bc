# SPDX-License-Identifier: Apache-2.0
"""Runs in a worker: a few orders of a scheduler, played in the simulator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm.sampling_params import SamplingParams

from conformance.engine.offline import Order
from conformance.logits_batch.recording import replay

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


def play_orders(connection: Connection) -> None:
    """Two requests join, one finishes, the other is preempted and comes back with its outputs."""
    connection.recv()
    params = SamplingParams()
    orders = [
        Order((), (("a", (7, 11), params), ("b", (13,), params)), {"a": 2, "b": 1}, {}, ()),
        Order((), (), {"a": 1, "b": 1}, {"a": 2, "b": 1}, ()),
        Order(("a",), (), {"b": 1}, {"b": 2}, ()),
        Order((), (), {}, {}, ("b",)),
        Order((), (), {"b": 4}, {"b": 0}, ()),
    ]
    outputs = {"a": (3, 4), "b": (5, 6, 7, 8)}
    connection.send(replay(orders, outputs, vocabulary=512, reorder=False, asynchronous=False))
