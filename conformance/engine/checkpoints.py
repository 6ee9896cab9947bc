# SPDX-License-Identifier: Apache-2.0
"""What tiny multi-modal checkpoints are made of: the tiny Llama's text model, and towers beside it.

NumPy writes them, as it writes the tiny Llama: neither torch nor transformers is imported, and the
same bytes come out everywhere.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import attrs

from conformance.engine.models import VOCABULARY, tiny_llama

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    Weights = dict[str, NDArray[np.float32]]

#: Positions of the text model, which has room for many items in a prompt.
POSITIONS = 4096

#: Hidden size of the text model, and so of every embedding.
TEXT_SIZE = 64

_BIASED = ("q_proj.weight", "k_proj.weight", "v_proj.weight")
_EXTRA_ROWS = 90  # the seed of the rows for the tokens of items


@attrs.define
class Draws:
    """Random weights from a fixed seed, each of a size that keeps signals as large as they are."""

    seed: int
    weights: Weights = attrs.field(factory=dict)
    _random: np.random.RandomState = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Start the stream."""
        import numpy as np

        # NumPy promises the stream of this legacy generator for ever, and that of no newer one.
        self._random = np.random.RandomState(self.seed)

    def draw(self, name: str, *shape: int, scale: float | None = None) -> None:
        """Draw a tensor; by default the first dimension is its outputs, the rest its inputs."""
        import numpy as np

        size = scale if scale is not None else 1.5 / math.sqrt(math.prod(shape[1:]))
        self.weights[name] = (self._random.standard_normal(shape) * size).astype(np.float32)

    def linear(self, name: str, outputs: int, inputs: int, *, bias: bool = True) -> None:
        """Draw a linear layer."""
        self.draw(f"{name}.weight", outputs, inputs)
        if bias:
            self.draw(f"{name}.bias", outputs, scale=0.1)

    def norm(self, name: str, size: int) -> None:
        """Write a layer norm that changes nothing further."""
        import numpy as np

        self.weights[f"{name}.weight"] = np.ones(size, dtype=np.float32)
        self.weights[f"{name}.bias"] = np.zeros(size, dtype=np.float32)


def text_config(architecture: str, model_type: str, extra: Sequence[str]) -> dict[str, Any]:
    """Return the configuration of the text model, with so many tokens more."""
    config: dict[str, Any] = json.loads((tiny_llama() / "config.json").read_text(encoding="utf-8"))
    return config | {
        "architectures": [architecture],
        "model_type": model_type,
        "vocab_size": VOCABULARY + len(extra),
        "max_position_embeddings": POSITIONS,
    }


def text_weights(prefix: str, extra: Sequence[str], *, attention_bias: bool = False) -> Weights:
    """Return the tiny Llama's weights, with rows for more tokens that are never an answer.

    *prefix* goes before all names. With *attention_bias* queries, keys and values have a bias of
    zero, as models of the Qwen2 family want.
    """
    import numpy as np
    from safetensors.numpy import load_file

    weights = load_file(tiny_llama() / "model.safetensors")
    more = np.random.RandomState(_EXTRA_ROWS).standard_normal((len(extra), TEXT_SIZE))
    for name, rows in (("model.embed_tokens.weight", more), ("lm_head.weight", more * 0.0)):
        weights[name] = np.concatenate([weights[name], rows.astype(np.float32)])
    if attention_bias:
        for name in [n for n in weights if n.endswith(_BIASED)]:
            weights[name.replace(".weight", ".bias")] = np.zeros(TEXT_SIZE, dtype=np.float32)
    return {f"{prefix}{name}": value for name, value in weights.items()}


def token_ids(extra: Sequence[str]) -> dict[str, int]:
    """Return the ids of the tokens that come after the tiny Llama's."""
    return {token: VOCABULARY + index for index, token in enumerate(extra)}


def write_checkpoint(
    folder: Path,
    *,
    config: Mapping[str, Any],
    weights: Weights,
    extra: Sequence[str],
    items: Mapping[str, str],
    documents: Mapping[str, Any],
    named: Mapping[str, str] | None = None,
) -> Path:
    """Write a checkpoint into a folder, which is made if it is not there.

    Args:
        folder: where to.
        config: of the whole model.
        weights: by name; without any, no file of weights is written.
        extra: tokens that come after the tiny Llama's.
        items: what stands for an item in a chat, by the type of its part.
        documents: more JSON files, by name.
        named: tokens that the tokenizer has as attributes, by the attribute.

    Returns:
        The folder.

    """
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    if weights:
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    base = tiny_llama()
    tokenizer = json.loads((base / "tokenizer.json").read_text(encoding="utf-8"))
    pattern = tokenizer["added_tokens"][0]
    tokenizer["added_tokens"] += [
        pattern | {"id": index, "content": token} for token, index in token_ids(extra).items()
    ]
    settings = json.loads((base / "tokenizer_config.json").read_text(encoding="utf-8"))
    generation = json.loads((base / "generation_config.json").read_text(encoding="utf-8"))
    files = {
        "config.json": config,
        "generation_config.json": generation,
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": settings
        | {
            "model_max_length": POSITIONS,
            "extra_special_tokens": list(extra),
            **({"model_specific_special_tokens": dict(named)} if named else {}),
            "chat_template": chat_template(items),
        },
        **documents,
    }
    for name, document in files.items():
        text = json.dumps(document, indent=1, ensure_ascii=False)
        (folder / name).write_text(text + "\n", encoding="utf-8")
    return folder


def chat_template(items: Mapping[str, str]) -> str:
    """Return a template that writes each part of a message where it stands."""
    cases = "".join(f"{{% elif part['type'] == '{kind}' %}}{text}" for kind, text in items.items())
    return (
        "{% for message in messages %}{{ message['role'] }}: "
        "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
        "{% for part in message['content'] %}"
        f"{{% if part['type'] == 'text' %}}{{{{ part['text'] }}}}{cases}{{% endif %}}"
        "{% endfor %}{% endif %}\n{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
