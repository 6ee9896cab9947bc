# SPDX-License-Identifier: Apache-2.0
"""What config.json of a TinyVlm says."""

from __future__ import annotations

from typing import Any

from transformers import AutoConfig, LlamaConfig, PreTrainedConfig

MODEL_TYPE = "tiny_vlm"


class TinyVlmConfig(PreTrainedConfig):
    """A Llama for the text, and how images are cut into patches."""

    model_type = MODEL_TYPE
    sub_configs = {"text_config": LlamaConfig}  # noqa: RUF012 - how transformers has it

    def __init__(
        self,
        text_config: dict[str, Any] | LlamaConfig | None = None,
        *,
        patch_size: int = 16,
        max_patches: int = 64,
        image_token_id: int = 3,
        row_token_id: int = 4,
        **others: Any,  # noqa: ANN401 - what every configuration may have
    ) -> None:
        """Take what config.json has.

        Args:
            text_config: of the language model.
            patch_size: pixels of a patch in each direction.
            max_patches: patches of an image, at most.
            image_token_id: stands for an image in a prompt, and then for each of its patches.
            row_token_id: ends each row of patches.
            others: as of every model.

        """
        self.text_config: LlamaConfig = (
            text_config
            if isinstance(text_config, LlamaConfig)
            else LlamaConfig(**(text_config or {}))
        )
        self.patch_size = patch_size
        self.max_patches = max_patches
        self.image_token_id = image_token_id
        self.row_token_id = row_token_id
        super().__init__(**others)


AutoConfig.register(MODEL_TYPE, TinyVlmConfig, exist_ok=True)
