# SPDX-License-Identifier: Apache-2.0
"""The machine that figures were taken on: without it they mean nothing.  Workers only."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import psutil
import torch
import vllm


def environment(device: str) -> dict[str, Any]:
    """Return the versions and the machine, as documents have them."""
    return {
        "vllm": vllm.__version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "device": device,
        "gpu": torch.cuda.get_device_name() if device == "cuda" else None,
        "load": round(os.getloadavg()[0], 1),  #: processes that wanted a core when it began
    }


def _processor() -> str:
    """Return the name of the processor, as Linux has it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
