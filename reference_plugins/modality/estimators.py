# SPDX-License-Identifier: Apache-2.0
"""How many tokens an item takes, from the few numbers in its header.

The scheduler needs the answer before anything is decoded or encoded. An estimate that is
too high wastes room, one that is too low takes memory that was promised to somebody else.
So the recipes cut and resize by these same functions, and estimate and result cannot part.
"""

from __future__ import annotations

import math
from functools import cache

from reference_plugins.modality.errors import InputError

#: LLaVA-1.5: an image of 336 x 336 in patches of 14 x 14, whatever it was before.
FIXED_TOKENS = 576


def fixed_tokens(side: int, patch: int) -> int:
    """Return the tokens of a square image: one for each patch."""
    return (side // patch) ** 2


def dynamic_tokens(height: int, width: int, *, patch: int = 14, merge: int = 2) -> int:
    """Return the tokens of an image kept in its own size: (H/14 x W/14) / 4.

    Height and width are those after `dynamic_size`, which makes them divisible.
    """
    return (height // patch) * (width // patch) // merge**2


def dynamic_size(
    height: int, width: int, *, factor: int, min_pixels: int, max_pixels: int
) -> tuple[int, int]:
    """Return the height and width nearest to an image's own, in multiples of `factor`.

    The aspect ratio is kept as far as the multiples allow, and so are the limits of the area.
    """
    # A side that rounds to nothing makes the area too small, and is mended below.
    rows, columns = round(height / factor) * factor, round(width / factor) * factor
    if rows * columns > max_pixels:
        shrink = math.sqrt(height * width / max_pixels)
        rows = max(factor, math.floor(height / shrink / factor) * factor)
        columns = max(factor, math.floor(width / shrink / factor) * factor)
    elif rows * columns < min_pixels:
        grow = math.sqrt(min_pixels / (height * width))
        rows = math.ceil(height * grow / factor) * factor
        columns = math.ceil(width * grow / factor) * factor
    return rows, columns


def tiled_tokens(tiles: int, *, per_tile: int = 256) -> int:
    """Return the tokens of an image cut into tiles, the thumbnail counted as one."""
    return tiles * per_tile


def tile_grid(height: int, width: int, *, tile: int, max_tiles: int) -> tuple[int, int]:
    """Return into how many rows and columns of tiles an image is cut.

    Of all grids of at most `max_tiles` tiles it is the one whose aspect ratio is nearest to the
    image's. Where grids have the same ratio, a larger one is taken if the image fills half of it.
    """
    best, smallest = (1, 1), math.inf
    for rows, columns in _grids(max_tiles):
        difference = abs(width / height - columns / rows)
        fills = height * width > 0.5 * tile**2 * rows * columns
        if difference < smallest or (difference == smallest and fills):
            best, smallest = (rows, columns), difference
    return best


@cache
def _grids(max_tiles: int) -> tuple[tuple[int, int], ...]:
    """Return all grids of at most so many tiles as rows and columns, small ones first."""
    grids = [
        (rows, columns)
        for rows in range(1, max_tiles + 1)
        for columns in range(1, max_tiles // rows + 1)
    ]
    return tuple(sorted(grids, key=lambda grid: (grid[0] * grid[1], grid[1])))


def video_tokens(frames: int, tokens_per_frame: int, *, merge: int = 1) -> int:
    """Return the tokens of a video: so many for each frame, or for each `merge` frames."""
    return math.ceil(frames / merge) * tokens_per_frame


def evenly_spread(count: int, wanted: int) -> tuple[int, ...]:
    """Return which of so many to keep, spread evenly over the first to the last.

    Where there are no more than `wanted`, all are kept; a single one is taken from the middle.
    """
    if count <= wanted:
        return tuple(range(count))
    if wanted == 1:
        return (count // 2,)
    # Integers all the way: rounded floats would differ between platforms.
    return tuple(
        (2 * number * (count - 1) + wanted - 1) // (2 * (wanted - 1)) for number in range(wanted)
    )


def resampled_length(samples: int, rate: int, to_rate: int) -> int:
    """Return how many samples a waveform has at another rate, rounded up."""
    return -(-samples * to_rate // rate)


def audio_tokens(samples: int, *, hop: int, frames_per_token: int) -> int:
    """Return the tokens of a waveform: spectrogram frames of `hop` samples, so many to a token."""
    frames = -(-samples // hop)
    return -(-frames // frames_per_token)


def aspect_ratio(height: int, width: int) -> float:
    """Return how many times the longer side of an image is the shorter.

    Raises:
        InputError: the image has no area.

    """
    if height < 1 or width < 1:
        raise InputError(f"the image is {width} x {height} pixels, so there is nothing to see")
    return max(height, width) / min(height, width)
