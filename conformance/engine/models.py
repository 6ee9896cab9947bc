# SPDX-License-Identifier: Apache-2.0
"""Tiny random models on disk, made with NumPy alone.

Making one takes a fraction of a second and imports neither torch nor transformers, so the parent
process can do it while vLLM is still being imported elsewhere.
The weights mean nothing; they are scaled so that what the model says depends on its whole prompt
and the best token is clearly ahead of the second.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from itertools import chain, islice, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conformance.engine.environment import cache_directory

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: No multiple of 64, to which vLLM pads the output layer: in float32 logits processors are handed
#: a view of the padded rows, as with many real models.
VOCABULARY = 500
CONTEXT = 512

_HIDDEN = 64
_INTERMEDIATE = 128
_LAYERS = 2
_HEADS = 2
_HEAD = 32
_SEED = 88
_DRAWN_ROWS = 512  # for the vocabulary; those that are too many are cut off
_SPECIALS = ("<s>", "</s>", "<pad>")
_BOS, _EOS, _PAD = range(3)

# Standard deviations, and the seed above, are chosen among many by measuring: attention must be
# sharp enough and its share of the residual large enough for early words to matter; logits, of
# deviation 8, put the best token clearly ahead (by 1.7 in the median) and still leave a quarter
# of the probability to the others at temperature 1.
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

_CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def tiny_llama(cache_dir: Path | None = None) -> Path:
    """Return the folder of a tiny Llama with random weights, and make it if it is not there.

    500 tokens (0 ``<s>``, 1 ``</s>``, 2 ``<pad>``, 3 to 258 the single bytes, then pairs of
    characters), 512 positions, hidden size 64, two layers, two heads of 32, float32, 0.6 MB.
    The weights come from a fixed seed.
    It does not end an answer by itself: the output rows of the three special tokens are zero.

    *cache_dir* is by default `conformance.engine.environment.cache_directory`.
    Any number of processes may ask for it at the same time.

    Raises:
        OSError: if the cache folder cannot be written.
    """
    # The recipe is this file: whatever changes in it makes another model.
    content = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]
    parent = cache_directory() if cache_dir is None else cache_dir
    final = parent / f"tiny-llama-{content}"
    if final.is_dir():
        return final
    parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".tiny-llama-", dir=parent))
    try:
        _write_tiny_llama(draft)
        try:
            draft.rename(final)
        except OSError:
            # Another process was first, and a folder that is not empty is never replaced.
            if not final.is_dir():
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return final


def _write_tiny_llama(folder: Path) -> None:
    from safetensors.numpy import save_file

    save_file(_weights(), folder / "model.safetensors", metadata={"format": "pt"})
    documents = {
        "config.json": _config(),
        "generation_config.json": {
            "bos_token_id": _BOS,
            "eos_token_id": _EOS,
            "pad_token_id": _PAD,
        },
        "tokenizer.json": _tokenizer(),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": _SPECIALS[_BOS],
            "eos_token": _SPECIALS[_EOS],
            "pad_token": _SPECIALS[_PAD],
            "model_max_length": CONTEXT,
            "clean_up_tokenization_spaces": False,
            "chat_template": _CHAT_TEMPLATE,
        },
    }
    for name, document in documents.items():
        text = json.dumps(document, indent=1, ensure_ascii=False)
        (folder / name).write_text(text + "\n", encoding="utf-8")


def _config() -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": VOCABULARY,
        "hidden_size": _HIDDEN,
        "intermediate_size": _INTERMEDIATE,
        "num_hidden_layers": _LAYERS,
        "num_attention_heads": _HEADS,
        "num_key_value_heads": _HEADS,
        "head_dim": _HEAD,
        "hidden_act": "silu",
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "bos_token_id": _BOS,
        "eos_token_id": _EOS,
        "pad_token_id": _PAD,
        "torch_dtype": "float32",
    }


def _weights() -> dict[str, NDArray[np.float32]]:
    import numpy as np

    # NumPy promises the stream of this legacy generator for ever, and that of no newer one.
    random = np.random.RandomState(_SEED)

    def matrix(kind: str, rows: int, columns: int) -> NDArray[np.float32]:
        return (random.standard_normal((rows, columns)) * _SCALES[kind]).astype(np.float32)

    ones = np.ones(_HIDDEN, dtype=np.float32)
    inner = _HEADS * _HEAD
    weights = {
        "model.embed_tokens.weight": matrix("embed_tokens", _DRAWN_ROWS, _HIDDEN)[:VOCABULARY]
    }
    for layer in range(_LAYERS):
        prefix = f"model.layers.{layer}"
        for kind in ("q_proj", "k_proj", "v_proj"):
            weights[f"{prefix}.self_attn.{kind}.weight"] = matrix(kind, inner, _HIDDEN)
        weights[f"{prefix}.self_attn.o_proj.weight"] = matrix("o_proj", _HIDDEN, inner)
        for kind in ("gate_proj", "up_proj"):
            weights[f"{prefix}.mlp.{kind}.weight"] = matrix(kind, _INTERMEDIATE, _HIDDEN)
        weights[f"{prefix}.mlp.down_proj.weight"] = matrix("down_proj", _HIDDEN, _INTERMEDIATE)
        for kind in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{prefix}.{kind}.weight"] = ones.copy()
    weights["model.norm.weight"] = ones.copy()
    head = matrix("lm_head", _DRAWN_ROWS, _HIDDEN)[:VOCABULARY]
    head[: len(_SPECIALS)] = 0.0
    weights["lm_head.weight"] = head
    return weights


def _tokenizer() -> dict[str, Any]:
    merges = _merges()
    tokens = [*_SPECIALS, *_byte_characters(), *(left + right for left, right in merges)]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": index,
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for index, token in enumerate(_SPECIALS)
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": True,
        },
        "post_processor": None,
        "decoder": {
            "type": "ByteLevel",
            "add_prefix_space": True,
            "trim_offsets": True,
            "use_regex": True,
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": [f"{left} {right}" for left, right in merges],
        },
    }


def _byte_characters() -> list[str]:
    """Return the character that stands for each byte 0 to 255 in a byte-level vocabulary.

    A printable Latin-1 byte stands for itself, each of the others for the next character from 256.
    """
    printable = set(chain(range(0x21, 0x7F), range(0xA1, 0xAD), range(0xAE, 0x100)))
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def _merges() -> list[tuple[str, str]]:
    """Return the 241 pairs of characters that fill the vocabulary up to 500 tokens."""
    space = _byte_characters()[ord(" ")]
    letters = "abcdefghijklmnopqrstuvwxyz"
    vowels = "aeiou"
    consonants = [letter for letter in letters if letter not in vowels]
    pairs = chain(
        product(space, letters),
        product(consonants, vowels),
        product(vowels, consonants),
        ("th", "sh", "ch", "ph", "wh", "gh", "ck", "ng", "nd", "nt", "st", "tr", "br"),
        ("ll", "ss", "tt", "ee"),
    )
    room = VOCABULARY - len(_SPECIALS) - 256
    return [(pair[0], pair[1]) for pair in islice(pairs, room)]
