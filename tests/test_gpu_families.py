# SPDX-License-Identifier: Apache-2.0
"""Plugins of the other interfaces in engines and servers on a CUDA GPU."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
import specimens
from support import certify

from conformance.rules import Evidence
from conformance.settings import Device
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from support import Specimen

    from conformance.worker import Zygote

#: One of each interface; a parser's engine says what it is told, on every device.
PLUGINS = (
    specimens.io_references()[0],
    specimens.hook_references()[0],
    specimens.processor_references()[0],
    specimens.modality_references()[0],
    specimens.parser_references()[0],
)


@pytest.mark.gpu
@pytest.mark.engine
@pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no CUDA GPU on this machine")
@pytest.mark.parametrize("specimen", PLUGINS, ids=lambda each: each.label)
def test_reference_passes_on_a_gpu(zygote: Zygote, specimen: Specimen, tmp_path: Path) -> None:
    """A reference plugin passes whatever live evidence its interface has."""
    live = (Evidence.OFFLINE, Evidence.SERVER)
    results = certify(zygote, specimen, tmp_path, evidence=live, device=Device.CUDA)

    good = (Verdict.PASS, Verdict.NOT_APPLICABLE)
    assert not {rule: r.message for rule, r in results.items() if r.verdict not in good}
