# SPDX-License-Identifier: Apache-2.0
"""Runs in a worker: says what vLLM and torch take there."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


def taken(connection: Connection) -> None:
    """Answer the device of vLLM's platform, and whether torch knows another one than the CPU."""
    import torch
    from vllm.platforms import current_platform

    connection.recv()
    connection.send((current_platform.device_type, torch.accelerator.is_available()))
