# SPDX-License-Identifier: Apache-2.0
"""One run in engines or on a server answers for every rule, and what it started ends with it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar, cast

import attrs
import pytest
import vllm

from conformance.engine.server import ExternalServer, HostTrouble, Server, ServerFailed
from conformance.live_trial import LiveTrial
from conformance.rules import Evidence
from conformance.settings import Device
from conformance.verdict import Verdict

OPENING = SimpleNamespace(
    evidence=Evidence.SERVER, settings=SimpleNamespace(device=Device.CPU), progress=lambda _: None
)


@attrs.define(eq=False)
class Trial(LiveTrial):
    """A trial of nothing."""

    host: ClassVar[str] = "GET /nothing"

    why: str | None = None
    runs: int = 0
    ended: list[str] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        """Start two things."""
        for name in ("first", "second"):
            self.ends.callback(self.ended.append, name)
        self.ledger.blocked = self.why

    def run(self) -> None:
        """See one rule hold and another one broken."""
        self.runs += 1
        self.ledger.saw("XX-01", 3)
        self.ledger.remarks["XX-01"] = "there is more"
        self.ledger.advise("XX-02", "it is bad")
        self.ledger.out_of_reach["XX-03"] = "server: on[0] cannot be sent over HTTP"

    def document(self) -> dict[str, Any]:
        """Return what the plugin is tried with."""
        return {"valid": 1}


def _trial(why: str | None = None) -> Trial:
    return Trial(cast("Any", OPENING), why)


def test_everything_happens_once() -> None:
    """The first rule that is asked for has everything happen, and is charged with the time."""
    trial = _trial()
    assert trial.runs == 0

    found = {rule: trial.check(rule) for rule in ("XX-01", "XX-02", "XX-03", "XX-04")}

    assert trial.runs == 1
    assert {rule: result.verdict for rule, result in found.items()} == {
        "XX-01": Verdict.PASS,
        "XX-02": Verdict.FAIL,
        "XX-03": Verdict.NOT_VERIFIED,
        "XX-04": Verdict.NOT_VERIFIED,
    }
    assert found["XX-01"].message == "there is more"
    assert found["XX-03"].out_of_reach
    assert not found["XX-04"].out_of_reach
    assert found["XX-01"].seconds > 0 == found["XX-02"].seconds


def test_nothing_happens_where_something_stands_in_the_way() -> None:
    """What keeps every rule from being seen is said of each."""
    trial = _trial("nobody knows what the plugin takes")

    assert trial.check("XX-01").message == "nobody knows what the plugin takes"
    assert trial.runs == 0


def test_what_was_started_ends_last_first() -> None:
    """Closing a trial ends everything, once."""
    trial = _trial()
    trial.close()
    trial.close()

    assert trial.ended == ["second", "first"]


@pytest.mark.parametrize("kind", [Server, ExternalServer])
@pytest.mark.parametrize("error", [ServerFailed("it ended"), HostTrouble("no room")])
def test_a_server_that_does_not_start(
    kind: type[Server | ExternalServer], error: ServerFailed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of our own breaks the rule about loading, unless the machine is to blame."""

    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(kind, "wait_healthy", fails)
    trial = _trial()
    trial.serve(kind.__new__(kind))

    assert not trial.healthy(loads="XX-00", how="with the plugin")
    blames = kind is Server and type(error) is ServerFailed
    assert trial.ledger.troubles == ({"XX-00": "with the plugin: it ended"} if blames else {})
    assert blames or trial.ledger.blocked == str(error)


def test_a_certificate_says_whose_server_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a server that runs already, device and model are its own."""
    monkeypatch.setattr(ExternalServer, "model_name", "theirs")
    server = ExternalServer.__new__(ExternalServer)
    server.url = "http://there"
    trial = _trial()
    ours = trial.context()
    trial.serve(server)

    assert ours == {
        "profile": {"valid": 1},
        "device": "cpu",
        "model": "tiny random Llama",
        "host_server": f"GET /nothing of vllm serve {vllm.__version__}",
    }
    assert trial.context() == {
        "profile": {"valid": 1},
        "device": "as the server's",
        "model": "theirs",
        "host_server": "GET /nothing of http://there",
    }
