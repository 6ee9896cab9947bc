# SPDX-License-Identifier: Apache-2.0
"""The program of a parser's counterexample: its player, and the case as literals."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from conformance.counterexample.assembly import played
from conformance.counterexample.source import Named, literal


def program(case: Mapping[str, Any]) -> str:
    """Return the source of a program that shows a failure.

    Args:
        case: a case document whose counterexample has a ``program``: which function of
            :mod:`conformance.parser.player` plays it (``is``), and with which arguments.

    """
    shown = dict(case["counterexample"]["program"])
    name = f"check_{shown.pop('is')}"
    given = [Named(f"{key}=", literal(value)) for key, value in shown.items()]
    player = Path(__file__).with_name("player.py").read_text(encoding="utf-8")
    return played(case, player, name, ["Plugin", *given], needs="vLLM and the plugin")
