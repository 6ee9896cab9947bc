# SPDX-License-Identifier: Apache-2.0
"""What the benchmark of IO processors asks servers for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support import ROOT

from conformance.engine.models import tiny_llama
from conformance.running.runner import Certification
from conformance.settings import Settings

if TYPE_CHECKING:
    from conformance.worker import Zygote

LABELS = ROOT / "reference_plugins" / "io_processor" / "labels.py"


@pytest.mark.usefixtures("shared_zygote")
def test_requests_are_made_of_the_profile(zygote: Zygote, tmp_path: Path) -> None:
    """Each of its data is sent through the plugin, and as the prompts that the plugin makes."""
    settings = Settings(targets=(f"{LABELS}@io/data",), report=tmp_path / "report")
    with Certification(settings, zygote=zygote) as certification:
        (plugin,) = certification.load()
    job = zygote.fork(
        "conformance.benchmark.pooling:serve",
        {"plugin": plugin, "settings": settings, "model": str(tiny_llama())},
        log=tmp_path / "job.log",
        directory=tmp_path,
        python_path=[str(ROOT)],
    )
    try:
        model, _ = job.ask("open", limit=120.0)
    finally:
        job.close()

    assert Path(model).name.startswith("tiny-classification")
