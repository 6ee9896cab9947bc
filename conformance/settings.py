# SPDX-License-Identifier: Apache-2.0
"""What a run is asked to do: the options that pytest and the command line share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

import attrs

from conformance.rules import Evidence, nearest

DEFAULT_SEED = 20_261_121


class UsageError(Exception):
    """The user asked for something that cannot be: one sentence, with the way out."""


class Budget(StrEnum):
    """How many examples each rule gets; pinned here and never inherited from a CI profile."""

    QUICK = "quick"
    STANDARD = "standard"
    DEEP = "deep"


class Device(StrEnum):
    """Where offline engines and servers run."""

    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


@attrs.frozen(kw_only=True)
class Settings:
    """The options of one run."""

    targets: tuple[str, ...]
    profile: str | None = None
    evidence: tuple[Evidence, ...] = (Evidence.SIMULATOR,)
    budget: Budget = Budget.STANDARD
    device: Device = Device.AUTO
    server_url: str | None = None
    report: Path = Path("reports/local")
    seed: int = DEFAULT_SEED
    baseline: Path | None = None  #: file of known failures
    directory: Path = attrs.field(factory=Path.cwd)  #: relative targets start here
    python_path: tuple[str, ...] = ()  #: ``sys.path`` of the caller, for the workers


def parse_evidence(text: str) -> tuple[Evidence, ...]:
    """Parse ``--evidence``.

    Raises:
        UsageError: a word is no kind of evidence.

    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    if "all" in words:
        return tuple(Evidence)
    if not words:
        raise UsageError(
            f"--evidence is empty: give any of {', '.join(Evidence)} (comma separated), or all."
        )
    for word in words:
        if word not in list(Evidence):
            raise UsageError(
                f"--evidence {word!r} is unknown: it takes any of {', '.join(Evidence)}, or all."
                + nearest(word, [*Evidence, "all"])
            )
    return tuple(evidence for evidence in Evidence if evidence in words)
