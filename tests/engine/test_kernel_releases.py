# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for kernels that other releases of vLLM launch otherwise."""

from __future__ import annotations

import sys
from inspect import Parameter, Signature
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING

from conformance.engine.kernel_releases import fitted, unfit

if TYPE_CHECKING:
    import pytest

MAPPINGS = "release._compute_slot_mappings_kernel"
GUMBEL = "release._gumbel_sample_kernel"
UPDATE = "release._post_update_kernel"
OTHER = "release._other_kernel"


def _mappings(sizes: object, enabled: object, *, pad: int = 0) -> tuple[object, ...]:
    return sizes, enabled, pad


def _gumbel(column: object, source: object, stride: object, logits: object) -> tuple[object, ...]:
    return column, source, stride, logits


def _update(slots: object, lengths: object, **_: object) -> tuple[object, ...]:
    return slots, lengths


def _release(patch: pytest.MonkeyPatch, kernel: str, *names: str) -> None:
    """Make a release whose kernel has parameters of these names."""
    module, _, name = kernel.rpartition(".")
    parameters = [Parameter(each, Parameter.POSITIONAL_OR_KEYWORD) for each in names]
    launched = SimpleNamespace(fn=lambda: None)
    launched.fn.__signature__ = Signature(parameters)
    found = ModuleType(module)
    setattr(found, name, launched)
    patch.setitem(sys.modules, module, found)


def test_what_a_stand_in_has_no_use_for_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM 0.31 hands over another block size, in the middle."""
    names = ("block_sizes", "kernel_block_sizes", "slot_mapping_enabled", "PAD")
    _release(monkeypatch, MAPPINGS, *names)

    assert fitted(MAPPINGS, _mappings)(16, 8, True, pad=-1) == (16, True, -1)
    assert unfit({MAPPINGS: _mappings}) is None


def test_what_a_release_does_not_hand_over_is_made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM 0.31 knows nothing of a source of cached logits."""
    _release(monkeypatch, GUMBEL, "logits_cache_col_ptr", "logits_ptr")

    assert fitted(GUMBEL, _gumbel)("column", "logits") == ("column", None, 0, "logits")
    assert unfit({GUMBEL: _gumbel}) is None


def test_what_a_release_hands_over_at_the_end_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """vLLM 0.33 hands over drafts after everything else."""
    drafts = ("draft_tokens_ptr", "draft_tokens_out_ptr", "num_draft_tokens")
    _release(monkeypatch, UPDATE, "idx_mapping_ptr", "total_len_ptr", *drafts)

    assert fitted(UPDATE, _update)("slots", "lengths", None, None, 0) == ("slots", "lengths")
    assert unfit({UPDATE: _update}) is None


def test_a_release_that_is_like_ours_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in itself is launched."""
    _release(monkeypatch, MAPPINGS, "block_sizes", "slot_mapping_enabled")

    assert fitted(MAPPINGS, _mappings) is _mappings


def test_what_nobody_knows_of_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """No plugin is blamed for a kernel that takes something new."""
    _release(monkeypatch, OTHER, "first", "second", "third")

    assert unfit({OTHER: _mappings}) == (
        "its kernel _other_kernel takes 3 arguments, and what replaces it on a CPU takes 2, as "
        "other releases of vLLM do"
    )
