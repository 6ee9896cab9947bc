# SPDX-License-Identifier: Apache-2.0
"""What the pooler of NemotronOCRVllmForPooling returns: a length, and so many bytes of JSON."""

import json
from collections.abc import Mapping

import torch


def pooled(prompt: Mapping[str, list[int]], params: object) -> torch.Tensor:
    """Return a made-up region for the path that the prompt's tokens spell, as codec.py has it."""
    del params
    path = bytes(token - 2 for token in prompt["prompt_token_ids"] if token > 1).decode()
    raw = json.dumps({"image_path": path, "regions": [{"text": f"read in {path}"}]}).encode()
    return torch.tensor([*len(raw).to_bytes(4, "little"), *raw], dtype=torch.uint8)
