# SPDX-License-Identifier: Apache-2.0
"""Where the rules of IO processors come from."""

from __future__ import annotations

from conformance.rules import Source


def document(says: str) -> Source:
    """Name a sentence of the IO processor plugins document."""
    return Source("IO Processor Plugins", says, "0.10.2")


def vllm(where: str, says: str, since: str | None = None) -> Source:
    """Name a symbol of vLLM."""
    return Source(f"vllm/{where}", says, since)


def interface(says: str) -> Source:
    """Name what the base class says or does."""
    return Source("vllm/plugins/io_processors/interface.py:IOProcessor", says)
