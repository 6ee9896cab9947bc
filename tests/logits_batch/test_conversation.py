# SPDX-License-Identifier: Apache-2.0
"""What is asked of engines and servers, and what their answers say."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from conformance.logits.conversation import body_of
from conformance.logits.ledger import Ledger
from conformance.logits_batch.live import ROLES
from conformance.rules import Evidence
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from conformance.worker import Zygote

DECLARED = SimpleNamespace(on=({}, {}), off=({},), invalid=(), declared=True)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, True, [1, math.inf], [[1]]])
def test_what_does_not_survive_json_is_not_sent(value: object) -> None:
    """Infinities, NaN, booleans and nested lists are kept from servers."""
    assert body_of({"extra_args": {"key": value}}) is None


def test_infinite_fields_are_not_sent() -> None:
    """A field of the parameters that JSON has no word for is kept from servers, too."""
    assert body_of({"temperature": math.inf}) is None
    assert body_of({"temperature": 0.5, "extra_args": {"key": [1, 2.5, "x"]}}) == {
        "temperature": 0.5,
        "vllm_xargs": {"key": [1, 2.5, "x"]},
    }


@pytest.mark.parametrize(
    ("acted", "verdict"), [((0, 1), Verdict.PASS), ((1,), Verdict.PASS), ((), Verdict.NOT_VERIFIED)]
)
def test_live_effects_are_not_demanded_of_every_parameter(
    acted: tuple[int, ...], verdict: Verdict
) -> None:
    """An effect that the few requests of an engine do not bring about is no fault."""
    ledger = Ledger(ROLES, Evidence.OFFLINE, cast("Any", DECLARED))
    ledger.acted |= {("on", index) for index in acted}

    assert ledger.result("LB-05", 0.0).verdict is verdict


@pytest.mark.parametrize(("on", "off"), [(1, 0), (1, 1), (2, 3), (4, 5), (5, 1), (9, 2)])
def test_every_parameter_set_is_asked_for(
    zygote: Zygote, tmp_path: Path, on: int, off: int
) -> None:
    """However many parameter sets a profile has, the crowd has a request for each."""
    job = zygote.fork(
        "workload_job:asked",
        {"on": on, "off": off},
        log=tmp_path / "job.log",
        directory=tmp_path,
        python_path=[str(Path(__file__).parent)],
    )
    asked = job.ask("asked", limit=60)
    job.close()

    assert asked == on + off
