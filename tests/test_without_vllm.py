# SPDX-License-Identifier: Apache-2.0
"""What needs no vLLM works where there is none: in a process that cannot import it."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from support import ROOT
from user import CLI, PYTEST, environment

if TYPE_CHECKING:
    from pathlib import Path

#: What comes with vLLM, and is no dependency of the harness.
HIDDEN = ("numpy", "PIL", "safetensors", "tokenizers", "torch", "transformers", "triton", "vllm")

#: Runs a module as ``python -m`` does, where none of these can be found.
PROGRAM = """
import runpy, sys

class Hidden:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hidden)
module, *sys.argv[1:] = sys.argv[1:]
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


def _name(word: str) -> str:
    """Return what a test is called by, wherever the checkout lies."""
    return word.removeprefix(f"{ROOT}/")


#: A certificate that is kept here.
REPORT = str(ROOT / "reports/published/vllm-0.32.0/mineru_vl_utils-MinerULogitsProcessor")


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ((*CLI, "--help"), "Certify vLLM plugins"),
        ((*CLI, "bench", "--help"), "Usage:"),
        ((*CLI, "matrix", "--help"), "Usage:"),
        ((*CLI, "rules"), "LB-08"),
        ((*CLI, "explain", "LB-08"), "defective"),
        ((*CLI, "report", REPORT), "CONFORMANT"),
        ((*CLI, "verify", REPORT), "✓ verdict"),
        ((*PYTEST, "--help"), "--plugin-path"),
    ],
    ids=lambda value: " ".join(map(_name, value[1:3])) if isinstance(value, tuple) else "",
)
def test_reading_needs_no_vllm(command: tuple[str, ...], says: str, tmp_path: Path) -> None:
    """Rules, certificates and help are for whoever has no vLLM, and nothing that it brings."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(hidden=HIDDEN), *command],
        capture_output=True,
        check=False,
        cwd=tmp_path,
        env=environment(),
        text=True,
    )

    assert says in done.stdout, done.stderr
    assert "Traceback" not in done.stderr
