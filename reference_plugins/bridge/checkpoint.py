# SPDX-License-Identifier: Apache-2.0
"""Makes a tiny text checkpoint with a token for each modality, to try a bridged model with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safetensors.torch import save_file

from reference_plugins.tiny_vlm import checkpoint as tiny

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

#: The id of the first modality's token; the next modality has the next one.
FIRST = 3


def write(folder: Path, architecture: str, modalities: Sequence[str]) -> Path:
    """Write a checkpoint into a folder, which is made if it is not there, and return the folder.

    It is a Llama of 64 values and two layers with random weights, has a token for each byte, and
    one for each modality, such as `<point_cloud>`: ids from :data:`FIRST`, in their order.
    """
    folder.mkdir(parents=True, exist_ok=True)
    specials = (*tiny.SPECIALS[:FIRST], *(f"<{modality}>" for modality in modalities))
    tokens = tiny.vocabulary(specials)
    config = {
        "architectures": [architecture],
        "model_type": "llama",
        "dtype": "float32",
        **tiny.text_config(len(tokens)),
    }
    tiny.write_documents(folder, config)
    tiny.tokenizer(tokens, specials).save(str(folder / "tokenizer.json"))
    weights = tiny.text_weights(len(tokens), len(specials))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
