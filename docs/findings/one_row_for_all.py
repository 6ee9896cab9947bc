# SPDX-License-Identifier: Apache-2.0
"""One row of embeddings fills every placeholder of an item; every other wrong number is refused.

    python one_row_for_all.py

The rows of an encoder are put into the prompt by vLLM's own `_merge_multimodal_embeddings`,
which `SupportsMultiModal.embed_input_ids` calls unless a model brings its own.
"""

# A program, not a module of a package, and it prints what it sees.
# ruff: noqa: INP001, T201

from __future__ import annotations

import os
import sys

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import torch
from vllm.model_executor.models.utils import _merge_multimodal_embeddings as merge

PLACEHOLDERS = 4


def outcome(rows: int) -> str:
    """Return what comes of so many rows for four placeholders."""
    places = torch.tensor([False, True, True, True, True, False])
    embeddings = torch.arange(1.0, rows + 1)[:, None].expand(rows, 3)
    try:
        merged = merge(torch.zeros(6, 3), [embeddings], places)
    except ValueError as error:
        return f"ValueError: {error}"
    return f"accepted: {merged[:, 0].tolist()}"


def main() -> int:
    """Try every number of rows up to one too many."""
    said = {rows: outcome(rows) for rows in range(1, PLACEHOLDERS + 2)}
    for rows, line in said.items():
        print(f"{rows} row(s) for {PLACEHOLDERS} placeholders: {line}")
    if said[1].startswith("accepted"):
        print("FOUND: a single row stands in all places, and nobody is told")
        return 1
    print("GONE: a single row is refused like every other wrong number")
    return 0


if __name__ == "__main__":
    sys.exit(main())
