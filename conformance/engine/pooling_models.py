# SPDX-License-Identifier: Apache-2.0
"""Tiny pooling models on disk: the tiny Llama with other heads, or with a plugin's name in it."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
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
    content = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]
    base = tiny_llama()
    final = base.parent / f"tiny-classification-{content}-{base.name.rpartition('-')[2]}"
    return made_once(final, _write_classifier)


def naming_plugin(name: str, folder: Path, base: Path | str) -> Path:
    """Return a copy of a model, in *folder*, whose config.json names an IO processor plugin."""
    return with_options({"io_processor_plugin": name}, folder / f"model-naming-{name}", base)


def with_options(options: Mapping[str, Any], folder: Path, base: Path | str) -> Path:
    """Make a folder with a copy of a model whose config.json has further options; return it."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in Path(base).iterdir():
        shutil.copyfile(path, folder / path.name)
    file = folder / "config.json"
    config = json.loads(file.read_text(encoding="utf-8")) | options
    file.write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    return folder


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


def _write_classifier(folder: Path) -> None:
    import numpy as np
    from safetensors.numpy import load_file, save_file

    changes = {
        "architectures": ["LlamaForSequenceClassification"],
        "num_labels": LABELS,
        "id2label": {str(label): f"label-{label}" for label in range(LABELS)},
        "label2id": {f"label-{label}": label for label in range(LABELS)},
    }
    with_options(changes, folder, tiny_llama())
    weights = load_file(folder / "model.safetensors")
    size = weights.pop("lm_head.weight").shape[1]
    random = np.random.RandomState(_SEED)  # its stream never changes
    weights["score.weight"] = random.standard_normal((LABELS, size)).astype(np.float32) * 0.5
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
