# SPDX-License-Identifier: Apache-2.0
"""As much of Model Runner V2 as a logits processor sees, for programs of counterexamples."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from vllm import SamplingParams
from vllm.v1.worker.gpu.sample.logits_processor import LogitsContext, LogitsProcRequestState

from conformance.counterexample.logits_host_player import engine_config


class Runner:
    """Slots, their tokens, and the calls of a model runner with one plugin."""

    def __init__(
        self,
        plugin: Callable[..., Any],
        vocab_size: int,
        slots: int = 8,
        device: str = "cpu",
        context: int = 128,
    ) -> None:
        self.device = torch.device(device)
        self.staged: list[tuple[int, list[int]]] = []
        tokens = torch.zeros(slots, context, dtype=torch.int32, device=device)
        total = torch.zeros(slots, dtype=torch.int32, device=device)
        self.tokens, self.total = SimpleNamespace(gpu=tokens), SimpleNamespace(gpu=total)
        self.prompt, self.prefill = self.lengths(slots), self.lengths(slots)
        states = LogitsProcRequestState(
            device=self.device,
            max_num_reqs=slots,
            vocab_size=vocab_size,
            all_token_ids=self.tokens,
            prompt_len=self.prompt,
            prefill_len=self.prefill,
            total_len=self.total,
        )
        self.plugin = plugin(engine_config(slots, vocab_size, context), states)

    def lengths(self, count: int) -> SimpleNamespace:
        """Return a host array and its two copies for the device, which are used in turn."""
        buffers = [torch.zeros(count, dtype=torch.int32, device=self.device) for _ in range(2)]
        return SimpleNamespace(np=np.zeros(count, dtype=np.int32), buffers=buffers, gpu=buffers[0])

    @torch.inference_mode()
    def join(
        self, slot: int, params: SamplingParams, prompt: Sequence[int], outputs: Sequence[int] = ()
    ) -> Any:
        """Add a request to a slot; its tokens are written when the step begins."""
        self.staged.append((slot, [*prompt, *outputs]))
        self.prompt.np[slot] = len(prompt)
        self.prefill.np[slot] = len(prompt) + len(outputs)
        return self.plugin.add_request(slot, params)

    @torch.inference_mode()
    def begin_step(self) -> None:
        """Write what was staged, the plugin's staged writes last."""
        if self.staged:
            for slot, tokens in self.staged:
                self.tokens.gpu[slot, : len(tokens)] = torch.tensor(tokens, dtype=torch.int32)
                self.total.gpu[slot] = len(tokens)
            for lengths in (self.prompt, self.prefill):
                lengths.buffers.reverse()
                lengths.gpu = lengths.buffers[0]
                lengths.gpu.copy_(torch.from_numpy(lengths.np))
            self.staged = []
        self.plugin.apply_staged_writes()

    @torch.inference_mode()
    def apply(
        self,
        logits: torch.Tensor,
        *,
        slots: list[int],
        tokens: list[int],
        positions: list[int],
        bounds: list[int] | None = None,
    ) -> Any:
        """Process one row for each of the slots; a slot has more rows than one with drafts.

        The bounds are those of requests whose drafts were rejected, where vLLM counts them still.
        """
        ctx = self.context(slots, tokens, positions)
        if bounds is not None:
            ctx.seq_lens_upper_bound_np[:] = bounds
        return self.plugin.apply(logits, ctx)

    @torch.inference_mode()
    def sample(self, logits: torch.Tensor) -> None:
        """Write to logits that are the plugin's own, as the sampler does."""
        logits += 1.0

    def context(self, slots: list[int], tokens: list[int], positions: list[int]) -> LogitsContext:
        """Return what the plugin is told about the rows."""
        requests = list(dict.fromkeys(slots))
        offsets = [slots[:row].count(slot) for row, slot in enumerate(slots)]
        rows = list(zip(slots, positions, strict=True))
        lengths = [1 + max(at for slot, at in rows if slot == mine) for mine in requests]

        def on_device(values: list[int], dtype: torch.dtype = torch.int64) -> torch.Tensor:
            return torch.tensor(values, dtype=dtype, device=self.device)

        return LogitsContext(
            expanded_idx_mapping=on_device(slots),
            idx_mapping=on_device(requests),
            idx_mapping_np=np.array(requests),
            expanded_local_pos=on_device(offsets, torch.int32),
            input_ids=on_device(tokens, torch.int32),
            pos=on_device(positions),
            seq_lens_upper_bound_np=np.array(lengths, dtype=np.int32),
        )

    @torch.inference_mode()
    def append(self, slot: int, *tokens: int) -> None:
        """Give a request the tokens that were sampled."""
        total = int(self.total.gpu[slot])
        self.tokens.gpu[slot, total : total + len(tokens)] = torch.tensor(tokens).int()
        self.total.gpu[slot] = total + len(tokens)
