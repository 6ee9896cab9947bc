# SPDX-License-Identifier: Apache-2.0
"""From plugins of a modality to a model that vLLM serves: one file adds a modality to an engine.

    class PointCloudLlama:
        @classmethod
        def get_multimodal_config(cls):
            return MultiModalConfig(
                ["point_cloud"],
                recipes={"point_cloud": PointGroups()},
                placeholder_tokens={"point_cloud": 3},
                max_point_cloud_per_prompt=4,
            )

        @classmethod
        def get_dummy_item(cls, modality):
            return np.zeros((2048, 3))

        def get_multimodal_embeddings(self, points):
            return groups_of(points)  # [tokens, any width]

    def install():  # an entry point of the group `vllm.general_plugins`
        register("PointCloudLlama", [PointCloudPlugin()], PointCloudLlama)

From then on vLLM serves any text checkpoint whose config.json names the architecture
`PointCloudLlama`:

    LLM(model, tokenizer_mode="modality").generate(
        {"prompt": "<point_cloud> is a", "multi_modal_data": {"point_cloud": [points]}}
    )

and `vllm serve ... --tokenizer-mode modality` takes chat parts of the plugin's own types, such as
`{"type": "point_cloud_url", "point_cloud_url": {"url": "data:..."}}`.
Written for vLLM 0.31 and later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reference_plugins.modality import MultiModalPlugin

__all__ = ["register"]

#: The value of ``--tokenizer-mode`` with which chats may have parts of a plugin's own types.
MODE = "modality"


def register(
    architecture: str,
    plugins: Sequence[MultiModalPlugin[Any, Any]],
    model: type[Any],
    *,
    text: str = "LlamaForCausalLM",
) -> None:
    """Make a model with modalities known to vLLM; any number of times, in each of its processes.

    Args:
        architecture: what config.json calls the model.
        plugins: one for each modality that the model declares; those of the article will do.
        model: declares modalities in ``get_multimodal_config()``, gives the largest item of one
            in ``get_dummy_item(modality)``, and encodes the arrays of one item in
            ``get_multimodal_embeddings(**features)``.
        text: the architecture of vLLM that reads and writes the text.

    Raises:
        TypeError: the model has no dummy item.
        ValueError: the model declares a modality that no plugin serves.

    """
    from vllm import ModelRegistry

    from reference_plugins.bridge import chat
    from reference_plugins.bridge.model import bridged
    from reference_plugins.bridge.serving import Serving

    serving = Serving.of(architecture, plugins, model, text=text)
    ModelRegistry.register_model(architecture, bridged(serving))
    chat.register(MODE)
