# SPDX-License-Identifier: Apache-2.0
"""Reads every hostile file of one kind in a process of its own, and measures what each took.

    python hostile_files.py images

prints a line of JSON for each file: its name, what was raised, seconds, and by how many mebibytes
the process grew at its peak.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from fixtures.media import samples  # noqa: E402  # the path above says where that is
from reference_plugins.modality import (  # noqa: E402
    AudioPlugin,
    FixedResolution,
    ImagePlugin,
    LogMel,
    ModelConfig,
    MultiModalConfig,
    SampledFrames,
    VideoPlugin,
)
from reference_plugins.modality.point_clouds import PointCloudPlugin, PointGroups  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

MEBIBYTE = 1024  #: in kibibytes, the unit of /proc


@attrs.frozen
class Kind:
    """One kind of files, and the plugin that has to refuse them."""

    plugin: Any
    recipe: Any
    good: Callable[[], bytes]
    files: Callable[[], dict[str, bytes]]


KINDS = {
    "images": Kind(ImagePlugin(), FixedResolution(), samples.image, samples.hostile_images),
    "videos": Kind(VideoPlugin(), SampledFrames(), samples.animation, samples.hostile_videos),
    "films": Kind(VideoPlugin(), SampledFrames(), samples.film, samples.hostile_films),
    "sounds": Kind(AudioPlugin(), LogMel(), samples.wav, samples.hostile_sounds),
    "clouds": Kind(
        PointCloudPlugin(), PointGroups(), lambda: samples.ply(np.eye(3)), samples.hostile_clouds
    ),
}


def resident(field: str) -> int:
    """Return the memory of this process in kibibytes: VmRSS now, VmHWM at its peak."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split(f"{field}:")[1].split()[0])


def measure(kind: Kind, content: bytes) -> dict[str, Any]:
    """Return what reading a file raised and took."""
    modality = kind.plugin.modality
    config = MultiModalConfig(
        [modality], recipes={modality: kind.recipe}, placeholder_tokens={modality: 1}
    )
    model = ModelConfig("model", config, max_model_len=100_000)
    raised = said = None
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forgets the last peak
    before, start = resident("VmRSS"), time.monotonic()
    try:
        item = kind.plugin.parse_input(content)
        kind.plugin.validate([item], kind.plugin.limits)
        kind.plugin.preprocess(item, model)
    except Exception as error:  # noqa: BLE001  # which one it is, the test judges
        raised, said = type(error).__name__, str(error)
    return {
        "raised": raised,
        "said": said,
        "seconds": time.monotonic() - start,
        "mebibytes": (resident("VmHWM") - before) / MEBIBYTE,
    }


def main(name: str) -> None:
    """Print what every file of a kind took."""
    # As in production, where a warning does not end anything.
    warnings.simplefilter("ignore")
    kind = KINDS[name]
    good = measure(kind, kind.good())  # libraries are loaded once, and that is nobody's fault
    assert good["raised"] is None, good
    for file, content in kind.files().items():
        line = json.dumps({"name": file, "bytes": len(content)} | measure(kind, content))
        sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main(sys.argv[1])
