# SPDX-License-Identifier: Apache-2.0
"""Tokens from headers: known figures, and what holds for every size.

The figures of Qwen2-VL are those of `smart_resize` in transformers 5.19, those of InternVL2 those
of `calculate_internvl_targets` in vLLM 0.32.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference_plugins.modality import (
    DynamicResolution,
    FixedResolution,
    InputError,
    LogMel,
    SampledFrames,
    TiledResolution,
)
from reference_plugins.modality.estimators import (
    FIXED_TOKENS,
    aspect_ratio,
    dynamic_tokens,
    evenly_spread,
    resampled_length,
    tile_grid,
    video_tokens,
)

SIDES = st.integers(1, 5000)


@given(SIDES, SIDES)
def test_a_fixed_model_takes_576(height: int, width: int) -> None:
    """LLaVA-1.5 takes as many tokens for any image."""
    assert FixedResolution().estimate_tokens(height, width) == FIXED_TOKENS == 576


@pytest.mark.parametrize(
    ("height", "width", "resized", "tokens"),
    [
        (1080, 1920, (728, 1316), 1222),
        (336, 336, (336, 336), 144),
        (20, 3000, (28, 2996), 107),
        (10, 10, (56, 56), 4),
        (4000, 3000, (1148, 840), 1230),
        (862, 7, (644, 28), 23),
    ],
)
def test_a_dynamic_model_takes_a_quarter_of_the_patches(
    height: int, width: int, resized: tuple[int, int], tokens: int
) -> None:
    """Qwen2-VL resizes to multiples of 28, and then takes (H/14 x W/14) / 4."""
    recipe = DynamicResolution()

    assert recipe.size(height, width) == resized
    assert recipe.estimate_tokens(height, width) == tokens
    assert dynamic_tokens(*resized) == tokens


@given(st.integers(28, 5000), st.integers(28, 5000))
def test_a_dynamic_size_keeps_its_limits(height: int, width: int) -> None:
    """It is divisible, and its area is within the limits wherever no side is at its least."""
    recipe = DynamicResolution()
    rows, columns = recipe.size(height, width)

    assert rows % 28 == columns % 28 == 0
    assert rows * columns >= recipe.min_pixels
    assert rows * columns <= recipe.max_pixels or min(rows, columns) == 28


@pytest.mark.parametrize(
    ("height", "width", "grid", "tokens"),
    [
        (448, 448, (1, 1), 256),
        (1080, 1920, (2, 4), 9 * 256),
        (4000, 3000, (4, 3), 13 * 256),
        (100, 1000, (1, 10), 11 * 256),
        (500, 500, (1, 1), 256),
    ],
)
def test_a_tiled_model_takes_256_for_each_tile(
    height: int, width: int, grid: tuple[int, int], tokens: int
) -> None:
    """InternVL2 chooses the grid nearest in shape, and adds a thumbnail to more than one tile."""
    assert tile_grid(height, width, tile=448, max_tiles=12) == grid
    assert TiledResolution().estimate_tokens(height, width) == tokens


@given(SIDES, SIDES, st.integers(1, 40))
def test_a_grid_has_no_more_tiles_than_allowed(height: int, width: int, max_tiles: int) -> None:
    """Whatever the shape of the image, and lying down it is the grid turned round."""
    rows, columns = tile_grid(height, width, tile=448, max_tiles=max_tiles)

    assert 1 <= rows * columns <= max_tiles


def test_a_video_takes_its_frames_times_the_tokens_of_a_frame() -> None:
    """Eight of a hundred frames at 576, and half as much where two frames become one."""
    assert video_tokens(8, 576) == 4608
    assert SampledFrames(8).estimate_tokens(100, 30, 40) == 4608
    assert SampledFrames(8, merge=2).estimate_tokens(100, 30, 40) == 2304
    assert SampledFrames(8, merge=2).estimate_tokens(3, 30, 40) == 2 * 576


@given(st.integers(1, 10_000), st.integers(1, 64))
def test_frames_are_spread_evenly(count: int, wanted: int) -> None:
    """They ascend, are as many as wanted or there, and lie equally far apart but for one."""
    kept = evenly_spread(count, wanted)
    gaps = {later - earlier for earlier, later in pairwise(kept)}

    assert len(kept) == min(count, wanted)
    assert all(0 <= number < count for number in kept)
    assert not gaps or max(gaps) - min(gaps) <= 1 <= min(gaps)
    if len(kept) > 1:
        assert (kept[0], kept[-1]) == (0, count - 1)


def test_audio_takes_a_token_for_four_frames() -> None:
    """A second at 16 kHz is a hundred frames and 25 tokens; any beginning of a token counts."""
    recipe = LogMel()

    assert recipe.estimate_tokens(16_000, 16_000) == 25
    assert recipe.estimate_tokens(48_000, 48_000) == 25
    assert recipe.estimate_tokens(16_001, 16_000) == 26
    assert recipe.estimate_tokens(1, 48_000) == 1


def test_a_resampled_length_is_exact() -> None:
    """Integers, so that no recording of hours is a sample short."""
    assert resampled_length(10**12 + 1, 44_100, 16_000) == (10**12 + 1) * 160 // 441 + 1
    assert resampled_length(441, 44_100, 16_000) == 160


@pytest.mark.parametrize("size", [(0, 5), (5, 0), (-1, 5)])
def test_an_image_without_area_has_no_shape(size: tuple[int, int]) -> None:
    """It is the client's error, and not a division by zero."""
    with pytest.raises(InputError, match="nothing to see"):
        aspect_ratio(*size)
