# SPDX-License-Identifier: Apache-2.0
"""What vLLM asks about the inputs of a bridged model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import attrs
import numpy as np
import torch
from transformers import BatchFeature
from vllm.multimodal.inputs import MultiModalFieldConfig
from vllm.multimodal.parse import MultiModalDataParser, ProcessorBatchItems
from vllm.multimodal.processing import (
    BaseDummyInputsBuilder,
    BaseMultiModalProcessor,
    BaseProcessingInfo,
    PromptReplacement,
    PromptUpdateDetails,
)

from reference_plugins.modality.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from vllm.config.multimodal import MultiModalDummyOptions
    from vllm.inputs import MultiModalDataDict
    from vllm.multimodal.inputs import MultiModalKwargsItems
    from vllm.multimodal.parse import ModalityDataItems, MultiModalDataItems
    from vllm.multimodal.processing import PromptUpdate

    from reference_plugins.bridge.serving import Serving
    from reference_plugins.modality.interface import Item, ModelConfig

#: The name of an array is that of its modality and its own; so is that of the number of tokens,
#: which no encoder can have for an argument.
JOIN, TOKENS = "/", "/tokens"


@attrs.frozen(eq=False)
class Parsed:
    """An item that its plugin has parsed."""

    item: Item


class ParsedItems(ProcessorBatchItems[Any]):
    """The items of one modality, of which those that a cache should have are None."""

    def get_item_for_hash(self, index: int) -> Any:  # noqa: ANN401 - as vLLM has it
        """Return the hash that the plugin gives an item: by it vLLM finds what it has already."""
        parsed = self.data[index]
        return parsed and parsed.item.content_hash

    def get_processor_data(self) -> Mapping[str, object]:
        """Return the items by modality."""
        return {self.modality: self.get_all()}


class Parser(MultiModalDataParser):
    """Has each item parsed by the plugin of its modality."""

    def __init__(self, info: BridgedInfo) -> None:
        """Take what the model declares."""
        super().__init__()
        self.info = info

    def _get_subparsers(self) -> Mapping[str, Callable[[Any], ModalityDataItems[Any, Any] | None]]:
        """Return a function for each modality that the model declares."""

        def parsing(modality: str) -> Callable[[Any], ModalityDataItems[Any, Any] | None]:
            return lambda data: self._parsed(modality, data)

        return {modality: parsing(modality) for modality in self.info.serving.modalities}

    def _parsed(self, modality: str, data: Any) -> ParsedItems | None:  # noqa: ANN401 - clients'
        """Parse items: a list holds items, and anything else is one item."""
        if data is None:
            return None
        items = data if isinstance(data, list) else [data]
        self.info.validate_num_items(modality, len(items))  # before anything is fetched
        # vLLM hands in what was parsed once more where the cache has only some of it.
        new = [at for at, item in enumerate(items) if item is not None and not _is_parsed(item)]
        made = self.info.serving.parse(modality, [items[at] for at in new], self.info.config)
        found = list(items)
        for at, item in zip(new, made, strict=True):
            found[at] = Parsed(item)
        return ParsedItems(found, modality)


def _is_parsed(item: object) -> bool:
    return isinstance(item, Parsed)


class BridgedInfo(BaseProcessingInfo):
    """Which items the model takes."""

    serving: ClassVar[Serving]

    @property
    def config(self) -> ModelConfig:
        """The model as it is deployed, as plugins know it."""
        limits = self.ctx.get_mm_config().limit_per_prompt
        return self.serving.config(
            self.ctx.model_config.max_model_len,
            {modality: options.count for modality, options in limits.items()},
        )

    def get_data_parser(self) -> MultiModalDataParser:
        """Return what parses the items of a request."""
        return Parser(self)

    def get_supported_mm_limits(self) -> Mapping[str, int | None]:
        """Return how many items of each modality a prompt may have, as its plugin says.

        Raises:
            ValueError: a placeholder is no token of this checkpoint.

        """
        serving, config = self.serving, self.config
        vocabulary = self.ctx.model_config.get_vocab_size()
        for modality, token in serving.placeholder_tokens.items():
            if not 0 <= token < vocabulary:
                raise ValueError(
                    f"the placeholder token of {modality} is {token}, and the vocabulary of this "
                    f"checkpoint has {vocabulary} tokens"
                )
        return {
            modality: serving.plugin(modality).get_max_per_prompt(config)
            for modality in serving.modalities
        }


class BridgedDummyInputs(BaseDummyInputsBuilder[BridgedInfo]):
    """Inputs as large as they get, for the run that measures memory."""

    def get_dummy_text(self, mm_counts: Mapping[str, int]) -> str:
        """Return a prompt for so many items of each modality."""
        tokenizer: Any = self.info.get_tokenizer()
        tokens = self.info.serving.placeholder_tokens
        return "".join(
            tokenizer.convert_ids_to_tokens(tokens[modality]) * count
            for modality, count in mm_counts.items()
        )

    def get_dummy_mm_data(
        self,
        seq_len: int,
        mm_counts: Mapping[str, int],
        mm_options: MultiModalDummyOptions,
    ) -> MultiModalDataDict:
        """Return the largest items, as the model has them."""
        del seq_len, mm_options
        model = self.info.serving.model
        return {
            modality: [model.get_dummy_item(modality)] * count
            for modality, count in mm_counts.items()
        }


class BridgedProcessor(BaseMultiModalProcessor[BridgedInfo]):
    """Gives the model the arrays of items, and puts placeholders where the items are."""

    def _call_hf_processor(
        self, hf_data: Mapping[str, object], hf_kwargs: Mapping[str, object]
    ) -> BatchFeature:
        """Return the arrays of all items, each item's by itself.

        Raises:
            InputError: an item is broken, or the request has options, which no plugin takes.

        """
        if hf_kwargs:
            raise InputError(f"{self.info.serving.name} takes no option {', '.join(hf_kwargs)}")
        config = self.info.config
        found: dict[str, list[torch.Tensor]] = {}
        for modality, items in hf_data.items():
            assert isinstance(items, list)
            for parsed in items:
                processed = self.info.serving.process(modality, parsed.item, config)
                found.setdefault(modality + TOKENS, []).append(torch.tensor(processed.tokens))
                for name, array in processed.features.items():
                    tensor = torch.from_numpy(np.array(array))  # plugins' arrays are read-only
                    found.setdefault(modality + JOIN + name, []).append(tensor)
        return BatchFeature(found)

    def _get_mm_fields_config(
        self, hf_inputs: BatchFeature, hf_processor_mm_kwargs: Mapping[str, object]
    ) -> Mapping[str, MultiModalFieldConfig]:
        """Say that every item has tensors of its own."""
        del hf_processor_mm_kwargs
        return {
            name: MultiModalFieldConfig.batched(name.partition(JOIN)[0], keep_on_cpu=True)
            for name in hf_inputs
        }

    def _get_prompt_updates(
        self,
        mm_items: MultiModalDataItems,
        hf_processor_mm_kwargs: Mapping[str, object],
        out_mm_kwargs: MultiModalKwargsItems,
    ) -> Sequence[PromptUpdate]:
        """Replace the token of an item by as many as the plugin counted."""
        del hf_processor_mm_kwargs

        def update(modality: str, token: int) -> PromptReplacement:
            def replacement(item: int) -> PromptUpdateDetails:
                data: Any = out_mm_kwargs[modality][item][modality + TOKENS].data
                return PromptUpdateDetails.select_token_id([token] * int(data), token)

            return PromptReplacement(modality=modality, target=[token], replacement=replacement)

        tokens = self.info.serving.placeholder_tokens
        return [update(modality, tokens[modality]) for modality in mm_items]
