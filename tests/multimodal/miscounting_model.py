# SPDX-License-Identifier: Apache-2.0
"""The reference model with processors that count wrongly, for what engines make of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.multimodal.processing import PromptReplacement, PromptUpdateDetails

from reference_plugins.tiny_vlm.model import TinyVlm
from reference_plugins.tiny_vlm.processing import (
    TinyVlmDummyInputs,
    TinyVlmInfo,
    TinyVlmProcessor,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

#: Images of more patches are counted wrongly; the one that vLLM warms up with is not.
MOST = 12


class _Miscounting(TinyVlmProcessor):
    """Gives images of middling size some placeholders more or fewer."""

    surplus = 0

    def _get_prompt_updates(
        self,
        mm_items: Any,  # noqa: ANN401 - items of vLLM
        hf_processor_mm_kwargs: Mapping[str, object],
        out_mm_kwargs: Any,  # noqa: ANN401 - items of vLLM
    ) -> Sequence[Any]:
        del mm_items, hf_processor_mm_kwargs
        config = self.info.get_hf_config()
        patch, end = config.image_token_id, config.row_token_id

        def replacement(item: int) -> PromptUpdateDetails:
            rows, columns = out_mm_kwargs["image"][item]["image_grids"].data.tolist()
            tokens = ([patch] * columns + [end]) * rows
            if MOST < rows * columns < config.max_patches:
                tokens = [patch] * self.surplus + tokens[max(0, -self.surplus) :]
            return PromptUpdateDetails.select_token_id(tokens, patch)

        return [PromptReplacement(modality="image", target=[patch], replacement=replacement)]


class _OneMore(_Miscounting):
    surplus = 1


class _OneFewer(_Miscounting):
    surplus = -1


@MULTIMODAL_REGISTRY.register_processor(_OneMore, info=TinyVlmInfo, dummy_inputs=TinyVlmDummyInputs)
class TooManyPlaceholders(TinyVlm):
    """Has a row too few for some images."""


@MULTIMODAL_REGISTRY.register_processor(
    _OneFewer, info=TinyVlmInfo, dummy_inputs=TinyVlmDummyInputs
)
class TooFewPlaceholders(TinyVlm):
    """Has a row too many for some images."""


class _Keeping(TinyVlmProcessor):
    """Keeps the options of a request for all that come after it."""

    kept: ClassVar[dict[str, object]] = {}

    def _call_hf_processor(
        self, hf_data: Mapping[str, object], hf_kwargs: Mapping[str, object]
    ) -> Any:  # noqa: ANN401 - of transformers
        self.kept.update(hf_kwargs)
        return super()._call_hf_processor(hf_data, self.kept)


@MULTIMODAL_REGISTRY.register_processor(_Keeping, info=TinyVlmInfo, dummy_inputs=TinyVlmDummyInputs)
class KeepsOptions(TinyVlm):
    """Makes of an image what an option of another request says."""


class OneRow(TinyVlm):
    """Pools the rows of an image into one."""

    def embed_multimodal(self, **kwargs: object) -> list[torch.Tensor]:
        """Return one row for each image."""
        return [rows.mean(0, keepdim=True) for rows in super().embed_multimodal(**kwargs)]


class Neighbours(TinyVlm):
    """Mixes each image's rows with those of the image before it."""

    def embed_multimodal(self, **kwargs: object) -> list[torch.Tensor]:
        """Return rows that depend on who is beside."""
        found = list(super().embed_multimodal(**kwargs))
        return [rows + sum(one.mean() for one in found[:at]) for at, rows in enumerate(found)]
