# SPDX-License-Identifier: Apache-2.0
"""The trial of one plugin in engines or on a server, where one run answers for every rule.

What is asked there shows many rules at once, and each question depends on what came of those
before.  So nothing is registered rule by rule, as for the simulator (`checking.py`): a family
defines :meth:`LiveTrial.run`, which notes in the ledger what it sees of whichever rule.
"""

from __future__ import annotations

import abc
import contextlib
import time
from collections.abc import Mapping
from typing import Any, ClassVar

import attrs
import vllm

from conformance.engine import access
from conformance.engine.environment import chosen_device
from conformance.engine.front_ends import FrontEnds
from conformance.engine.server import ExternalServer, HostTrouble, Server, ServerFailed, external
from conformance.ledger import Ledger
from conformance.rules import Evidence
from conformance.suite import Opening
from conformance.verdict import RuleResult

START_LIMIT = 240.0

#: A server that runs already is healthy, or is not going to be.
EXTERNAL_LIMIT = 10.0

#: A server that a plugin brought down, or whose engine was killed, notices within some seconds.
DEATH_SECONDS = 10.0


#: Why a server is not sent odd requests.
SPARED = (
    "a server that runs already is sent what its profile names alone: --server-hostile sends it "
    "odd requests, too"
)


@attrs.define(eq=False)
class LiveTrial(abc.ABC):
    """The trial of one plugin on live evidence; engines and servers may start when it is made."""

    #: What of vLLM the plugin is reached by, as certificates have it.
    host: ClassVar[str]

    opening: Opening
    ledger: Ledger = attrs.field(init=False)
    #: Ends, last first, what the trial has started.
    ends: contextlib.ExitStack = attrs.field(init=False, factory=contextlib.ExitStack)
    _server: Server | ExternalServer | None = attrs.field(init=False, default=None)
    _front_ends: FrontEnds | None = attrs.field(init=False, default=None)
    _done: bool = attrs.field(init=False, default=False)

    @ledger.default
    def _nothing_seen(self) -> Ledger:
        return Ledger(self.opening.evidence)

    @abc.abstractmethod
    def run(self) -> None:
        """Ask what is to be asked of the plugin, and note in the ledger what that shows."""

    @abc.abstractmethod
    def document(self) -> Mapping[str, Any] | None:
        """Return what the plugin is tried with, as certificates have it; None if unknown."""

    @property
    def reached_by(self) -> str:
        """What of vLLM the plugin is reached by, where that depends on the plugin."""
        return self.host

    @property
    def model_name(self) -> str:
        """What certificates call the model that the plugin is tried on."""
        return "tiny random Llama"

    @property
    def device(self) -> str:
        """Where engines run: ``cpu`` or ``cuda``."""
        return chosen_device(self.opening.settings.device)

    def check(self, rule: str) -> RuleResult:
        """Judge one rule by what happened; the first that is asked for has everything happen."""
        self.run_once()
        return self.ledger.result(rule)

    def run_once(self) -> None:
        """Have everything happen, unless it has, or something stands in the way."""
        if not self._done and self.ledger.blocked is None:
            with self.ledger.timed():
                self.run()
        self._done = True

    def close(self) -> None:
        """End what the trial has started."""
        self.ends.close()

    def context(self) -> dict[str, Any]:
        """Return what a certificate says about this trial."""
        evidence = self.opening.evidence
        release = "vllm serve" if evidence is Evidence.SERVER else "vLLM"
        told: dict[str, Any] = {
            "profile": self.document(),
            "device": self.device,
            "model": self.model_name,
            f"host_{evidence.value}": f"{self.reached_by} of {release} {vllm.__version__}",
        }
        if isinstance(self._server, ExternalServer):
            told["device"] = "as the server's"
            told["model"] = self._server.model_name
            told["host_server"] = f"{self.reached_by} of {self._server.url}"
        if self._front_ends is not None:
            told["front_ends"] = len(self._front_ends.seen)
        if isinstance(self._server, Server) and self.opening.settings.server_arguments:
            told["preemptions"] = self._server.preemptions()
        return told

    @property
    def server(self) -> Server | ExternalServer:
        """The server that is asked, where the evidence is one."""
        assert self._server is not None
        return self._server

    @property
    def own(self) -> bool:
        """Whether the server is one of our own, and none that runs already."""
        return isinstance(self.server, Server)

    @property
    def spared(self) -> bool:
        """Whether the server is sent no odd requests, since it may serve others: :data:`SPARED`."""
        return not (self.own or self.opening.settings.server_hostile)

    def running(self) -> ExternalServer | None:
        """Return the server that runs already and is to be asked, if there is one."""
        settings = self.opening.settings
        return external(settings.server_url, access.of(settings)) if settings.server_url else None

    def serve(self, server: Server | ExternalServer) -> None:
        """Have a server asked, and end it with the trial."""
        self._server = server
        self.ends.callback(server.stop)

    def healthy(self, *, loads: str, how: str) -> bool:
        """Wait until the server is healthy, or note in the ledger why it never is.

        Args:
            loads: the rule that a server of our own breaks which does not start.  One that runs
                and does not answer keeps every rule from being seen.
            how: what the sentence about a server that does not start begins with.

        """
        server, progress = self.server, self.opening.progress
        progress("waiting for vllm serve to become healthy")
        started = time.perf_counter()
        try:
            server.wait_healthy(START_LIMIT if isinstance(server, Server) else EXTERNAL_LIMIT)
        except ServerFailed as error:
            if isinstance(server, ExternalServer) or isinstance(error, HostTrouble):
                self.ledger.stop(str(error))
            else:
                self.ledger.did_not_start(loads, f"{how}: {error}")
            return False
        waited = time.perf_counter() - started
        progress(f"vllm serve is healthy after {waited:.1f} s" if waited >= 1 else "asking it")
        # Only now: a process with threads is not forked for a server.
        if (count := self.opening.settings.front_ends) > 1 and isinstance(server, Server):
            self._front_ends = FrontEnds(server)
            self._front_ends.watch(count)
            self.ends.callback(self._front_ends.close)
        return True

    def death(self) -> str | None:
        """Return how the server died, or None; a healthy one costs no waiting."""
        return None if self.server.healthy() else self.server.failure(within=DEATH_SECONDS)
