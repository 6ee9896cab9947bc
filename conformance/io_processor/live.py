# SPDX-License-Identifier: Apache-2.0
"""What live evidence of both kinds needs: the plugin, what it is tried on, and if a host has it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import vllm

from conformance.io_processor import DATA, REQUEST, discovery, parameters, prompts
from conformance.io_processor.bench import Bench, ConstructorRaised
from conformance.io_processor.documented import calls_parse_request
from conformance.io_processor.host import length_of
from conformance.io_processor.hostile import Explored
from conformance.io_processor.meaning import SILENT, Meaning
from conformance.live_trial import LiveTrial
from conformance.rules import Evidence
from conformance.verdict import must_wait
from conformance.watching.untouched import Untouched

LOADS, SELECTED, ANSWERS, REFUSES, ORDER, INTERLEAVED, SAME_IDS, HARMLESS, SURVIVES = (
    "IO-01", "IO-04", "IO-07", "IO-08", "IO-17", "IO-27", "IO-28", "IO-30", "IO-37",
)  # fmt: skip
MEANS = "IO-40"


@attrs.define(eq=False)
class IOProcessorTrial(LiveTrial):
    """The trial of one plugin on live evidence of either kind."""

    generation: str
    model: str  #: folder of the model that the profile names, or of the tiny one
    #: Made when it is known that an engine makes sense.
    bench: Bench = attrs.field(init=False)
    meaning: Meaning | None = attrs.field(init=False)
    _stocked: bool = attrs.field(init=False, default=False)
    _untouched: Untouched = attrs.field(init=False)

    @meaning.default
    def _said(self) -> Meaning | None:
        return Meaning.of(self.opening.section)

    @property
    def length(self) -> int:
        """Tokens that fit into a prompt: as many as the model takes."""
        return length_of(self.model)

    def refused(self) -> str | None:
        """Say why no engine of the installed vLLM serves the plugin, or return None."""
        if self.generation == REQUEST and not calls_parse_request():
            return (
                f"vLLM {vllm.__version__} does not call parse_request, which 0.29 took away: "
                "show it with vLLM 0.28 or earlier"
            )
        return None

    def prepare(self) -> None:
        """Find out what the plugin is tried with, or note why it cannot be tried."""
        opening, ledger = self.opening, self.ledger
        if self.meaning is None:
            ledger.beside[MEANS] = SILENT
        # Before the class is touched for the first time.
        self._untouched = Untouched.fork(opening.cls)
        self.ends.callback(self._untouched.close)
        # Hosts that still take plugins of the documented generation make and call them like
        # others: their parse_data calls parse_request.
        bench = Bench.open(opening.cls, DATA, self.model, opening.settings.seed)
        self.bench = bench
        try:
            bench.stock = discovery.find(bench, opening.section, origin=opening.origin)
            self._stocked = True
            bench.hidden = bench.unsteady()
            if opening.evidence is Evidence.SERVER:  # gives every request another id
                bench.hidden |= bench.named()
        except ConstructorRaised as error:
            # Made with one argument more than the document has: an engine will say the same.
            if self.generation != REQUEST:
                ledger.blocked = must_wait(["IO-02"], f"making an instance raised {error}")
            return
        if why := self._unsuited():
            ledger.blocked = why
        elif not bench.stock.given:
            known = bench.stock.furthest
            need = known and prompts.needed(bench, known[0])
            ledger.blocked = need or "no request is known that the plugin answers: give a profile"
        elif not bench.stock.invalid:
            ledger.beside[REFUSES] = "the profile names no invalid request"

    def explored(self) -> Explored:
        """Find out in the simulator what is worth sending."""
        return Explored.of(self._untouched, self.bench)

    def _unsuited(self) -> str | None:
        """Say what the plugin needs that the harness's own model has not, or return None."""
        if self.opening.evidence is Evidence.SERVER and self.opening.settings.server_url:
            return None  # that server has a model of its own
        if parameters.params_trouble(self.bench) is None and (
            why := parameters.no_pooler(self.bench)
        ):
            return why
        refused = prompts.refused(self.bench)
        return refused.message if refused is not None and refused.needs else None

    @property
    def model_name(self) -> str:
        """What certificates call the model: as the profile does, a folder by its name."""
        named = str(self.opening.section.get("model", super().model_name))
        return Path(named).name if Path(named).is_absolute() else named

    def document(self) -> Mapping[str, Any] | None:
        """Return what the plugin is tried with, once that is known."""
        if not self._stocked:
            return None
        said = self.meaning.document() if self.meaning else {}
        return {**self.bench.stock.document(), **said}
