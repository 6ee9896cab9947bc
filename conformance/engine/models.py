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
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from conformance.engine.environment import cache_directory, made_once
from conformance.inputs import tiny_tokenizer
from conformance.inputs.tiny_tokenizer import SIZE, SPECIALS, tokenizer_document

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy as np
    from numpy.typing import NDArray

VOCABULARY = SIZE
CONTEXT = 512

_HIDDEN = 64
_INTERMEDIATE = 128
_LAYERS = 2
_HEADS = 2
_HEAD = 32
_SEED = 88
_DRAWN_ROWS = 512  # for the vocabulary; those that are too many are cut off
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

#: Where the folder of a model says what engines are started with beside it.
_BESIDE = "additional_config.json"

#: What is taken of a model whose tokenizer is asked for.
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
)

#: How the files of any tokenizer are called; vLLM reads more kinds than those above.
_OF_TOKENIZERS = ("*tok*", "*vocab*", "*.model", "*tekken*")

_CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def tiny_llama(
    cache_dir: Path | None = None,
    *,
    tokenizer: Path | None = None,
    additional_config: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
) -> Path:
    """Return the folder of a tiny Llama with random weights, and make it if it is not there.

    500 tokens (0 ``<s>``, 1 ``</s>``, 2 ``<pad>``, 3 to 258 the single bytes, then pairs of
    characters), 512 positions, hidden size 64, two layers, two heads of 32, float32, 0.6 MB.
    The weights come from a fixed seed.
    It does not end an answer by itself: the output rows of the special tokens are zero.

    Any number of processes may ask for it at the same time.

    Args:
        cache_dir: where it lies; by default `conformance.engine.environment.cache_directory`.
        tokenizer: folder of a model whose tokenizer and vocabulary it is to have.
        additional_config: what engines are started with beside it, see `additional_config`.
        config: what its ``config.json`` says besides, or instead.

    Raises:
        OSError: the cache folder cannot be written, or the tokenizer cannot be read.

    """
    own = None if tokenizer is None else Tokenizer.read(tokenizer)
    beside = json.dumps(additional_config, sort_keys=True) if additional_config else ""
    # The recipe is these files: whatever changes in them makes another model.
    recipe = hashlib.sha256(Path(__file__).read_bytes())
    recipe.update(Path(str(tiny_tokenizer.__file__)).read_bytes())
    recipe.update(json.dumps([beside, config or {}], sort_keys=True).encode())
    for path in own.files if own else ():
        recipe.update(path.name.encode() + path.read_bytes())
    parent = cache_directory() if cache_dir is None else cache_dir
    final = parent / f"tiny-llama-{recipe.hexdigest()[:12]}"

    def write(folder: Path) -> None:
        _write_tiny_llama(folder, own, config or {})
        if beside:
            (folder / _BESIDE).write_text(beside + "\n", encoding="utf-8")

    return made_once(final, write)


def additional_config(model: str | Path) -> dict[str, Any]:
    """Return the ``additional_config`` of engines on a model of :func:`tiny_llama`."""
    path = Path(model) / _BESIDE
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return found


def end_of_sequence(model: str | Path) -> int:
    """Return the token that ends the answers of a model of :func:`tiny_llama`."""
    document = json.loads((Path(model) / "config.json").read_text(encoding="utf-8"))
    return int(document["eos_token_id"])


def has_tokenizer(folder: Path) -> bool:
    """Tell whether a model's folder has a file of a tokenizer, of whatever kind."""
    return any(any(folder.glob(pattern)) for pattern in _OF_TOKENIZERS)


@attrs.frozen
class Tokenizer:
    """The tokenizer of a model, as files."""

    files: tuple[Path, ...]
    vocabulary: int
    end: int  #: the token that ends an answer

    @classmethod
    def read(cls, folder: Path) -> Tokenizer:
        """Read what a model's folder says of its tokenizer.

        Raises:
            OSError: there is no such folder, or no tokenizer in it.

        """
        files = tuple(path for name in TOKENIZER_FILES if (path := folder / name).is_file())
        if not {"tokenizer.json", "tokenizer.model", "vocab.json"} & {path.name for path in files}:
            raise FileNotFoundError(f"{folder} holds no tokenizer.json")
        config = _document(folder / "config.json")
        config = {**config, **config.get("text_config", {})}
        known = _document(folder / "tokenizer.json")
        added = {each["content"]: each["id"] for each in known.get("added_tokens", ())}
        named = _document(folder / "tokenizer_config.json").get("eos_token", "</s>")
        named = named.get("content") if isinstance(named, dict) else named
        ends = config.get("eos_token_id", added.get(named, _EOS))
        numbers = [*added.values(), *_numbers(known.get("model", {}).get("vocab", ()))]
        vocabulary = max(int(config.get("vocab_size", 0)), max(numbers, default=-1) + 1)
        return cls(files, vocabulary, int(ends[0] if isinstance(ends, list) else ends))


def _numbers(vocab: Any) -> Iterable[int]:  # noqa: ANN401 - a table, or a list of pairs
    return vocab.values() if isinstance(vocab, dict) else range(len(vocab))


def _document(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return found


def _write_tiny_llama(folder: Path, tokenizer: Tokenizer | None, config: Mapping[str, Any]) -> None:
    from safetensors.numpy import save_file

    vocabulary = tokenizer.vocabulary if tokenizer else VOCABULARY
    ends = {"bos_token_id": _BOS, "eos_token_id": _EOS, "pad_token_id": _PAD}
    if tokenizer:
        ends = dict.fromkeys(ends, tokenizer.end)
    layers = int(config.get("num_hidden_layers", _LAYERS))
    weights = _weights(vocabulary, {*ends.values()}, layers)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    documents: dict[str, Any] = {
        "config.json": _config() | {"vocab_size": vocabulary} | ends | dict(config),
        "generation_config.json": ends,
    }
    own = {
        "tokenizer.json": tokenizer_document(),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": SPECIALS[_BOS],
            "eos_token": SPECIALS[_EOS],
            "pad_token": SPECIALS[_PAD],
            "model_max_length": CONTEXT,
            "clean_up_tokenization_spaces": False,
            "chat_template": _CHAT_TEMPLATE,
        },
    }
    for path in tokenizer.files if tokenizer else ():
        shutil.copyfile(path, folder / path.name)
    for name, document in (documents if tokenizer else documents | own).items():
        text = json.dumps(document, indent=1, ensure_ascii=False)
        (folder / name).write_text(text + "\n", encoding="utf-8")


def _config() -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
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
        "torch_dtype": "float32",
    }


def _weights(vocabulary: int, silent: set[int], layers: int) -> dict[str, NDArray[np.float32]]:
    import numpy as np

    # NumPy promises the stream of this legacy generator for ever, and that of no newer one.
    random = np.random.RandomState(_SEED)

    def matrix(kind: str, rows: int, columns: int) -> NDArray[np.float32]:
        return (random.standard_normal((rows, columns)) * _SCALES[kind]).astype(np.float32)

    ones = np.ones(_HIDDEN, dtype=np.float32)
    inner = _HEADS * _HEAD
    rows = max(_DRAWN_ROWS, vocabulary)
    weights = {"model.embed_tokens.weight": matrix("embed_tokens", rows, _HIDDEN)[:vocabulary]}
    for layer in range(layers):
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
    head = matrix("lm_head", rows, _HIDDEN)[:vocabulary]
    head[sorted(silent)] = 0.0
    weights["lm_head.weight"] = head
    return weights
