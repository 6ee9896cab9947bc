# SPDX-License-Identifier: Apache-2.0
"""Output token ids of a logits processor that is loaded by its entry point alone stay -1.

    python entry_point_output_ids.py

The processor is an entry point first, and then in the list of ``--logits-processors``.
On a GPU two engines answer a request of five tokens.
On a CPU vLLM does not schedule asynchronously.  There two model runners each sample four steps in
that order: a step's token is put into the list as -1 and is known only when the next step is
sampled.  The runner, its batch and its sampler are vLLM's own; no model is run.
"""

# A program, not a module of a package, and it prints what it sees.
# ruff: noqa: INP001, T201

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ |= {"VLLM_USE_V2_MODEL_RUNNER": "0", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}

import torch
from vllm import LLM, SamplingParams
from vllm.config import set_current_vllm_config
from vllm.engine.arg_utils import EngineArgs
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor
from vllm.v1.worker.gpu_input_batch import CachedRequestState

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "max_position_embeddings": 128,
}
TOKENS = (11, 12, 13, 14)


class History(LogitsProcessor):
    """Keeps the list of output tokens, as every processor may, and notes it in each apply."""

    newest: History

    def __init__(self, vllm_config: object, device: torch.device, is_pin_memory: bool) -> None:  # noqa: FBT001
        """Take what vLLM gives."""
        del vllm_config, device, is_pin_memory
        self.outputs: list[int] = []
        self.seen: list[list[int]] = []
        History.newest = self

    def is_argmax_invariant(self) -> bool:
        """Say that greedy requests count too."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Keep the list of the request that joins."""
        if batch_update and batch_update.added:
            self.outputs = batch_update.added[0][3]

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Note the tokens so far."""
        self.seen.append(list(self.outputs))
        return logits


def seen(folder: Path, *listed: type) -> list[list[int]]:
    """Return what the processor saw in each step."""
    options = {
        "model": str(folder),
        "skip_tokenizer_init": True,
        "load_format": "dummy",
        "dtype": "float32",
        "max_model_len": 64,
        "max_num_seqs": 2,
        "enforce_eager": True,
        "logits_processors": list(listed) or None,
    }
    return by_engine(options) if torch.cuda.is_available() else by_runner(options)


def by_engine(options: dict[str, Any]) -> list[list[int]]:
    """Return what it saw in an engine, which samples the first five tokens that come to it."""
    llm = LLM(**options, gpu_memory_utilization=0.05, kv_cache_memory_bytes=1 << 25)
    params = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True, detokenize=False)
    llm.generate([{"prompt_token_ids": [3, 4]}], params, use_tqdm=False)
    return [outputs for outputs in History.newest.seen if len(outputs) < len(TOKENS)]


def by_runner(options: dict[str, Any]) -> list[list[int]]:
    """Return what it saw in a model runner that is told which tokens were sampled."""
    from vllm.v1.worker.cpu_model_runner import CPUModelRunner

    config = EngineArgs(**options).create_engine_config()
    with set_current_vllm_config(config):
        runner = CPUModelRunner(config, torch.device("cpu"))
    batch = runner.input_batch
    processor = next(p for p in batch.logitsprocs.all if isinstance(p, History))
    state = CachedRequestState("A", [3, 4], [], SamplingParams(temperature=0), None, ([],), 0, [])
    batch.add_request(state)
    for token in TOKENS:
        batch.refresh_metadata()
        runner._sample(torch.zeros(1, 64), None)  # noqa: SLF001
        # What the runner's bookkeeping does where scheduling is asynchronous.
        state.output_token_ids.append(-1)
        batch.prev_req_id_to_index = {"A": 0}
        ready = SimpleNamespace(synchronize=lambda: None)
        batch.set_async_sampled_token_ids(torch.tensor([[token]]), ready)
    return processor.seen


def main() -> int:
    """Compare the two ways."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "config.json").write_text(json.dumps(CONFIG))
        by_list = seen(folder, History)
        site = folder / "site" / "history-1.dist-info"
        site.mkdir(parents=True)
        (site / "METADATA").write_text("Metadata-Version: 2.1\nName: history\nVersion: 1\n")
        (site / "entry_points.txt").write_text("[vllm.logits_processors]\nit = __main__:History\n")
        sys.path.insert(0, str(site.parent))
        by_entry_point = seen(folder)
    print(f"in the list:     {by_list}")
    print(f"by entry point:  {by_entry_point}")
    if by_entry_point == by_list:
        print("GONE: both see the tokens that were sampled")
        return 0
    print("FOUND: a processor that is an entry point alone never sees a sampled token")
    return 1


if __name__ == "__main__":
    sys.exit(main())
