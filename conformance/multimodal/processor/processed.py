# SPDX-License-Identifier: Apache-2.0
"""What a processor made of a prompt: its tokens, and where the items of each modality are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import compress, count
from typing import Any

import attrs
import torch

from conformance.multimodal.processor.prompts import Prompt


@attrs.frozen
class Range:
    """Where an item's placeholder is in a prompt."""

    offset: int
    length: int
    mask: tuple[bool, ...] | None  #: which of its tokens get embeddings; None for all of them
    count: int  #: of tokens that get embeddings, as vLLM counts them

    @property
    def end(self) -> int:
        """The first position behind it."""
        return self.offset + self.length

    @property
    def where(self) -> str:
        """Its positions in a few words."""
        return f"{self.offset} to {self.end - 1}" if self.length > 0 else f"{self.offset}, empty"

    def embedded(self) -> tuple[int, ...]:
        """Return the positions that get embeddings."""
        if self.mask is None:
            return tuple(range(self.offset, self.end))
        return tuple(compress(count(self.offset), self.mask))


@attrs.frozen(eq=False)
class Processed:
    """What a processor made of a prompt; lists have an entry for each item of a modality."""

    tokens: tuple[int, ...]
    ranges: Mapping[str, tuple[Range, ...]]
    hashes: Mapping[str, tuple[str, ...]]
    data: Mapping[str, tuple[Any, ...]]  #: ``MultiModalKwargsItem``, or None for one sent before


def read(result: Any) -> Processed:  # noqa: ANN401 - vLLM's typed dictionary
    """Read what ``apply`` returned: where there is an encoder's own prompt, that one."""
    found = result["encoder_prompt"] if result["type"] == "enc_dec" else result
    # From 0.32 on the two prompts of encoder and decoder stand in one dictionary.
    tokens = found.get("encoder_prompt_token_ids", found["prompt_token_ids"])
    return Processed(
        tokens=tuple(tokens),
        ranges={
            modality: tuple(_range(one) for one in ranges)
            for modality, ranges in found["mm_placeholders"].items()
        },
        hashes={modality: tuple(names) for modality, names in found["mm_hashes"].items()},
        data={modality: tuple(items) for modality, items in found["mm_kwargs"].items()},
    )


def of_item(item: Any) -> dict[str, Any]:  # noqa: ANN401 - `MultiModalKwargsItem`
    """Return the plain data of an item."""
    found: dict[str, Any] = item.get_data()
    return found


def ranges_of(prompt: Prompt, processed: Processed) -> list[Range]:
    """Return the range of each item in the order of the prompt."""
    return [processed.ranges[name][index] for name, index in prompt.places()]


def mask_of(length: int, ranges: Iterable[Range]) -> list[bool]:
    """Return which positions of a prompt get embeddings of items."""
    mask = [False] * length
    for one in ranges:
        for position in one.embedded():
            mask[position] = True
    return mask


def by_place(rows: Sequence[torch.Tensor], ranges: Sequence[Range]) -> list[torch.Tensor]:
    """Return the rows of items in the order in which the model runner gathers them."""
    order = sorted(range(len(ranges)), key=lambda index: ranges[index].offset)
    return [rows[index] for index in order]


def _range(one: Any) -> Range:  # noqa: ANN401 - vLLM's `PlaceholderRange`
    mask = None if one.is_embed is None else tuple(map(bool, one.is_embed.flatten().tolist()))
    return Range(one.offset, one.length, mask, one.get_num_embeds())
