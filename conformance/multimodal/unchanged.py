# SPDX-License-Identifier: Apache-2.0
"""Whether what a client handed over is as it was."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from PIL import Image

from conformance.multimodal.processor.answers import answer


def unchanged(data: Any, before: Any) -> bool:  # noqa: ANN401 - what clients send
    """Tell whether data of an item are the same as others that were made like them."""
    if type(data) is not type(before):
        return False
    if isinstance(data, Image.Image):
        data, before = ((each.mode, each.size, each.tobytes()) for each in (data, before))
    if isinstance(data, np.ndarray):
        floats = data.dtype.kind in "fc"
        return data.dtype == before.dtype and np.array_equal(data, before, equal_nan=floats)
    if isinstance(data, torch.Tensor):
        return bool(data.dtype == before.dtype and torch.equal(data, before))
    if isinstance(data, list | tuple):
        return len(data) == len(before) and all(map(unchanged, data, before))
    if isinstance(data, dict):
        return data.keys() == before.keys() and all(
            unchanged(data[key], before[key]) for key in data
        )
    # What cannot be compared is not said to have changed.
    compared = answer(lambda: bool(data == before))
    return not compared.good or compared.value is True
