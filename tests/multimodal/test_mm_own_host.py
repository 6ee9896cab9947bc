# SPDX-License-Identifier: Apache-2.0
"""The server that shows whether options start without the plugin takes items, too."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.multimodal.processor.suite import SUITE

if TYPE_CHECKING:
    import pytest


def test_a_model_that_takes_images_stands_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Options may be about items, which the usual model refuses; its own needs torchvision."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    host = SUITE.own_host({})
    assert host is not None
    config = json.loads(Path(host.model, "config.json").read_text(encoding="utf-8"))
    assert config["architectures"] == ["LlavaForConditionalGeneration"]
    assert not host.of_plugin

    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert SUITE.own_host({}) is None
