# SPDX-License-Identifier: Apache-2.0
"""The program of a processor's counterexample: its player, and the prompt as literals."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from conformance.counterexample.assembly import played
from conformance.counterexample.excerpts import joined
from conformance.counterexample.source import Named, literal

#: What the player is made of: how items are drawn, and what is done with them.
MODULES = ("forms.py", "player.py")


def program(case: Mapping[str, Any]) -> str:
    """Return the source of a program that shows a failure.

    Args:
        case: a case document whose counterexample has a ``program``: which function of
            :mod:`conformance.multimodal.processor.player` plays it (``is``), and with what.

    """
    shown = dict(case["counterexample"]["program"])
    name = f"check_{shown.pop('is')}"
    given = [Named(f"{key}=", literal(value)) for key, value in shown.items()]
    sources = [Path(__file__).with_name(file).read_text(encoding="utf-8") for file in MODULES]
    return played(case, joined(sources), name, ["Plugin", *given])
