# SPDX-License-Identifier: Apache-2.0
"""Tiny models of vLLM's own multi-modal classes, written without a download.

The text model and the tokenizer are the tiny Llama's; what vLLM and transformers read besides is
made by hand, some tens of kilobytes, with the proportions of what is published.
"""

from __future__ import annotations

from families import sounds, squares, tiles

FAMILIES = {family.name: family for room in (tiles, squares, sounds) for family in room.FAMILIES}
