# SPDX-License-Identifier: Apache-2.0
"""What a client waits for in vain once is no fault of the plugin; what does so again is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from conformance.io_processor import clients, hostile
from conformance.io_processor.answers import Answer, Kind
from conformance.io_processor.clients import Client
from conformance.io_processor.hostile import Explored
from conformance.ledger import Ledger
from conformance.rules import Evidence

if TYPE_CHECKING:
    from collections.abc import Iterator

GOOD = Answer(Kind.ANSWERED, data={"embedding": [1.0]})
LATE = Answer(Kind.FAILED, status=0, error="ReadTimeout: timed out")
FAILED = Answer(Kind.FAILED, status=500, error="KeyError: 'text'")


class _Healthy:
    """Stands for a server that serves on."""

    def healthy(self) -> bool:
        return True

    def failure(self, within: float) -> str | None:
        del within
        return None


def _wrong(answer: Answer, _index: int) -> str | None:
    return None if answer.kind is Kind.ANSWERED else answer.describe()


@pytest.mark.parametrize(
    ("answers", "blamed"),
    [
        ([GOOD, GOOD], False),
        ([LATE, GOOD, GOOD, GOOD], False),
        ([LATE, GOOD, LATE, GOOD], True),
        ([LATE, LATE, GOOD, LATE], True),
        ([FAILED, GOOD], True),
    ],
    ids=["answered", "late once", "late twice", "never after", "failed"],
)
def test_a_late_answer_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, answers: list[Answer], blamed: bool
) -> None:
    """Where the server is healthy; an error needs no second one."""
    given: Iterator[Answer] = iter(answers)
    monkeypatch.setattr(clients, "over_rest", lambda *_: next(given))
    monkeypatch.setattr(clients, "as_written", lambda *_: GOOD)
    ledger = Ledger(Evidence.SERVER)
    hostile.in_server(
        ledger,
        _Healthy(),  # type: ignore[arg-type] # all that is asked of a server here
        Client("http://127.0.0.1:1", "tiny"),
        Explored(nearest=({"text": "a"},)),
        valid=[{"text": "b"}],
        mixed=_wrong,
    )

    assert (hostile.ENDURES in ledger.troubles) is blamed
    assert list(given) == []
