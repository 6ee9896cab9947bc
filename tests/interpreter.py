# SPDX-License-Identifier: Apache-2.0
"""Triton's interpreter, for processes that are to run vLLM's own kernels on a CPU.

Triton weighs most of a gigabyte and changes what vLLM does in every engine of its environment, so
it is installed into a folder of its own and seen by no process that is not given the folder.
vLLM decides whether it has Triton when it is imported: a process that has imported vLLM without
it, and every fork of one, stays without.
"""

from __future__ import annotations

import os
from pathlib import Path

import attrs

#: Names the folder where Triton is installed.
VARIABLE = "VLLM_CONFORMANCE_INTERPRETER"

_ROOT = Path(__file__).parents[1]
_USUAL = _ROOT / ".tox" / "interpreter" / "site"

#: A distribution whose ``triton.backends`` entry point is :mod:`interpreted_backend`.
_SITE = Path(__file__).with_name("sites") / "interpreter"


@attrs.frozen
class Interpreter:
    """Triton in a folder of its own; found by :func:`find`."""

    folder: Path

    @property
    def python_path(self) -> list[str]:
        """What a new process needs on ``PYTHONPATH``; after the plugin's own folders."""
        return [str(_SITE), str(self.folder)]

    @property
    def environment(self) -> dict[str, str]:
        """The variables that a new process needs."""
        return {"TRITON_INTERPRET": "1"}


class NoInterpreter(Exception):
    """There is no interpreter: one sentence that says where it was looked for."""


def find() -> Interpreter:
    """Return the interpreter.

    It is in the folder that ``$VLLM_CONFORMANCE_INTERPRETER`` names, else in
    ``.tox/interpreter/site`` beside a checkout of this project.

    Raises:
        NoInterpreter: Triton is not installed there.

    """
    chosen = os.environ.get(VARIABLE)
    folder = Path(chosen).expanduser().absolute() if chosen else _USUAL
    if not (folder / "triton" / "__init__.py").is_file():
        where = f"${VARIABLE} names" if chosen else f"${VARIABLE} names no folder, and there is"
        raise NoInterpreter(f"{where} no Triton in {folder}")
    return Interpreter(folder)
