# SPDX-License-Identifier: Apache-2.0
"""Plays a prompt with items against a model and its processor, and says what is wrong.

The program of a counterexample is the function of this module that plays its case, with what that
function uses.  A function returns what happened and what was expected, or None where it is as the
docstring says.  ``given`` is what :class:`Prompt` takes.
"""

import json
import tempfile
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import torch
from vllm.config import set_current_vllm_config
from vllm.distributed import ensure_model_parallel_initialized, init_distributed_environment
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.model_loader.utils import initialize_model
from vllm.model_executor.models.registry import ModelRegistry
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.multimodal.processing import ProcessorInputs, TimingContext
from vllm.multimodal.utils import group_and_batch_mm_kwargs
from vllm.utils.torch_utils import set_default_torch_dtype
from vllm.v1.worker.utils import sanity_check_mm_encoder_outputs

from conformance.multimodal.processor.forms import made

#: Rows may differ by this share of the largest number in them, by the order of adding up.
RELATIVE = 1e-3


def opened(plugin: Any, model: str, limits: dict[str, int]) -> Any:
    """Return vLLM's configuration for the class, on a checkpoint that a function writes."""
    folder = Path(model)
    if not folder.is_dir():
        folder = Path(tempfile.mkdtemp())
        resolve_name(model)(folder)
    document = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    for name in document.get("architectures") or [plugin.__name__]:
        ModelRegistry.register_model(name, plugin)
    counts: Any = limits
    return EngineArgs(
        model=str(folder), enforce_eager=True, dtype="float32", limit_mm_per_prompt=counts
    ).create_engine_config()


def process(config: Any, prompt: dict[str, Any], processor: Any = None) -> Any:
    """Process a prompt as the renderer does, with a new processor if none is given."""
    processor = processor or MULTIMODAL_REGISTRY.create_processor(config.model_config)
    data = {name: [made(name, text) for text in texts] for name, texts in prompt["items"].items()}
    inputs = ProcessorInputs(
        list(prompt["tokens"]),
        processor.info.parse_mm_data(data),
        hf_processor_mm_kwargs=dict(prompt["options"]),
    )
    found = processor.apply(inputs, TimingContext(enabled=False))
    found = found["encoder_prompt"] if found["type"] == "enc_dec" else found
    for name, ranges in found["mm_placeholders"].items():
        for text, one in zip(prompt["items"].get(name, ()), ranges, strict=False):
            print(f"{name} {text}: {one.get_num_embeds()} placeholders from {one.offset} on")
    return found


def random_model(config: Any) -> Any:
    """Return the model with random weights, made as vLLM's loaders do."""
    place = Path(tempfile.mkdtemp(), "rendezvous")
    draw = torch.Generator().manual_seed(1)
    device = config.device_config.device
    with (
        set_current_vllm_config(config),
        torch.device(device),
        set_default_torch_dtype(torch.float),
    ):
        init_distributed_environment(1, 0, f"file://{place}", 0, "gloo")
        ensure_model_parallel_initialized(1, 1)
        model = initialize_model(config)
        for parameter in model.parameters():
            drawn = torch.rand(parameter.shape, generator=draw, device="cpu")
            parameter.data.copy_(drawn * 0.6 - 0.3)
    return model.eval()


def encode(config: Any, model: Any, items: list[tuple[str, Any]]) -> list[Any]:
    """Return the rows of items, encoded as the model runner does."""
    order = sorted(range(len(items)), key=lambda index: items[index][0])
    groups = group_and_batch_mm_kwargs(
        [items[index] for index in order], device=config.device_config.device
    )
    rows: list[Any] = []
    with torch.inference_mode(), set_current_vllm_config(config):
        for _, count, batch in groups:
            found = model.embed_multimodal(**batch)
            sanity_check_mm_encoder_outputs(found, expected_num_items=count)
            rows += found
    return [rows[order.index(index)] for index in range(len(items))]


def parts(found: Any) -> list[tuple[str, Any, Any]]:
    """Return modality, placeholder and data of each item."""
    return [
        (name, found["mm_placeholders"][name][index], item)
        for name, items in found["mm_kwargs"].items()
        for index, item in enumerate(items)
    ]


def same(one: Any, other: Any) -> bool:
    """Tell whether two tensors are the same but for the order of adding up."""
    if not (isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)):
        return bool(one == other)
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    scale = max(float(one.float().abs().max()), 1e-6) if one.numel() else 1.0
    return bool(torch.allclose(one.float(), other.float(), rtol=0.0, atol=RELATIVE * scale))


def told_apart(one: Any, other: Any) -> str | None:
    """Say in which of its data an item is another one."""
    left, right = one.get_data(), other.get_data()
    for key in {**left, **right}:
        if key not in left or key not in right or not same(left[key], right[key]):
            return f"{key} is {shown(left.get(key))} instead of {shown(right.get(key))}"
    return None


def shown(value: Any) -> str:
    """Return a value in few words."""
    shape = getattr(value, "shape", None)
    return repr(value)[:60] if shape is None else f"{value.dtype} of shape {tuple(shape)}"


def each(prompt: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a prompt for each item, with it alone."""
    return [
        {**prompt, "items": {name: [text]}, "tokens": prompt["alone"][name]}
        for name, texts in prompt["items"].items()
        for text in texts
    ]


def check_processed(plugin: Any, model: str, limits: dict[str, int], prompt: Any) -> str | None:
    """The prompt is processed, with a range for each item."""
    try:
        found = process(opened(plugin, model, limits), prompt)
    except Exception as error:
        return f"raised {type(error).__name__}: {error}\nexpected: it is processed"
    for name, texts in prompt["items"].items():
        if len(found["mm_placeholders"].get(name, ())) != len(texts):
            return f"{found['mm_placeholders']}\nexpected {len(texts)} ranges for {name}"
    return None


def check_refused(plugin: Any, model: str, limits: dict[str, int], prompt: Any) -> str | None:
    """The prompt is processed, or refused as the client's error."""
    try:
        process(opened(plugin, model, limits), prompt)
    except (ValueError, TypeError) as error:
        print(f"refused: {error}")
    except Exception as error:
        return f"raised {type(error).__name__}: {error}\nexpected a ValueError or a TypeError"
    return None


def check_denied(plugin: Any, model: str, limits: dict[str, int], prompt: Any) -> str | None:
    """The prompt is refused as the client's error."""
    try:
        process(opened(plugin, model, limits), prompt)
    except (ValueError, TypeError):
        return None
    return "it is processed\nexpected a ValueError or a TypeError"


def check_rows(plugin: Any, model: str, limits: dict[str, int], prompt: Any) -> str | None:
    """Each item that is processed is encoded, into as many usable rows as it has placeholders."""
    config = opened(plugin, model, limits)
    try:
        found = parts(process(config, prompt))
    except (ValueError, TypeError) as error:
        print(f"refused: {error}")
        return None
    try:
        rows = encode(config, random_model(config), [(name, item) for name, _, item in found])
    except Exception as error:
        return f"encoding raised {type(error).__name__}: {error}\nexpected: rows of each item"
    width = config.model_config.get_inputs_embeds_size()
    for one, (name, place, _) in zip(rows, found, strict=True):
        wanted = place.get_num_embeds()
        if len(one) != wanted:
            return f"{name} has {len(one)} rows\nexpected {wanted}, as it has placeholders"
        if not one.is_floating_point() or one.shape[1] != width or not one.isfinite().all():
            return f"{name} has rows {shown(one)}\nexpected finite numbers, {width} in a row"
    return None


def check_alone(plugin: Any, model: str, limits: dict[str, int], prompt: Any) -> str | None:
    """Each item has among others the placeholders and data that it has alone."""
    config = opened(plugin, model, limits)
    together = parts(process(config, prompt))
    for (name, place, item), single in zip(together, each(prompt), strict=True):
        ((_, wanted, by_itself),) = parts(process(config, single))
        if place.get_num_embeds() != wanted.get_num_embeds():
            return (
                f"{name} has {place.get_num_embeds()} placeholders among others\n"
                f"expected {wanted.get_num_embeds()}, as alone"
            )
        if why := told_apart(item, by_itself):
            return f"among others {why}\nexpected the same data as alone"
    return None


def check_rows_alone(plugin: Any, model: str, limits: dict[str, int], prompt: Any) -> str | None:
    """Each item has in a batch the rows that it has alone."""
    config = opened(plugin, model, limits)
    encoder = random_model(config)
    items = [(name, item) for name, _, item in parts(process(config, prompt))]
    for rows, single in zip(encode(config, encoder, items), each(prompt), strict=True):
        alone = [(name, item) for name, _, item in parts(process(config, single))]
        (wanted,) = encode(config, encoder, alone)
        if not same(rows, wanted):
            return f"rows {shown(rows)} in a batch\nexpected those that it has alone"
    return None


def check_after(
    plugin: Any, model: str, limits: dict[str, int], prompt: Any, before: list[Any]
) -> str | None:
    """A processor that has processed others makes the same of the prompt as a new one."""
    config = opened(plugin, model, limits)
    worn = MULTIMODAL_REGISTRY.create_processor(config.model_config)
    for other in before:
        try:
            process(config, other, worn)
        except Exception as error:
            print(f"{other['items']} raised {type(error).__name__}: {error}")
    wanted = parts(process(config, prompt))
    try:
        found = parts(process(config, prompt, worn))
    except Exception as error:
        return f"raised {type(error).__name__}: {error}\nexpected: processed as by a new one"
    for (_, place, item), (_, one, first) in zip(found, wanted, strict=True):
        why = told_apart(item, first)
        if why or place.get_num_embeds() != one.get_num_embeds():
            return f"after others {why or place}\nexpected what a new processor makes"
    return None
