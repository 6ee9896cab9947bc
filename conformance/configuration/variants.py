# SPDX-License-Identifier: Apache-2.0
"""What stands beside a tiny model in some configurations: experts, adapters, other weights.

Each is made of the model's own folder, once, and lies beside it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance.engine.environment import cache_directory, made_once
from conformance.engine.pooling_models import with_options

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Weights = dict[str, NDArray[np.float32]]

#: Experts of a layer, and how many of them each token is given to.
EXPERTS, CHOSEN = 4, 2

_RANK = 4
_SEED = 22


def experts(model: str | Path) -> str:
    """Return a model with a mixture of experts that says what this one says.

    All experts of a layer are its own feed-forward layer, so the tokens can be compared.
    """

    def write(folder: Path) -> None:
        weights: Weights = {}
        random = np.random.RandomState(_SEED)
        names = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}
        for name, tensor in _weights(model).items():
            before, found, after = name.partition(".mlp.")
            if not found:
                weights[name] = tensor
                continue
            layer = f"{before}.block_sparse_moe"
            kind, _, rest = after.partition(".")
            for expert in range(EXPERTS):
                weights[f"{layer}.experts.{expert}.{names[kind]}.{rest}"] = tensor
            if kind == "down_proj":
                router = random.standard_normal((EXPERTS, len(tensor)))
                weights[f"{layer}.gate.weight"] = router.astype(np.float32)
        config = {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral"}
        numbers = {"num_local_experts": EXPERTS, "num_experts_per_tok": CHOSEN}
        _copy(model, folder, weights, config | numbers | {"sliding_window": None})

    return _made(model, "experts", write)


def other_weights(model: str | Path) -> str:
    """Return a model of the same shape that says something else to most prompts."""

    def write(folder: Path) -> None:
        weights = _weights(model)
        head = weights["lm_head.weight"]
        half = len(head) // 2
        weights["lm_head.weight"] = np.concatenate([head[:half], np.roll(head[half:], 7, 0)])
        _copy(model, folder, weights, {})

    return _made(model, "other-weights", write)


def adapter(model: str | Path) -> str:
    """Return a LoRA adapter under which the model says something else."""

    def write(folder: Path) -> None:
        from safetensors.numpy import save_file

        random = np.random.RandomState(_SEED)
        weights: Weights = {}
        for name, tensor in _weights(model).items():
            if name.endswith("q_proj.weight"):
                rows, columns = tensor.shape
                for side, shape in (("A", (_RANK, columns)), ("B", (rows, _RANK))):
                    drawn = random.standard_normal(shape).astype(np.float32)
                    key = name.removesuffix(".weight")
                    weights[f"base_model.model.{key}.lora_{side}.weight"] = drawn
        save_file(weights, folder / "adapter_model.safetensors", metadata={"format": "pt"})
        document = {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": str(model),
            "r": _RANK,
            "lora_alpha": _RANK,
            "lora_dropout": 0.0,
            "bias": "none",
            "target_modules": ["q_proj"],
        }
        (folder / "adapter_config.json").write_text(json.dumps(document), encoding="utf-8")

    return _made(model, "adapter", write)


def _weights(model: str | Path) -> Weights:
    from safetensors.numpy import load_file

    return dict(load_file(Path(model) / "model.safetensors"))


def _copy(model: str | Path, folder: Path, weights: Weights, config: Mapping[str, Any]) -> None:
    """Write a model with these weights, and everything else as the other one has it."""
    from safetensors.numpy import save_file

    with_options(config, folder, model)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def _made(model: str | Path, name: str, write: Callable[[Path], None]) -> str:
    """Return the folder that ``write`` fills, and have it filled if it is not there."""
    # The recipe is this file, and the model.
    recipe = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]
    return str(made_once(cache_directory() / f"{Path(model).name}-{name}-{recipe}", write))
