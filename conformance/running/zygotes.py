# SPDX-License-Identifier: Apache-2.0
"""Starting the processes that import vLLM, for one run or for many.

Little is imported here: the sooner vLLM's import begins, the sooner a run is done.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from conformance import foreign_build
from conformance.engine.environment import host_environment
from conformance.worker import Zygote, nursery

#: Imported once, before anything is known about the targets; so is what suites name.
PRELOAD = (
    "hypothesis",
    "conformance.foreign_build:prepare",  # before vLLM settles what it runs on
    "vllm.v1.worker.gpu_input_batch",
    "vllm.engine.arg_utils",
    "vllm.v1.executor",  # which every engine's configuration asks for
    "conformance.worker.jobs",
    "conformance.worker.plugins",
    "conformance.generations:early_modules",  # reads all metadata: once, and not in each job
    "conformance.search:look_around",
)


#: What hides devices from torch and Triton.  Not empty: vLLM takes that for a device to come.
_NO_DEVICES = {"CUDA_VISIBLE_DEVICES": "-1", "HIP_VISIBLE_DEVICES": "-1"}


def start_zygote(*, simulates: bool = False) -> Zygote:
    """Start the process that imports vLLM; returns at once.

    Args:
        simulates: whether it is to run on a CPU whatever devices there are.  CUDA, once begun in a
            process, does not survive a fork, and a simulator forks.

    """
    descriptor, log = tempfile.mkstemp(prefix="vllm-conformance-", suffix=".log")
    os.close(descriptor)
    environment = _environment()
    if simulates:
        environment |= {foreign_build.SIMULATES: "1", **_NO_DEVICES}
    return Zygote(preload=PRELOAD, environment=environment, log=Path(log))


def start_nursery(address: Path) -> subprocess.Popen[bytes]:
    """Start a process that saves runs below this one the import of vLLM; returns at once.

    Those runs find it that have its address in :data:`conformance.worker.nursery.ADDRESS`.
    """
    return nursery.start(address, PRELOAD, _environment())


def _environment() -> dict[str, str]:
    """Return the environment of the process that imports vLLM."""
    return host_environment(
        python_path=[str(Path(__file__).parents[2])],
        extra={"VLLM_LOGGING_LEVEL": "WARNING"},
    )


def no_device() -> str | None:
    """Say that vLLM knows no device here, asked in a process that imports nothing else of it."""
    program = "from conformance.worker import hindrances; print(hindrances.no_device() or '')"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.strip().splitlines()
    return lines[-1] if done.returncode == 0 and lines else None
