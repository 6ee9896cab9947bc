# SPDX-License-Identifier: Apache-2.0
"""A batch logits processor that masks what is much less likely than the likeliest token.

A request opts in with ``extra_args={"probability_floor": 0.1}``: tokens with less than a tenth of
the largest probability are masked. It is vLLM's ``min_p``, written for an argument of its own.

One operation over the whole batch serves all rows, with a value that changes nothing for the rows
of requests that do not opt in: the pattern for processors that many requests use at once.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from vllm.v1.sample.logits_processor import LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm.config import VllmConfig
    from vllm.sampling_params import SamplingParams
    from vllm.v1.sample.logits_processor import BatchUpdate


def probability_floor(params: SamplingParams) -> float | None:
    """Return the floor of a request, above 0 and up to 1, or None where it does not opt in.

    Raises:
        ValueError: the argument is no number from 0 to 1.

    """
    floor = (params.extra_args or {}).get("probability_floor")
    if floor is None:
        return None
    # bool is a subclass of int, and NaN is in no range.
    if isinstance(floor, bool) or not isinstance(floor, int | float) or not 0 <= floor <= 1:
        raise ValueError(f"probability_floor must be a number from 0 to 1 (got {floor!r})")
    return float(floor) or None  # 0 masks nothing


class ProbabilityFloorLogitsProcessor(LogitsProcessor):
    """Masks tokens less likely than ``probability_floor`` times the likeliest one."""

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        """Refuse a bad ``probability_floor`` with ``ValueError``, which becomes HTTP 400."""
        probability_floor(sampling_params)

    def __init__(
        self,
        vllm_config: VllmConfig,
        device: torch.device,
        is_pin_memory: bool,  # noqa: FBT001 - vLLM's signature
    ) -> None:
        self._device = device
        self._pin_memory = is_pin_memory
        self._floors: dict[int, float] = {}  #: row -> floor, of the requests that opted in
        self._log_floors = torch.empty(0, 1)  #: the same on the device, [num_requests, 1]
        self._stale = False  #: whether the tensor lags behind the dictionary

    def is_argmax_invariant(self) -> bool:
        """Return True: the likeliest token is never below the floor."""
        return True

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Follow requests from row to row."""
        if batch_update is not None:
            changed = process_dict_updates(self._floors, batch_update, _floor_of)
            # Not `= changed`: in steps in which all requests are greedy `apply` is left out,
            # and what it has not uploaded yet must not be forgotten.
            self._stale = self._stale or changed

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Mask logits ``[num_requests, vocab_size]`` in place, without waiting for the device."""
        if not self._floors:
            return logits
        if self._stale or len(self._log_floors) != len(logits):
            self._upload(num_requests=len(logits))
        # p < floor * p_max, as logarithms: no softmax, and in a row that is masked altogether
        # -inf is compared with -inf, where a division would give NaN.
        lowest = logits.amax(dim=-1, keepdim=True).add_(self._log_floors)
        return logits.masked_fill_(logits < lowest, -torch.inf)

    def _upload(self, num_requests: int) -> None:
        """Copy the floors to the device, a value for every row."""
        floors = self._floors
        values = [
            math.log(floors[row]) if row in floors else -math.inf for row in range(num_requests)
        ]
        # Pinned memory makes the copy asynchronous, so it is not written to again.
        on_host = torch.tensor(values, dtype=torch.float32, pin_memory=self._pin_memory)
        self._log_floors = on_host.to(self._device, non_blocking=True).unsqueeze(1)
        self._stale = False


def _floor_of(
    params: SamplingParams, prompt_ids: Sequence[int] | None, output_ids: Sequence[int]
) -> float | None:
    return probability_floor(params)
