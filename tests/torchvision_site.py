# SPDX-License-Identifier: Apache-2.0
"""torchvision, for processes that are to import vLLM's LLaVA, Qwen2-VL and many others.

vLLM's own wheel requires it, so where that is installed there is nothing to do. Beside a torch
without CUDA the torchvision of ordinary indexes, a CUDA build, fails on import and takes
transformers with it: there it stands in a folder of its own, behind a package that mends it, and
no process sees it that is not given the folder.
transformers decides what it has when it is imported: a process that has imported vLLM without
torchvision, and every fork of one, stays without.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

#: Names the folder where torchvision is installed.
VARIABLE = "VLLM_CONFORMANCE_TORCHVISION"

_ROOT = Path(__file__).parents[1]
_USUAL = _ROOT / ".tox" / "vision" / "site"

#: A package ``torchvision`` that becomes the one behind it.
_SITE = Path(__file__).with_name("sites") / "vision"


class NoTorchvision(Exception):
    """There is no torchvision: one sentence that says where it was looked for."""


def python_path() -> list[str]:
    """Return what a new process needs on ``PYTHONPATH`` to have torchvision.

    It is where this process would find it, else in the folder that
    ``$VLLM_CONFORMANCE_TORCHVISION`` names, else in ``.tox/vision/site`` beside a checkout of this
    project.

    Raises:
        NoTorchvision: torchvision is not installed there.

    """
    chosen = os.environ.get(VARIABLE)
    if not chosen and importlib.util.find_spec("torchvision"):
        return []
    folder = Path(chosen).expanduser().absolute() if chosen else _USUAL
    if not (folder / "torchvision" / "__init__.py").is_file():
        where = f"${VARIABLE} names" if chosen else f"${VARIABLE} names no folder, and there is"
        raise NoTorchvision(f"{where} no torchvision in {folder}")
    return [str(_SITE), str(folder)]
