# SPDX-License-Identifier: Apache-2.0
"""Makes a checkpoint of a TinyVlm with random weights: ``python -m ...checkpoint FOLDER``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SPECIALS = ("<s>", "</s>", "<pad>", "<image>", "<row>")
PATCH, PATCHES = 16, 64

_SIZE, _INNER, _LAYERS, _HEADS = 64, 128, 2, 2
_POSITIONS = 4096
_SEED = 7

# Standard deviations with which the answer depends on the whole prompt, and on its images.
_SCALES = {
    "embed_tokens": 1.0,
    "q_proj": 0.4,
    "k_proj": 0.4,
    "v_proj": 0.125,
    "o_proj": 0.25,
    "gate_proj": 0.125,
    "up_proj": 0.125,
    "down_proj": 0.4,
    "lm_head": 1.0,
}

_CHAT = (
    "{% for message in messages %}{{ message['role'] }}: "
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'text' %}{{ part['text'] }}{% else %}ITEM{% endif %}"
    "{% endfor %}{% endif %}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def write(folder: Path) -> Path:
    """Write a checkpoint into a folder, which is made if it is not there, and return the folder.

    It has a token for each byte and five special ones, takes any number of images,
    and is the same each time.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tokens = vocabulary(SPECIALS)
    text = text_config(len(tokens))
    config = {
        "architectures": ["TinyVlm"],
        "model_type": "tiny_vlm",
        "dtype": "float32",
        "patch_size": PATCH,
        "max_patches": PATCHES,
        "image_token_id": SPECIALS.index("<image>"),
        "row_token_id": SPECIALS.index("<row>"),
        "tie_word_embeddings": False,
        "text_config": {"model_type": "llama", **text},
    }
    write_documents(folder, config, item="<image>")
    tokenizer(tokens, SPECIALS).save(str(folder / "tokenizer.json"))
    save_file(_weights(len(tokens)), folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def vocabulary(specials: Sequence[str]) -> list[str]:
    """Return special tokens, and a token for each byte."""
    return [*specials, *sorted(pre_tokenizers.ByteLevel.alphabet())]


def text_config(tokens: int) -> dict[str, object]:
    """Return what config.json says of a text model with so many tokens."""
    return {
        "vocab_size": tokens,
        "hidden_size": _SIZE,
        "intermediate_size": _INNER,
        "num_hidden_layers": _LAYERS,
        "num_attention_heads": _HEADS,
        "num_key_value_heads": _HEADS,
        "max_position_embeddings": _POSITIONS,
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": 2,
    }


def write_documents(folder: Path, config: Mapping[str, object], *, item: str = "") -> None:
    """Write the documents of a checkpoint; ``item`` stands in a chat for what is no text."""
    documents: dict[str, Mapping[str, object]] = {
        "config.json": config,
        "generation_config.json": {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2},
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": SPECIALS[0],
            "eos_token": SPECIALS[1],
            "pad_token": SPECIALS[2],
            "model_max_length": _POSITIONS,
            "chat_template": _CHAT.replace("ITEM", item),
        },
    }
    for name, document in documents.items():
        (folder / name).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def tokenizer(tokens: Sequence[str], specials: Sequence[str]) -> Tokenizer:
    """Return a tokenizer whose tokens have their places in a list for ids."""
    ids = {token: index for index, token in enumerate(tokens)}
    made = Tokenizer(models.BPE(vocab=ids, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(token, special=True) for token in specials])
    return made


def _weights(tokens: int) -> dict[str, torch.Tensor]:
    random = torch.Generator().manual_seed(_SEED)
    return {
        "encoder.pixels.weight": _matrix(random, _SIZE, 3 * PATCH**2, 2.0 / PATCH),
        "encoder.pixels.bias": torch.zeros(_SIZE),
        "encoder.rows.weight": _matrix(random, PATCHES, _SIZE, 0.5),
        "encoder.columns.weight": _matrix(random, PATCHES, _SIZE, 0.5),
        "encoder.output.weight": _matrix(random, _SIZE, _SIZE, 0.15),
        "encoder.output.bias": torch.zeros(_SIZE),
        **text_weights(tokens, len(SPECIALS), prefix="language_model.", random=random),
    }


def text_weights(
    tokens: int, specials: int, *, prefix: str = "", random: torch.Generator | None = None
) -> dict[str, torch.Tensor]:
    """Return random weights of a text model, whose first tokens are never an answer."""
    random = random or torch.Generator().manual_seed(_SEED)

    def text(kind: str, rows: int, columns: int) -> torch.Tensor:
        return _matrix(random, rows, columns, _SCALES[kind])

    weights = {
        f"{prefix}model.embed_tokens.weight": text("embed_tokens", tokens, _SIZE),
        f"{prefix}model.norm.weight": torch.ones(_SIZE),
    }
    for layer in range(_LAYERS):
        name = f"{prefix}model.layers.{layer}"
        for kind in ("q_proj", "k_proj", "v_proj", "o_proj"):
            weights[f"{name}.self_attn.{kind}.weight"] = text(kind, _SIZE, _SIZE)
        for kind in ("gate_proj", "up_proj"):
            weights[f"{name}.mlp.{kind}.weight"] = text(kind, _INNER, _SIZE)
        weights[f"{name}.mlp.down_proj.weight"] = text("down_proj", _SIZE, _INNER)
        for kind in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{name}.{kind}.weight"] = torch.ones(_SIZE)
    head = text("lm_head", tokens, _SIZE)
    head[:specials] = 0.0
    weights[f"{prefix}lm_head.weight"] = head
    return weights


def _matrix(random: torch.Generator, rows: int, columns: int, scale: float) -> torch.Tensor:
    return torch.randn(rows, columns, generator=random) * scale


if __name__ == "__main__":
    write(Path(sys.argv[1]))
