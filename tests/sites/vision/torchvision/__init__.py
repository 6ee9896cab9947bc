# SPDX-License-Identifier: Apache-2.0
"""The torchvision that comes later on the path, made importable beside a torch without CUDA.

The wheel that package indexes serve is a CUDA build, whose extension cannot be loaded then.
torchvision itself gets by without the extension, but not without the schemas of two operators that
it describes while it is imported. Declared here, nobody can call them, and all else is Python.
"""

from __future__ import annotations

import importlib.machinery
import sys
from pathlib import Path

import torch

_OPERATORS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)


def _become(name: str) -> torch.library.Library | None:
    """Turn this module into the torchvision behind it."""
    here = Path(__file__).parents[1]
    later = [entry for entry in sys.path if Path(entry or ".").resolve() != here]
    spec = importlib.machinery.PathFinder.find_spec(name, later)
    if spec is None or spec.loader is None or spec.submodule_search_locations is None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    module = sys.modules[name]
    folder = Path(spec.submodule_search_locations[0])
    module.__path__ = list(spec.submodule_search_locations)
    module.__file__, module.__spec__, module.__loader__ = spec.origin, spec, spec.loader
    library = None
    if not _loads(folder):
        library = torch.library.Library(name, "DEF")
        for operator in _OPERATORS:
            library.define(operator)
    spec.loader.exec_module(module)
    return library


def _loads(folder: Path) -> bool:
    """Tell whether the extension of a torchvision fits this torch."""
    for extension in folder.glob("_C*"):
        try:
            torch.ops.load_library(extension)
        except OSError:
            return False
        return True
    return False


#: The schemas last as long as this.
_library = _become(__name__)
