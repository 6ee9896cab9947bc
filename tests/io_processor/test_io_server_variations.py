# SPDX-License-Identifier: Apache-2.0
"""What a server does with variations of the profile's requests, which the harness made."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from conformance.io_processor import clients, server
from conformance.io_processor.answers import Answer, Kind
from conformance.io_processor.clients import Client
from conformance.io_processor.stock import Stock
from conformance.ledger import Ledger
from conformance.rules import Evidence
from conformance.verdict import Verdict

LONG = "a path that is so long that nothing else fits into what a message shows of a request"
BANDS = [{"path": f"{LONG} {name}", "bands": bands} for name, bands in (("x", [3]), ("y", [0, 1]))]
VARIED = {**BANDS[1], "bands": [0, 1, 0, 1]}

ANSWERED = Answer(Kind.ANSWERED, {"mean": 0.5})


def _asked(monkeypatch: pytest.MonkeyPatch, ended: Answer, death: str | None) -> Ledger:
    """Ask a server that answers everything but the variation, of which it may end."""

    def answer(_: Client, data: object) -> Answer:
        return ended if data == VARIED else ANSWERED

    monkeypatch.setattr(clients, "through_sdk", answer)
    monkeypatch.setattr(clients, "over_rest", answer)
    known = Stock((*BANDS, VARIED), (), "profile.toml", given=2, prompts=(1, 1, 1))
    ledger = Ledger(Evidence.SERVER)
    trial: Any = SimpleNamespace(
        bench=SimpleNamespace(stock=known, hidden=frozenset()),
        ledger=ledger,
        death=lambda: death,
        _valid=known.valid,
        _alone=[],
        _different=lambda got, wanted: None if got == wanted else "something else",
    )
    server.Trial._answered(trial, Client("http://localhost", "tiny"))
    assert death or len(trial._alone) == len(known.valid)
    return ledger


def test_a_variation_that_ends_the_engine_is_no_valid_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is one that a client can send; what is its own is told first."""
    ledger = _asked(monkeypatch, Answer(Kind.FAILED, status=500, error="engine"), "vLLM ended")

    found = ledger.result("IO-38")
    assert found.verdict is Verdict.FAIL
    assert str(found.message).startswith(
        'server: a variation of valid[1], {"bands": [0, 1, 0, 1]}, ended with HTTP 500 (engine), '
        "and vLLM ended; curl"
    )
    assert ledger.result("IO-37").verdict is Verdict.NOT_VERIFIED


def test_a_variation_that_a_real_model_refuses_is_no_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the requests of the profile are known to be valid."""
    ledger = _asked(monkeypatch, Answer(Kind.REFUSED, status=400, error="channels"), None)

    found = ledger.result("IO-07")
    assert found.verdict is Verdict.PASS, found.message
    assert ledger.blocked is None
