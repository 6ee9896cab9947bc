# SPDX-License-Identifier: Apache-2.0
"""The core knows no modality, and nothing here knows vLLM."""

from __future__ import annotations

import ast
import subprocess
import sys
from typing import TYPE_CHECKING

import attrs
import numpy as np
import pytest
from support import ROOT

from reference_plugins.modality import (
    Attachment,
    InputError,
    ModelConfig,
    MultiModalConfig,
    MultiModalProcessor,
    MultiModalRegistry,
    request_from_messages,
)
from reference_plugins.modality.fingerprints import fingerprint

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from reference_plugins.modality.arrays import Features

LIBRARY = ROOT / "reference_plugins" / "modality"
CORE = {
    "addresses",
    "arrays",
    "completion",
    "errors",
    "estimators",
    "fetching",
    "fingerprints",
    "interface",
    "messages",
    "placeholders",
    "processor",
    "registry",
    "sources",
}
MODALITIES = {"images", "video", "audio", "point_clouds"}


def imports(path: Path) -> Iterator[str]:
    """Yield the modules that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def test_the_core_imports_no_modality() -> None:
    """Nor anything that only modalities need."""
    for name in sorted(CORE):
        for module in imports(LIBRARY / f"{name}.py"):
            *package, last = module.split(".")
            if package == ["reference_plugins", "modality"]:
                assert last in CORE, f"{name} imports {last}"
            assert package[:1] not in (["PIL"], ["av"], ["soundfile"])


def test_nothing_imports_point_clouds() -> None:
    """The module can be taken away, and no other is changed or missed."""
    others = [path for path in LIBRARY.glob("*.py") if path.stem != "point_clouds"]

    assert len(others) > len(CORE)
    for path in others:
        assert not any("point_clouds" in module for module in imports(path))


def test_the_library_imports_neither_vllm_nor_torch() -> None:
    """Seen from a process of its own, after everything has been imported."""
    program = (
        "import sys, reference_plugins.modality, reference_plugins.modality.point_clouds\n"
        "print(sorted({'vllm', 'torch', 'transformers', 'av', 'soundfile'} & set(sys.modules)))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert run.stdout == "[]\n"


@attrs.frozen
class Reading:
    """A temperature."""

    celsius: float

    @property
    def content_hash(self) -> str:
        """The hash of the temperature."""
        return fingerprint(self.celsius)


@attrs.frozen
class Degrees:
    """One token for every ten degrees begun."""

    step: int = 10


@attrs.frozen
class ThermometerPlugin:
    """The modality `temperature`: everything that a new one takes."""

    modality: str = "temperature"
    part_types: tuple[str, ...] = ("temperature",)
    limits: float = 100.0

    def get_max_per_prompt(self, model_config: ModelConfig) -> int:
        """Ask model and deployment."""
        return model_config.get_max_per_prompt(self.modality)

    def parse_input(self, data: object) -> Reading:
        """Take a number of degrees."""
        if not isinstance(data, int | float):
            raise InputError(f"a temperature is a number (got {data!r})")
        return Reading(float(data))

    def validate(self, data: Sequence[Reading], limits: float) -> None:
        """Refuse what would burn."""
        for reading in data:
            if reading.celsius > limits:
                raise InputError(f"{reading.celsius:g} degrees is too hot")

    def estimate_tokens(self, data: Reading, model_config: ModelConfig) -> int:
        """Count the steps."""
        return int(data.celsius) // model_config.get_recipe(self.modality, Degrees).step + 1

    def preprocess(self, data: Reading, model_config: ModelConfig) -> Features:
        """Give a value for each step, in an array that can still be written to."""
        return {"steps": np.arange(self.estimate_tokens(data, model_config))}

    def count_tokens(self, features: Features, model_config: ModelConfig) -> int:  # noqa: ARG002
        """Count the values."""
        return len(features["steps"])


class Oven:
    """A model that feels temperatures."""

    @classmethod
    def get_multimodal_config(cls) -> MultiModalConfig:
        """Declare two temperatures."""
        return MultiModalConfig(
            ["temperature"],
            recipes={"temperature": Degrees()},
            placeholder_tokens={"temperature": 50},
            max_temperature_per_prompt=2,
        )


@pytest.fixture
def oven() -> MultiModalProcessor:
    """Return the pipeline of the oven, deployed for one item hotter than its plugin allows."""
    registry = MultiModalRegistry()
    registry.register_plugin(ThermometerPlugin())
    registry.register_model("oven", Oven)
    config = registry.get_model_config("oven", max_model_len=99, limits={"temperature": 250.0})
    return MultiModalProcessor(registry, config)


def test_a_modality_made_up_here_goes_through_the_pipeline(oven: MultiModalProcessor) -> None:
    """From chat messages to placeholders, with its own limits, recipe and hash."""
    message = {
        "content": [
            {"type": "temperature", "temperature": 34.5},
            {"type": "text", "text": "!"},
            {"type": "temperature", "temperature": 210},
        ]
    }
    request = request_from_messages(
        [message], oven.registry, oven.model_config, lambda text: [*text.encode()]
    )
    inputs = oven.process(request)

    assert request.attachments == (Attachment("temperature", 34.5), Attachment("temperature", 210))
    assert inputs.token_ids == (*[50] * 4, 33, *[50] * 22)
    assert [place.length for place in inputs.placeholders] == [4, 22]
    assert not inputs.items[0].features["steps"].flags.writeable


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ([20, 30, 40], "3 items of temperature, of which 2 may be"),
        (["warm"], r"temperature\[0\]: a temperature is a number"),
        ([20, 251], "251 degrees is too hot"),
    ],
)
def test_it_has_the_refusals_of_every_modality(
    oven: MultiModalProcessor, data: list[object], sentence: str
) -> None:
    """Count, form and limit, each said by the pipeline or by the plugin."""
    content = [{"type": "temperature", "temperature": each} for each in data]
    request = request_from_messages(
        [{"content": content}], oven.registry, oven.model_config, lambda _text: []
    )
    with pytest.raises(InputError, match=sentence):
        oven.process(request)


def test_the_page_about_the_library_is_true() -> None:
    """Its example runs, and its tree has every module."""
    page = (ROOT / "docs" / "modality-library.md").read_text(encoding="utf-8")
    example = page.split("```python\n")[1].split("```")[0]
    namespace: dict[str, object] = {}
    exec(example, namespace)  # noqa: S102  # our own page
    tree = page.split("## The tree")[1].split("The upper part")[0].split()

    assert "processor" in namespace
    for path in LIBRARY.glob("*.py"):
        assert path.stem == "__init__" or path.stem in tree
