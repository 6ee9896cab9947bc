# SPDX-License-Identifier: Apache-2.0
"""A process that has imported vLLM with torchvision, which LLaVA and Qwen2-VL cannot do without."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
import torchvision_site
from support import ROOT

from conformance.engine.environment import host_environment
from conformance.running.zygotes import PRELOAD
from conformance.worker import Zygote

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def seeing_zygote(folder: Path) -> Iterator[Zygote]:
    """Start one, with its log in a folder; the test is skipped where there is no torchvision."""
    try:
        path = torchvision_site.python_path()
    except torchvision_site.NoTorchvision as error:
        pytest.skip(str(error))
    environment = host_environment(
        python_path=[ROOT, *path], extra={"VLLM_LOGGING_LEVEL": "WARNING"}
    )
    with Zygote(preload=PRELOAD, environment=environment, log=folder / "zygote.log") as process:
        process.wait_ready()
        yield process
