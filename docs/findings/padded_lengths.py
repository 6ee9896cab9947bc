# SPDX-License-Identifier: Apache-2.0
"""With full CUDA graphs the lengths that slot processors are given are more than the requests.

    python padded_lengths.py

Three requests decode, and the CUDA graph that fits them was captured for four. vLLM's own
`GPUModelRunner.prepare_inputs` prepares the step and its `Sampler` hands it on. The kernels
between them, which need a GPU and write tensors on the device only, are left out.
"""

# A program, not a module of a package, and it prints what it sees.
# ruff: noqa: INP001, T201

from __future__ import annotations

import inspect
import os
import sys
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import numpy as np
import torch
from vllm.config.compilation import CUDAGraphMode
from vllm.v1.worker.gpu import model_runner
from vllm.v1.worker.gpu.cudagraph_utils import BatchExecutionDescriptor
from vllm.v1.worker.gpu.input_batch import InputBuffers
from vllm.v1.worker.gpu.model_runner import BatchReqState, GPUModelRunner
from vllm.v1.worker.gpu.sample.sampler import Sampler

REQUESTS, GRAPH, LENGTHS = 3, 4, [9, 5, 7]
CPU = torch.device("cpu")


class Watching(Sampler):
    """Shows what would be handed to the processors."""

    def __init__(self) -> None:
        self.compute_nans = False

    def get_logprobs_dims(self, *_: object) -> None:
        """Nobody asked for log probabilities."""

    def sample(self, *args: object, **kwargs: object) -> None:
        """Keep the arguments, and go no further."""
        self.given = inspect.signature(super().sample).bind(*args, **kwargs).arguments
        raise StopIteration


def step() -> dict[str, Any]:
    """Prepare a decode step of three requests in a graph for four; return what is sampled from."""
    rows = torch.arange(REQUESTS)
    model_runner.prepare_pos_seq_lens = lambda *_: None
    model_runner.combine_sampled_and_draft_tokens = lambda *_: rows
    on_device = SimpleNamespace(gpu=None)  # for the kernels alone
    states = SimpleNamespace(
        num_computed_tokens=on_device,
        num_computed_tokens_np=np.array([*(length - 1 for length in LENGTHS), 0]),
        prefill_len=on_device,
        last_sampled_tokens=None,
        draft_tokens=None,
    )
    runner = GPUModelRunner.__new__(GPUModelRunner)  # a whole one needs a GPU
    runner.__dict__ |= {
        "device": CPU,
        "max_num_reqs": 8,
        "req_states": states,
        "input_buffers": InputBuffers(8, 64, CPU),
        "model_state": SimpleNamespace(num_new_sampled_tokens_per_step=1),
        "model_config": SimpleNamespace(rswa_window=None),
        "decode_query_len": 1,
        "adaptive_verification": None,
        "fast_prefill": None,
        "pcp_manager": None,
    }
    ones = np.ones(REQUESTS, dtype=np.int32)
    fields = {
        "req_ids": ["a", "b", "c"],
        "num_scheduled_tokens": ones,
        "num_tokens": REQUESTS,
        "idx_mapping_np": np.arange(REQUESTS),
        "prefill_len_np": 2 * ones,
        "num_computed_prefill_tokens_np": 2 * ones,
        "is_prefilling_np": np.zeros(REQUESTS, dtype=bool),
        "has_prefill": False,
        "decode_graph_eligible": True,
    }
    order = SimpleNamespace(scheduled_spec_decode_tokens={}, has_structured_output_requests=False)
    batch = runner.prepare_inputs(
        order,
        BatchReqState(**{name: fields.get(name) for name in BatchReqState._fields}),
        BatchExecutionDescriptor(CUDAGraphMode.FULL, GRAPH, GRAPH, uniform_token_count=1),
        0,
    )
    sampler = Watching()
    try:
        sampler(torch.zeros(REQUESTS, 100), batch)
    except StopIteration:
        return sampler.given
    raise RuntimeError("the sampler samples elsewhere")


def main() -> int:
    """Compare the two arrays, which the interface calls `[num_reqs]` both."""
    given = step()
    slots, lengths = given["idx_mapping_np"], given["seq_lens_upper_bound_np"]
    print(f"idx_mapping_np:          {slots.tolist()}")
    print(f"seq_lens_upper_bound_np: {lengths.tolist()}")
    if len(lengths) > len(slots):
        print("FOUND: there are more lengths than requests, and the interface says [num_reqs]")
        return 1
    print("GONE: there is a length for each request")
    return 0


if __name__ == "__main__":
    sys.exit(main())
