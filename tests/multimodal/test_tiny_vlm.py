# SPDX-License-Identifier: Apache-2.0
"""The reference model: its images, its checkpoint, and vLLM that finds it by its entry point."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from conformance.engine.entry_points import synthetic_distribution

if TYPE_CHECKING:
    from conformance.worker import Zygote

HERE = Path(__file__).parent


def ask(
    zygote: Zygote, directory: Path, job: str, arguments: dict[str, Any], path: list[Path]
) -> Any:  # noqa: ANN401 - what the job says
    """Return the answer of a job."""
    process = zygote.fork(
        f"tiny_vlm_job:{job}",
        arguments,
        log=directory / "job.log",
        directory=directory,
        python_path=[str(HERE), *map(str, path)],
    )
    try:
        return process.ask("go", limit=240)
    finally:
        process.close()


#: Width and height, and the rows and columns of patches that they become.
GRIDS = {
    (16, 16): (1, 1),
    (1, 1): (1, 1),
    (31, 33): (2, 1),
    (48, 32): (2, 3),
    (128, 128): (8, 8),
    (1000, 1000): (8, 8),
    (5000, 1): (1, 64),
    (1, 5000): (64, 1),
    (640, 480): (6, 9),
}

#: Images that are none, with the options of a request, and what is said of them.
REFUSED = [
    (np.zeros((8, 8), np.uint8), {}, "not uint8 of shape (8, 8)"),
    (np.zeros((8, 8, 3), np.float32), {}, "not float32 of shape (8, 8, 3)"),
    (np.zeros((8, 8, 4), np.uint8), {}, "not uint8 of shape (8, 8, 4)"),
    (np.zeros((0, 8, 3), np.uint8), {}, "not uint8 of shape (0, 8, 3)"),
    (np.zeros((8, 8, 3), np.uint8), {"max_patches": 0}, "a whole number from 1, not 0"),
    (np.zeros((8, 8, 3), np.uint8), {"max_patches": True}, "a whole number from 1, not True"),
    (np.zeros((8, 8, 3), np.uint8), {"max_patches": "9"}, "a whole number from 1, not '9'"),
]


def test_images_become_patches(zygote: Zygote, tmp_path: Path) -> None:
    """Sizes give their grids, forms of one image the same patches, and what is none is refused."""
    asked = {
        "sizes": list(GRIDS),
        "refused": [(value, options) for value, options, _ in REFUSED],
    }

    grids, told, same, fewer, more = ask(zygote, tmp_path, "images", asked, [])

    assert grids == list(GRIDS.values())
    assert len(told) == len(REFUSED)
    assert all(end in said for said, (*_, end) in zip(told, REFUSED, strict=True)), told
    assert same
    assert fewer == [[1, 1]]
    assert more == [[8, 8]], "a request may ask for fewer patches, and not for more"


def test_a_checkpoint_is_the_same_each_time(zygote: Zygote, tmp_path: Path) -> None:
    """Its weights come from a seed."""
    one, other = ask(zygote, tmp_path, "written_twice", {"folder": tmp_path}, [])

    assert one == other
    assert set(one) == {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }


@pytest.mark.engine
def test_vllm_finds_it_by_its_entry_point(zygote: Zygote, tmp_path: Path) -> None:
    """An engine runs it with nothing said but the entry point, and sees what it is shown."""
    site = synthetic_distribution(
        tmp_path / "site",
        name="tiny-vlm",
        group="vllm.general_plugins",
        entries={"tiny_vlm": "reference_plugins.tiny_vlm:register"},
    )

    alone, together = ask(zygote, tmp_path, "by_entry_point", {"folder": tmp_path}, [site])

    assert [[place.count for place in one.places] for one in alone] == [
        [4],
        [4],
        [4],
        [4, 4],
        [4, 4],
        [],
    ]
    # Two rows of two patches, each with its end.
    assert [place.length for place in alone[0].places] == [6]
    for one, other in zip(alone, together, strict=True):
        decided = min(one.decided, other.decided)
        assert one.tokens[:decided] == other.tokens[:decided]
    assert len({one.tokens for one in alone}) == len(alone)
