# SPDX-License-Identifier: Apache-2.0
"""From a model class to a folder with a tiny checkpoint of it."""

from __future__ import annotations

import importlib
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from conformance.engine.multimodal_models import MODELS, of_class
from conformance.multimodal.modality.promises import loaded_from
from conformance.plugin.target import MODEL_CONFIG, Plugin
from conformance.rules import nearest
from conformance.settings import Settings, UsageError

_PREFIX = "vllm-conformance-checkpoint-"


def name_of(section: Mapping[str, Any], cls: type[Any]) -> str | None:
    """Return what the profile calls the checkpoint, or the tiny model of a class of vLLM."""
    if "model" in section:
        name = str(section["model"])
        return str(Path(name).resolve()) if name not in MODELS and Path(name).is_dir() else name
    known = of_class(cls.__name__)
    of_vllm = known is not None and known.model_class == f"{cls.__module__}:{cls.__qualname__}"
    return known.name if known is not None and of_vllm else None


def chosen(
    plugin: Plugin, section: Mapping[str, Any], settings: Settings, cls: type[Any]
) -> str | None:
    """Return the checkpoint that a class is tried on; a model named by its folder lies there."""
    place = settings.directory / plugin.target.partition("@")[0]
    return str(place) if (place / MODEL_CONFIG).is_file() else name_of(section, cls)


def folder_of(name: str) -> Path:
    """Return the folder of a checkpoint; one that is made by a function is made anew.

    Raises:
        UsageError: there is none of that name, or its function raised.

    """
    if name in MODELS:
        return MODELS[name].folder()
    if Path(name).is_dir():
        return Path(name)
    module, colon, function = name.partition(":")
    if not colon:
        raise UsageError(
            f"[multimodal] model {name!r} is no folder, no package.module:function "
            f"or file.py:function that writes one, and none of {', '.join(MODELS)}."
            + nearest(name, MODELS)
        )
    try:
        write = getattr(_module(module), function)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"[multimodal] model {name!r}: {error}.") from None
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    try:
        write(folder)
    except Exception as error:
        raise UsageError(
            f"[multimodal] model {name!r} raised {type(error).__name__}: {error}."
        ) from error
    if not (folder / "config.json").is_file():
        raise UsageError(f"[multimodal] model {name!r} wrote no config.json into its folder.")
    return folder


def _module(name: str) -> object:
    """Return a module by its name, or that of a file: beside the plugin, or where Python looks."""
    if not name.endswith(".py"):
        return importlib.import_module(name)
    files = (Path(place, name) for place in ("", *sys.path))
    found = next((file for file in files if file.is_file()), None)
    if found is None:
        raise ImportError(f"there is no file {name!r} here or on sys.path")
    return loaded_from(found)


def has_weights(folder: str | Path) -> bool:
    """Tell whether a checkpoint has weights; one for processors alone need not."""
    return any(Path(folder).glob("*.safetensors"))


def remove(folder: Path) -> None:
    """Remove a checkpoint that :func:`folder_of` had written; any other one is kept."""
    if folder.parent == Path(tempfile.gettempdir()) and folder.name.startswith(_PREFIX):
        shutil.rmtree(folder, ignore_errors=True)
