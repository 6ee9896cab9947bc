# SPDX-License-Identifier: Apache-2.0
"""What a pooling engine seems to compute: random numbers that depend on the prompt alone.

The simulator of IO processors has the same ones as the programs of counterexamples.
"""

import dataclasses
import hashlib
import runpy
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from vllm.outputs import PoolingOutput, PoolingRequestOutput


class PoolerFailed(Exception):
    """The author's ``pooled.py`` raised: nothing follows for the plugin."""


@cache
def own_pooler(model: str) -> Callable[[Any, Any], Any] | None:
    """Return ``pooled`` of the ``pooled.py`` in a model's folder, where its author wrote one."""
    path = Path(model) / "pooled.py"
    return runpy.run_path(str(path))["pooled"] if path.is_file() else None


def output_of(name: str, prompt: Any, params: Any, config: Any) -> PoolingRequestOutput:
    """Return what an engine gives for a rendered prompt.

    Its shape is that of the model's pooler for the task: ``[size]``, or ``[tokens, size]``; what a
    pooler of the model's own returns, ``pooled(prompt, params)`` of its folder says.
    """
    tokens = list(prompt.get("prompt_token_ids") or ())
    if (pooled := own_pooler(str(config.model_config.model))) is not None:
        try:
            given = PoolingOutput(torch.as_tensor(pooled(prompt, params)))
        except Exception as error:
            raise PoolerFailed(f"pooled.py raised {type(error).__name__}: {error}") from error
        return PoolingRequestOutput(name, given, tokens, num_cached_tokens=0, finished=True)
    activated = params.use_activation is not False  # None is the pooler's own choice
    scores = "classify" in (params.task or "")
    size = params.dimensions or config.model_config.get_hidden_size()
    if scores:
        size = getattr(config.model_config.hf_config, "num_labels", 3)
    shape = (size,) if params.task in ("embed", "classify") else (max(1, len(tokens)), size)
    digest = hashlib.blake2b(repr(tokens).encode(), digest_size=7)
    for part in (prompt.get("prompt_embeds"), prompt.get("mm_hashes")):
        if isinstance(part, torch.Tensor):
            digest.update(part.detach().cpu().float().numpy().tobytes())
        elif part is not None:
            digest.update(repr(part).encode())
    digest.update(repr((params.task, activated, params.dimensions)).encode())
    generator = torch.Generator().manual_seed(int.from_bytes(digest.digest(), "big"))
    data = torch.randn(shape, generator=generator)
    if activated and params.task != "plugin":
        data = data.softmax(-1) if scores else torch.nn.functional.normalize(data, dim=-1)
    given = PoolingOutput(data)
    return PoolingRequestOutput(name, given, tokens, num_cached_tokens=0, finished=True)


class Noted(PoolingRequestOutput):
    """An output that calls ``read`` whenever its data are looked at."""

    def __init__(self, output: PoolingRequestOutput, read: Callable[[], None]) -> None:
        self.read: Callable[[], None] = lambda: None
        name, tokens, cached = output.request_id, output.prompt_token_ids, output.num_cached_tokens
        super().__init__(
            name, output.outputs, tokens, num_cached_tokens=cached, finished=output.finished
        )
        self.read = read

    @property
    def outputs(self) -> Any:
        """The pooled data."""
        self.read()
        return self.kept

    @outputs.setter
    def outputs(self, value: Any) -> None:
        self.kept = value


def settings_of(config: Any) -> dict[str, str]:
    """Return the plain values of an engine's configuration: its model's, and all other parts'.

    What is compiled is left out: layers of a model write down there that they exist.
    """
    model = config.model_config
    parts = [("", vars(config)), ("", vars(model)), ("hf_config.", model.hf_config.to_dict())]
    for name, part in (*vars(config).items(), *vars(model).items()):
        if dataclasses.is_dataclass(part) and name not in ("model_config", "compilation_config"):
            parts.append((f"{name}.", vars(part)))
    kinds = (str, int, float, dict, list, tuple, type(None))
    return {
        prefix + name: repr(value)
        for prefix, values in parts
        for name, value in values.items()
        if isinstance(value, kinds) and not name.startswith("_")
    }
