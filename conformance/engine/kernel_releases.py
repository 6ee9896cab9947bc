# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for kernels, launched as this release of vLLM launches its own.

They take what the kernels of vLLM 0.32 take. Others may take something more or less, by place;
what is known of them is here, and from what is not known nobody is certified.
Only numpy and torch are imported; vLLM is where a function is called.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import attrs


@attrs.frozen
class Difference:
    """Parameters that the kernels of some releases have and others have not."""

    names: tuple[str, ...]
    follows: str  #: the parameter before which they stand, or would; empty for the end
    #: What stands for them where this release has none; nothing where it is the stand-in that
    #: has no use for them.
    absent: tuple[Any, ...] = ()


DIFFERENCES = {
    # Until 0.31. Without context parallelism it is what block_sizes is.
    "_compute_slot_mappings_kernel": Difference(("kernel_block_sizes",), "slot_mapping_enabled"),
    # Since 0.32, for drafting, which the stand-in refuses.
    "_gumbel_sample_kernel": Difference(
        ("logits_cache_source_ptr", "logits_cache_source_stride"), "logits_ptr", (None, 0)
    ),
    # Since 0.33, for drafting as well.
    "_post_update_kernel": Difference(
        ("draft_tokens_ptr", "draft_tokens_out_ptr", "num_draft_tokens"), ""
    ),
    # Since 0.33, for sliding windows, which the tiny models do without.
    "_gather_block_tables_kernel": Difference(
        ("num_computed_tokens_ptr", "sliding_window_reach_ptr", "block_sizes_ptr"), ""
    ),
}


def fitted(kernel: str, stand_in: Callable[..., Any]) -> Callable[..., Any]:
    """Return a stand-in that takes what the installed kernel takes.

    Args:
        kernel: its dotted name.
        stand_in: takes what the kernel of vLLM 0.32 takes.

    """
    if (known := DIFFERENCES.get(kernel.rpartition(".")[2])) is None:
        return stand_in
    there = set(known.names) <= set(asked := parameters(kernel))
    if there == bool(known.absent):
        return stand_in
    end = asked.index(known.follows) if known.follows else len(asked)
    start = end - len(known.names) * there

    def launched(*arguments: object, **options: object) -> object:
        return stand_in(*arguments[:start], *known.absent, *arguments[end:], **options)

    return launched


def unfit(stand_ins: Mapping[str, Callable[..., Any]]) -> str | None:
    """Say which kernel of the installed vLLM takes something that its stand-in does not know of."""
    for kernel, stand_in in stand_ins.items():
        name = kernel.rpartition(".")[2]
        asked, taken = len(parameters(kernel)), len(_places(stand_in))
        if (known := DIFFERENCES.get(name)) and fitted(kernel, stand_in) is not stand_in:
            taken += -len(known.names) if known.absent else len(known.names)
        if asked != taken:
            return (
                f"its kernel {name} takes {asked} arguments, and what replaces it on a CPU takes "
                f"{taken}, as other releases of vLLM do"
            )
    return None


def parameters(kernel: str) -> list[str]:
    """Return what the installed kernel takes by place; constants, in capitals, go by name."""
    module, _, name = kernel.rpartition(".")
    found = getattr(importlib.import_module(module), name)
    # Triton wraps it, and what stands in for Triton does not.
    taken = inspect.signature(getattr(found, "fn", found)).parameters
    return [each for each in taken if not each.isupper()]


def _places(stand_in: Callable[..., Any]) -> list[str]:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    taken = inspect.signature(stand_in).parameters.values()
    return [each.name for each in taken if each.kind in kinds]
