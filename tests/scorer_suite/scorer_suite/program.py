# SPDX-License-Identifier: Apache-2.0
"""The stand-alone program of a failure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from conformance.counterexample.assembly import assembled

if TYPE_CHECKING:
    from collections.abc import Mapping

_BODY = """\
TEXT = {text!r}

score = Plugin().score_text(TEXT)
if not (isinstance(score, int | float) and 0 <= score <= 1):
    print(f"FAILS: score_text({{TEXT!r}}) returned {{score!r}}; expected a number from 0 to 1")
    sys.exit(1)
print("OK: the score is a number from 0 to 1")
"""


def program(case: Mapping[str, Any]) -> str:
    """Return the source of a program that shows a failure."""
    text = case["counterexample"]["program"]["text"]
    return assembled(case, (), _BODY.format(text=text), needs="the plugin")
