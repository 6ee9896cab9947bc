# SPDX-License-Identifier: Apache-2.0
"""Tiny pooling models on disk: the tiny Llama with other heads, or with a plugin's name in it."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from conformance.engine.environment import made_once
from conformance.engine.models import tiny_llama
from conformance.rules import nearest
from conformance.settings import UsageError

LABELS = 3

_SEED = 89


def tiny_embedding() -> Path:
    """Return the folder of a model that embeds: vector size 64, tasks ``embed, token_embed``."""
    return tiny_llama()


def tiny_classification() -> Path:
    """Return the folder of a model that classifies into three labels: task ``classify``."""
    changes = {
        "architectures": ["LlamaForSequenceClassification"],
        "num_labels": LABELS,
        "id2label": {str(label): f"label-{label}" for label in range(LABELS)},
        "label2id": {f"label-{label}": label for label in range(LABELS)},
    }
    return _variant("tiny-classification", changes, head=True)


def naming_plugin(name: str, folder: Path, base: Path | str) -> Path:
    """Return a copy of a model, in *folder*, whose config.json names an IO processor plugin."""
    return with_options({"io_processor_plugin": name}, folder / f"model-naming-{name}", base)


def with_options(options: Mapping[str, Any], folder: Path, base: Path | str) -> Path:
    """Make a folder with a copy of a model whose config.json has further options; return it."""
    return _write(folder, options, head=False, base=Path(base))


#: What a profile may call a model.
MODELS: Mapping[str, Callable[[], Path]] = {
    "tiny-embedding": tiny_embedding,
    "tiny-classification": tiny_classification,
}

#: Tasks that each has a pooler for.
TASKS: Mapping[str, tuple[str, ...]] = {
    "tiny-embedding": ("embed", "token_embed"),
    "tiny-classification": ("classify", "token_classify"),
}


def named_model(name: str) -> str:
    """Return the folder of a model that a profile names, or a path as it is.

    Raises:
        UsageError: it is neither.

    """
    if name in MODELS:
        return str(MODELS[name]())
    if Path(name).is_dir():
        return name
    raise UsageError(
        f"[io-processor] model {name!r} is neither a folder, here or beside the profile, "
        f"nor one of {', '.join(MODELS)}." + nearest(name, MODELS)
    )


def name_of(folder: str) -> str | None:
    """Return what a profile calls the model in a folder, or None for a folder of another model."""
    return next((name for name, make in MODELS.items() if str(make()) == folder), None)


def _variant(name: str, changes: Mapping[str, Any], *, head: bool) -> Path:
    """Return a model beside the tiny Llama, made if it is not there."""
    content = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]
    base = tiny_llama()
    final = base.parent / f"{name}-{content}-{base.name.rpartition('-')[2]}"
    return made_once(final, partial(_write, changes=changes, head=head))


def _write(
    folder: Path, changes: Mapping[str, Any], *, head: bool, base: Path | None = None
) -> Path:
    base = base or tiny_llama()
    folder.mkdir(parents=True, exist_ok=True)
    for path in base.iterdir():
        shutil.copyfile(path, folder / path.name)
    config = json.loads((base / "config.json").read_text(encoding="utf-8")) | changes
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    if head:
        import numpy as np
        from safetensors.numpy import load_file, save_file

        weights = load_file(folder / "model.safetensors")
        del weights["lm_head.weight"]
        size = config["hidden_size"]
        random = np.random.RandomState(_SEED)  # its stream never changes
        weights["score.weight"] = random.standard_normal((LABELS, size)).astype(np.float32) * 0.5
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
