# SPDX-License-Identifier: Apache-2.0
"""What the pooler of BgeM3EmbeddingModel returns for the task "embed&token_classify"."""

from collections.abc import Mapping

import torch

SIZE = 64


def pooled(prompt: Mapping[str, list[int]], params: object) -> torch.Tensor:
    """Return a dense embedding, and behind it a weight for each token but the first."""
    del params
    tokens = prompt["prompt_token_ids"]
    random = torch.Generator().manual_seed(hash(tuple(tokens)))
    dense = torch.nn.functional.normalize(torch.randn(SIZE, generator=random), dim=-1)
    return torch.cat([dense, torch.rand(len(tokens) - 1, generator=random)])
