# SPDX-License-Identifier: Apache-2.0
"""What vLLM does with a model before it serves anything: load its checkpoint, and run it once."""

from __future__ import annotations

from typing import Any

import torch
from vllm.config import ModelConfig, set_current_vllm_config
from vllm.forward_context import set_forward_context
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader
from vllm.model_executor.model_loader.utils import initialize_model
from vllm.utils.torch_utils import set_default_torch_dtype

from conformance.multimodal.processor.checkpoint import has_weights
from conformance.multimodal.processor.host import Host, calling
from conformance.watching.comparison import shortened
from conformance.watching.interruption import CONSTRUCTOR_LIMIT, limited

#: Tokens that a model is run with.
TOKENS = 8


def load(host: Host) -> None:
    """Make another model, and load the checkpoint into it, or nothing where it has no weights.

    Raises:
        Exception: the plugin raised, or vLLM finds that weights are missing.
        PluginHung: it did not return.

    """
    config = host.config
    compilation = config.compilation_config
    # Layers are known to the configuration by their names, and those of the first model are.
    known, compilation.static_forward_context = compilation.static_forward_context, {}
    try:
        device = torch.device(config.device_config.device)
        with (
            limited(CONSTRUCTOR_LIMIT),
            set_current_vllm_config(config),
            set_default_torch_dtype(config.model_config.dtype),
            device,
        ):
            model: Any = initialize_model(config)
            with calling("load_weights"):
                if has_weights(host.folder):
                    DefaultModelLoader(config.load_config).load_weights(model, config.model_config)
                elif hasattr(model, "load_weights"):
                    model.load_weights(iter(()))
    finally:
        compilation.static_forward_context = known


def run(host: Host) -> None:
    """Run the model once on embeddings, with no request in it, as vLLM does to profile it.

    Raises:
        Exception: the plugin raised.
        PluginHung: it did not return.

    """
    model: Any = host.model()
    config, given = host.config, host.config.model_config
    device = config.device_config.device
    rows = torch.zeros(TOKENS, given.get_inputs_embeds_size(), dtype=given.dtype, device=device)
    raw = getattr(model, "requires_raw_input_tokens", False)
    with (
        limited(),
        torch.inference_mode(),
        set_current_vllm_config(config),
        set_forward_context(None, config, num_tokens=TOKENS),
    ):
        with calling("forward"):
            hidden = model(
                input_ids=torch.zeros(TOKENS, dtype=torch.int64, device=device) if raw else None,
                positions=_positions(given).to(device),
                intermediate_tensors=None,
                inputs_embeds=rows,
            )
        if given.runner_type == "generate" and isinstance(hidden, torch.Tensor):
            with calling("compute_logits"):
                logits = model.compute_logits(hidden[-1:])
            if not isinstance(logits, torch.Tensor):  # the sampler of an engine would raise
                raise TypeError(f"compute_logits returned {shortened(logits)}")


def runs_alike(host: Host) -> bool:
    """Tell whether vLLM runs the model on embeddings of one prompt, and on nothing else."""
    return not (raw_alone(host) or host.encoder_decoder)


def raw_alone(host: Host) -> bool:
    """Tell whether the model runs on raw items: it has no embeddings, and no places for them."""
    return bool(getattr(host.cls, "supports_multimodal_raw_input_only", False))


def _positions(config: ModelConfig) -> torch.Tensor:
    """Return the positions of tokens, with a row for each of their dimensions."""
    positions = torch.arange(TOKENS)
    dimensions = 3 if config.uses_mrope else getattr(config, "uses_xdrope_dim", 0)
    return positions.expand(dimensions, TOKENS) if dimensions else positions
