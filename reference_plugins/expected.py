# SPDX-License-Identifier: Apache-2.0
"""What the reference plugins mean: one request at a time, plainly, whatever it costs.

Profiles name these functions as ``expected``.  Rows that logits processors give are held against
what they return for the same parameters, prompt, outputs and logits ``[vocab_size]``, answers of IO
processors against what they return for the same data and outputs, placeholders of images against
how many they say.
"""

from __future__ import annotations

import base64
import io
import math
from typing import TYPE_CHECKING, Any

import torch
from PIL import Image

if TYPE_CHECKING:
    from collections.abc import Collection

    from vllm.outputs import PoolingRequestOutput
    from vllm.sampling_params import SamplingParams


def target_token(
    params: SamplingParams, prompt: list[int], output: list[int], logits: torch.Tensor
) -> torch.Tensor:
    """Return the row in which the target alone is left."""
    target = (params.extra_args or {}).get("target_token")
    return logits if target is None else only({target}, logits)


def target_token_and_prompt(
    params: SamplingParams, prompt: list[int], output: list[int], logits: torch.Tensor
) -> torch.Tensor:
    """Return the row in which the target and the tokens of the prompt are left."""
    target = (params.extra_args or {}).get("target_token")
    return logits if target is None else only({target, *prompt}, logits)


def token_bias(
    params: SamplingParams, prompt: list[int], output: list[int], logits: torch.Tensor
) -> torch.Tensor:
    """Return the row with the bias added to each of the tokens, once."""
    arguments = params.extra_args or {}
    for token in set(arguments.get("biased_tokens", ())):
        if token < len(logits):
            logits[token] += arguments["token_bias"]
    return logits


def probability_floor(
    params: SamplingParams, prompt: list[int], output: list[int], logits: torch.Tensor
) -> torch.Tensor:
    """Return the row without tokens that are less likely than a share of the likeliest."""
    floor = (params.extra_args or {}).get("probability_floor")
    if not floor:
        return logits
    return logits.masked_fill(logits < logits.max() + math.log(floor), -torch.inf)


def no_repeat_ngram(
    params: SamplingParams, prompt: list[int], output: list[int], logits: torch.Tensor
) -> torch.Tensor:
    """Return the row without tokens that would complete a run of n tokens once more."""
    arguments = params.extra_args or {}
    if (size := arguments.get("no_repeat_ngram")) is None:
        return logits
    said = [*prompt, *output] if arguments.get("no_repeat_ngram_history") == "all" else output
    runs = [said[end - size : end] for end in range(size, len(said) + 1)]
    newest = said[-(size - 1) :]
    return without({token for *before, token in runs if before == newest}, logits)


def thinking_budget(
    params: SamplingParams, prompt: list[int], output: list[int], logits: torch.Tensor
) -> torch.Tensor:
    """Return the row in which the next token of the end marker is left, once thinking is over."""
    arguments = params.extra_args or {}
    if (budget := arguments.get("thinking_budget")) is None:
        return logits
    start, end = (_listed(arguments[key]) for key in ("thinking_start", "thinking_end"))
    thought = _thought([*prompt, *output], start, end)
    if thought is None or len(thought) < budget or max(end) >= len(logits):
        return logits
    there = max(n for n in range(len(end)) if thought[len(thought) - n :] == end[:n])
    return only({end[there]}, logits)


def _thought(tokens: list[int], start: list[int], end: list[int]) -> list[int] | None:
    """Return the tokens since thinking began, or None where it has not, or has ended."""
    thinking, said = False, list[int]()  # since the newest marker
    for token in tokens:
        said.append(token)
        marker = end if thinking else start
        if said[-len(marker) :] == marker:
            thinking, said = not thinking, []
    return said if thinking else None


def labels(data: dict[str, Any], outputs: list[PoolingRequestOutput]) -> list[dict[str, Any]]:
    """Return the likeliest label of each line."""
    rows = [output.outputs.data.tolist() for output in outputs]
    assert len(rows) == len(data["lines"])
    return [{"label": row.index(max(row)), "probability": max(row)} for row in rows]


def long_document(data: dict[str, Any], outputs: list[PoolingRequestOutput]) -> dict[str, Any]:
    """Return the mean of the windows' embeddings, each as heavy as it is long."""
    windows = [(len(output.prompt_token_ids), output.outputs.data) for output in outputs]
    total = sum(length * vector for length, vector in windows)
    embedding = total / total.norm()
    return {
        "embedding": embedding.tolist(),
        "windows": [
            {"tokens": length, "similarity": float(vector @ embedding / vector.norm())}
            for length, vector in windows
        ],
    }


def image_filter(data: dict[str, Any], outputs: list[PoolingRequestOutput]) -> dict[str, str]:
    """Return the picture of the same size whose pixels are what became of theirs."""
    size = Image.open(io.BytesIO(base64.b64decode(data["image"]))).size
    picture = Image.new("L", size)
    for number, output in enumerate(outputs):
        down, across = divmod(number, math.ceil(size[0] / 8))
        for place, vector in enumerate(output.outputs.data[2:].tolist()):
            at = (across * 8 + place % 8, down * 8 + place // 8)
            if at[0] < size[0] and at[1] < size[1]:
                picture.putpixel(at, round((math.tanh(sum(vector)) + 1) * 127.5))
    file = io.BytesIO()
    picture.save(file, "PNG")
    return {"image": base64.b64encode(file.getvalue()).decode()}


def tiny_vlm(item: Image.Image, options: dict[str, int]) -> dict[str, Any]:
    """Return the patches of 16 by 16 that an image has when it is as small as it must be."""
    most = min(options.get("max_patches", 64), 64)
    share = min(1, math.sqrt(most * 16**2 / (item.width * item.height)))
    high, wide = (max(1, int(side * share / 16)) for side in (item.height, item.width))
    high = min(high, most)
    wide = min(wide, most // high)
    small = item.convert("RGB").resize((wide * 16, high * 16), Image.Resampling.BILINEAR)
    corners = [(x, y) for y in range(0, high * 16, 16) for x in range(0, wide * 16, 16)]
    patches = [small.crop((x, y, x + 16, y + 16)).split() for x, y in corners]
    numbers = [[v / 127.5 - 1 for band in bands for v in band.tobytes()] for bands in patches]
    return {"placeholders": high * wide, "pixel_values": torch.tensor(numbers)}


def _listed(marker: int | list[int]) -> list[int]:
    return [marker] if isinstance(marker, int) else marker


def only(tokens: Collection[int], logits: torch.Tensor) -> torch.Tensor:
    """Return the row in which these tokens are left; as it was, where none of them can be."""
    known = _known(tokens, logits)
    kept = torch.full_like(logits, -torch.inf)
    kept[known] = logits[known]
    return logits if kept.isneginf().all() else kept


def without(tokens: Collection[int], logits: torch.Tensor) -> torch.Tensor:
    """Return the row without these tokens; as it was, where no other is left."""
    kept = logits.clone()
    kept[_known(tokens, logits)] = -torch.inf
    return logits if kept.isneginf().all() else kept


def _known(tokens: Collection[int], logits: torch.Tensor) -> list[int]:
    vocabulary = range(len(logits))
    return [token for token in tokens if token in vocabulary]
