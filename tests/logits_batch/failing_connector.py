# SPDX-License-Identifier: Apache-2.0
"""A KV connector that finds keys and values of every request elsewhere, and never loads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
)

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.request import Request


@attrs.define
class Loads(KVConnectorMetadata):
    """The blocks that a step is to load."""

    blocks: frozenset[int] = frozenset()


class FailingConnector(KVConnectorBase_V1):
    """Loads, within the step, what requests with ``extra_args={"load": True}`` have computed."""

    def __init__(self, *arguments: Any, **more: Any) -> None:  # noqa: ANN401 - vLLM's own
        super().__init__(*arguments, **more)
        self._wanted: set[int] = set()
        self._failed: set[int] = set()

    # In the scheduler.

    def get_num_new_matched_tokens(
        self, request: Request, num_computed_tokens: int
    ) -> tuple[int, bool]:
        """Find all tokens but the last one, whose row is wanted."""
        asked = (request.sampling_params.extra_args or {}).get("load")
        return (request.num_tokens - 1 - num_computed_tokens if asked else 0), False

    def update_state_after_alloc(
        self,
        request: Request,  # noqa: ARG002 - vLLM's signature
        blocks: KVCacheBlocks,
        num_external_tokens: int,
    ) -> None:
        """Take note of the blocks."""
        if num_external_tokens > 0:
            self._wanted.update(blocks.get_block_ids()[0])

    def build_connector_meta(
        self,
        scheduler_output: SchedulerOutput,  # noqa: ARG002 - vLLM's signature
    ) -> Loads:
        """Tell the worker what to load."""
        loads, self._wanted = Loads(frozenset(self._wanted)), set()
        return loads

    # In the worker.

    def start_load_kv(self, *_: Any, **__: Any) -> None:  # noqa: ANN401 - vLLM's own
        """Fail."""
        loads = self._get_connector_metadata()
        assert isinstance(loads, Loads)
        self._failed = set(loads.blocks)

    def get_block_ids_with_load_errors(self) -> set[int]:
        """Report what has failed, once."""
        failed, self._failed = self._failed, set()
        return failed

    def wait_for_layer_load(self, layer_name: str) -> None:
        """There is nothing to wait for."""

    def save_kv_layer(self, *_: Any, **__: Any) -> None:  # noqa: ANN401 - vLLM's own
        """Nothing is saved."""

    def wait_for_save(self) -> None:
        """Nothing is saved."""
