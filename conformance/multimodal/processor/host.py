# SPDX-License-Identifier: Apache-2.0
"""What surrounds a processor in vLLM, made by vLLM's own code without an engine.

The model is registered under the name that its checkpoint gives it, its processor is made by the
registry, and prompts go through it as the renderer hands them over.  The model gets random
weights, and items are grouped, encoded and placed as the model runner does it.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs
import torch
from torch import nn
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed import ensure_model_parallel_initialized, init_distributed_environment
from vllm.distributed.parallel_state import model_parallel_is_initialized
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.model_loader.utils import (
    initialize_model,
    process_weights_after_loading,
)
from vllm.model_executor.models.registry import ModelRegistry
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.multimodal.cache import (
    LruKeyReplicatedReceiverCache,
    LruKeyReplicatedSenderCache,
    MultiModalProcessorOnlyCache,
)
from vllm.multimodal.cache.base import MultiModalCache
from vllm.multimodal.processing import BaseMultiModalProcessor, ProcessorInputs, TimingContext
from vllm.multimodal.utils import group_and_batch_mm_kwargs
from vllm.plugins import load_general_plugins
from vllm.utils.torch_utils import set_default_torch_dtype
from vllm.v1.worker.utils import sanity_check_mm_encoder_outputs

from conformance.engine.model_classes import inspect_models_here
from conformance.engine.models import has_tokenizer
from conformance.multimodal.processor.processed import Processed, read
from conformance.watching.interruption import CONSTRUCTOR_LIMIT, in_call, limited

#: Items of each modality that the operator allows in a prompt.
LIMIT = 4

#: Modalities that vLLM knows; a profile's own are added.
MODALITIES = ("image", "video", "audio")

#: Weights are drawn evenly from so much around zero, which keeps rows of different items apart.
WEIGHT = 0.3

_GIB = 1 << 30


class Exited(BaseException):
    """The plugin wanted to end the process; a ``BaseException`` like what it raised."""


def tokenless(model: type[Any], checkpoint: Path) -> bool:
    """Tell whether a processor needs no tokenizer, and the checkpoint has none."""
    processor = getattr(getattr(model, "_processor_factory", None), "processor", None)
    needs = getattr(processor, "requires_tokenizer", True)
    return not (needs or has_tokenizer(checkpoint))


@attrs.define(eq=False)
class Host:
    """A model class on one checkpoint."""

    cls: type[Any]
    config: VllmConfig
    _model: nn.Module | None = None

    @classmethod
    def open(
        cls,
        model: type[Any],
        checkpoint: Path,
        modalities: Sequence[str] = (),
        arguments: Mapping[str, Any] = MappingProxyType({}),
    ) -> Host:
        """Prepare for a model class.

        Args:
            model: the class with the processor.
            checkpoint: a folder with a configuration, and what the processor reads.
            modalities: those that vLLM has no names for.
            arguments: others of the engine.

        Raises:
            Exception: vLLM cannot read the checkpoint, or refuses the class.

        """
        inspect_models_here()
        # Once, and before the class: a plugin that is installed may register another by its name.
        load_general_plugins()
        document = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
        for name in document.get("architectures") or [model.__name__]:
            ModelRegistry.register_model(name, model)
        limits: Any = dict.fromkeys((*MODALITIES, *modalities), LIMIT)
        given: dict[str, Any] = {"enforce_eager": True, **arguments}
        config = EngineArgs(
            model=str(checkpoint), dtype="float32", limit_mm_per_prompt=limits, **given
        ).create_engine_config()
        return cls(model, config)

    @property
    def max_model_len(self) -> int:
        """Tokens that a prompt may have."""
        return int(self.config.model_config.max_model_len)

    @property
    def folder(self) -> Path:
        """The checkpoint."""
        return Path(self.config.model_config.model)

    @property
    def encoder_decoder(self) -> bool:
        """Tell whether items go into a prompt of the encoder's own, beside the text."""
        return bool(self.config.model_config.is_encoder_decoder)

    def processor(self) -> Any:  # noqa: ANN401 - the plugin's processor
        """Make a processor as the renderer does.

        Raises:
            Exception: the plugin raised.
            PluginHung: it did not return.

        """
        with limited(CONSTRUCTOR_LIMIT), calling("the processor's constructor"):
            return MULTIMODAL_REGISTRY.create_processor(self.config.model_config)

    def embeddings(self) -> AbstractContextManager[None]:
        """Let requests have rows in place of items within the block, as ``--enable-mm-embeds``."""
        return self._configured("enable_mm_embeds", value=True)

    def process(
        self,
        processor: Any,  # noqa: ANN401 - the plugin's processor
        prompt: list[int],
        data: Mapping[str, Any],
        options: Mapping[str, Any],
        cache: Any = None,  # noqa: ANN401 - one of vLLM's
        *,
        names: Mapping[str, Sequence[str]] | None = None,
    ) -> Processed:
        """Hand a prompt to a processor as the renderer does.

        Args:
            processor: the plugin's.
            prompt: its tokens.
            data: its items, by modality.
            options: ``mm_processor_kwargs``.
            cache: one of vLLM's.
            names: the ids that a client gives the items (``multi_modal_uuids``), by modality.

        Raises:
            Exception: the plugin raised, or vLLM refuses what it returned.
            PluginHung: it did not return.

        """
        items = self.parsed(processor, data)
        return self.applied(processor, prompt, items, options, cache, names=names)

    def applied(
        self,
        processor: Any,  # noqa: ANN401 - the plugin's processor
        prompt: list[int],
        items: Any,  # noqa: ANN401 - what the processor's parser made of them
        options: Mapping[str, Any],
        cache: Any = None,  # noqa: ANN401 - one of vLLM's
        *,
        names: Mapping[str, Sequence[str]] | None = None,
    ) -> Processed:
        """Do the same with items that are parsed."""
        with limited(), calling("the processor"):
            inputs = ProcessorInputs(
                prompt, items, names or {}, hf_processor_mm_kwargs=options, cache=cache
            )
            return read(processor.apply(inputs, TimingContext(enabled=False)))

    def parsed(self, processor: Any, data: Mapping[str, Any]) -> Any:  # noqa: ANN401 - items of vLLM
        """Return what a processor's parser makes of items.

        Raises:
            Exception: the plugin raised, or vLLM refuses the items.
            PluginHung: it did not return.

        """
        with limited(), calling("the processor"):
            return processor.info.parse_mm_data(data)

    def own_hashes(
        self,
        processor: Any,  # noqa: ANN401 - the plugin's processor
        data: Mapping[str, Any],
    ) -> Mapping[str, Sequence[str]]:
        """Return the hashes that vLLM itself has for items, whatever the plugin makes of them."""
        inputs = ProcessorInputs([], processor.info.parse_mm_data(data))
        return dict(BaseMultiModalProcessor._get_mm_hashes(processor, inputs))  # noqa: SLF001 - its own alone

    def call(
        self,
        processor: Any,  # noqa: ANN401 - the plugin's processor
        prompt: str | list[int],
        data: Mapping[str, Any],
        options: Mapping[str, Any],
    ) -> Processed:
        """Call a processor with a text or with tokens.

        Raises:
            Exception: the plugin raised, or vLLM refuses what it returned.

        """
        with limited(), calling("the processor"):
            items = processor.info.parse_mm_data(data)
            return read(processor(prompt, items, hf_processor_mm_kwargs=options))

    def dummy(self, processor: Any, counts: Mapping[str, int]) -> Processed:  # noqa: ANN401 - the model's processor
        """Return what vLLM profiles a model with.

        Raises:
            Exception: the plugin raised, or vLLM refuses what it returned.

        """
        with limited(), calling("the dummy inputs"):
            return read(processor.get_dummy_mm_inputs(counts))

    def tokenizer(self) -> Any:  # noqa: ANN401 - a tokenizer
        """Return the tokenizer of the checkpoint."""
        from vllm.tokenizers import cached_tokenizer_from_config

        return cached_tokenizer_from_config(self.config.model_config)

    def model(self) -> nn.Module:
        """Return the model, with random weights.

        Raises:
            Exception: the plugin raised.

        """
        if self._model is None:
            with (
                limited(CONSTRUCTOR_LIMIT),
                set_current_vllm_config(self.config),
                calling("the model's constructor"),
            ):
                _become_only_rank(self.config.device_config.device)
                self._model = _random_model(self.config)
        return self._model

    @property
    def encodes(self) -> bool:
        """Tell whether there is a model already."""
        return self._model is not None

    def encode(self, items: Sequence[tuple[str, Any]]) -> list[torch.Tensor]:
        """Return the rows of items, as the model runner has them made.

        Args:
            items: modality and ``MultiModalKwargsItem`` of each.

        Returns:
            Of each item a tensor of shape (rows, hidden size).

        Raises:
            Exception: the plugin raised, or vLLM refuses what it returned.

        """
        model: Any = self.model()
        # Stable, by modality: `_batch_mm_inputs_from_scheduler`.
        order = sorted(range(len(items)), key=lambda index: items[index][0])
        outputs: list[torch.Tensor] = []
        device = self.config.device_config.device
        groups = group_and_batch_mm_kwargs([items[index] for index in order], device=device)
        with limited(), torch.inference_mode(), set_current_vllm_config(self.config):
            for _, count, batch in groups:
                with calling("embed_multimodal"):
                    rows = model.embed_multimodal(**batch)
                sanity_check_mm_encoder_outputs(rows, expected_num_items=count)
                outputs += [one.cpu() for one in rows]
        found = dict(zip(order, outputs, strict=True))
        return [found[index] for index in range(len(items))]

    def embed(
        self, tokens: Sequence[int], rows: list[torch.Tensor] | None, mask: Sequence[bool]
    ) -> torch.Tensor:
        """Return the embeddings of a prompt, of shape (tokens, hidden size).

        Raises:
            Exception: the plugin raised, or vLLM refuses to place the rows.

        """
        model: Any = self.model()
        device = self.config.device_config.device
        ids = torch.tensor(tokens, device=device)
        with limited(), torch.inference_mode(), set_current_vllm_config(self.config):
            with calling("embed_input_ids"):
                found = model.embed_input_ids(
                    ids,
                    None if rows is None else [one.to(device) for one in rows],
                    is_multimodal=torch.tensor(mask, device=device),
                )
            return torch.as_tensor(found).cpu()

    def cache(self, capacity: int) -> Any:  # noqa: ANN401 - one of vLLM's
        """Return the cache of a front end that shares no memory with its engine."""
        with self._configured("mm_processor_cache_gb", capacity / _GIB):
            return MultiModalProcessorOnlyCache(self.config.model_config)

    def paired_caches(self, capacity: int) -> tuple[Any, Any]:
        """Return the caches of a front end and of its engine, which go hand in hand."""
        with self._configured("mm_processor_cache_gb", capacity / _GIB):
            config = self.config.model_config
            return LruKeyReplicatedSenderCache(config), LruKeyReplicatedReceiverCache(config)

    @contextmanager
    def _configured(self, name: str, value: object) -> Iterator[None]:
        """Give the configuration of items another value within the block."""
        config = self.config.model_config.get_multimodal_config()
        before = getattr(config, name)
        setattr(config, name, value)
        try:
            yield
        finally:
            setattr(config, name, before)


@contextmanager
def calling(what: str) -> Iterator[None]:
    """Say what of the plugin is being called, and let it end no process."""
    try:
        with in_call(what):
            yield
    except SystemExit as error:
        raise Exited(f"{what} ended the process: SystemExit({error.code})") from error


def size_of(item: object) -> int:
    """Return how much of a cache an item takes, in bytes."""
    return int(MultiModalCache.get_item_size(item))


def _random_model(config: VllmConfig) -> nn.Module:
    """Make the model as vLLM's loaders do, with weights large enough to tell items apart."""
    device, model_config = config.device_config.device, config.model_config
    generator = torch.Generator().manual_seed(1)
    with set_default_torch_dtype(model_config.dtype), torch.device(device):
        model = initialize_model(config)
        for parameter in model.parameters():
            if parameter.is_floating_point():
                drawn = torch.rand(parameter.shape, generator=generator, device="cpu")
                parameter.data.copy_((drawn * 2 * WEIGHT - WEIGHT).to(parameter.dtype))
        process_weights_after_loading(model, model_config, torch.device(device))
    return model.eval()


def _become_only_rank(device: torch.device) -> None:
    """Set up tensor parallelism with this process alone, once."""
    if model_parallel_is_initialized():
        return
    with tempfile.TemporaryDirectory(prefix="vllm-conformance-") as folder:
        init_distributed_environment(
            world_size=1,
            rank=0,
            distributed_init_method=f"file://{Path(folder, 'rendezvous')}",
            local_rank=0,
            backend="gloo" if device.type == "cpu" else "nccl",
        )
        ensure_model_parallel_initialized(1, 1)
