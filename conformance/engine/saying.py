# SPDX-License-Identifier: Apache-2.0
"""A tiny model that says what it is told: any text, token by token, whatever its weights are.

A tokenizer made on the spot goes into the folder of the model, and a logits processor leaves one
token to sample at each step.  A request names the tokens with ``vllm_xargs``:
``{"say": [5, 9, 2]}``, of which the last one has to end the answer.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm.v1.sample.logits_processor import AdapterLogitsProcessor

from conformance.engine.models import tiny_llama

if TYPE_CHECKING:
    import torch
    from vllm.sampling_params import SamplingParams
    from vllm.v1.sample.logits_processor.interface import RequestLogitsProcessor

#: What engines and servers are given as a logits processor.
PROCESSOR = "conformance.engine.saying:Says"

#: The argument of a request that names the tokens.
ARGUMENT = "say"

#: The prompt is what the last message says, and nothing else.
TEMPLATE = "{{ messages[-1]['content'] }}"


class Says(AdapterLogitsProcessor):
    """Leaves, at each step of a request that names tokens, the one whose turn it is."""

    @classmethod
    def validate_params(cls, params: SamplingParams) -> None:
        """Refuse nothing: the only one who asks is this harness."""

    def is_argmax_invariant(self) -> bool:
        """Return False: hardly any token that is told is the likeliest one."""
        return False

    def new_req_logits_processor(self, params: SamplingParams) -> RequestLogitsProcessor | None:
        """Return what masks the logits of a request, or None for one that names no tokens."""
        told = (params.extra_args or {}).get(ARGUMENT)
        if not told:
            return None

        def say(output: list[int], logits: torch.Tensor) -> torch.Tensor:
            token = told[min(len(output), len(told) - 1)]
            logits.fill_(float("-inf"))
            logits[token] = 0.0
            return logits

        return say


def saying(tokenizer: Any) -> Path:  # noqa: ANN401 - a transformers tokenizer
    """Return the folder of a tiny model with a tokenizer of one's own, and a plain template."""
    tokenizer.chat_template = TEMPLATE
    with tempfile.TemporaryDirectory(prefix="vllm-conformance-") as folder:
        tokenizer.save_pretrained(folder)
        return tiny_llama(tokenizer=Path(folder))
