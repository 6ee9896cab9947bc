# SPDX-License-Identifier: Apache-2.0
"""What live evidence of both kinds needs: the plugin, what it is tried on, and if a host has it."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import attrs

from conformance.engine.environment import chosen_device
from conformance.io_processor import stock
from conformance.io_processor.bench import Bench, ConstructorRaised
from conformance.io_processor.host import DATA, REQUEST
from conformance.verdict import must_wait

if TYPE_CHECKING:
    from collections.abc import Mapping

    from conformance.ledger import Ledger
    from conformance.rules import Evidence
    from conformance.settings import Settings
    from conformance.target import Plugin

LOADS, SELECTED, ANSWERS, REFUSES, ORDER, INTERLEAVED, SAME_IDS, HARMLESS, SURVIVES = (
    "IO-01", "IO-04", "IO-07", "IO-08", "IO-17", "IO-27", "IO-28", "IO-30", "IO-37",
)  # fmt: skip


@attrs.define(eq=False)
class Subject:
    """A plugin, and what a live trial of it needs."""

    generation: str
    cls: type
    plugin: Plugin
    section: Mapping[str, Any]
    origin: str | None
    model: str
    settings: Settings
    folder: str
    #: Made when it is known that an engine makes sense.
    bench: Bench = attrs.field(init=False)

    @property
    def qualname(self) -> str:
        """The dotted name that an entry point's function returns."""
        return f"{self.plugin.module}.{self.plugin.qualname}"

    @property
    def device(self) -> str:
        """Where engines run."""
        return chosen_device(self.settings.device)

    def python_path(self) -> list[str]:
        """Return the folders that the plugin is imported from."""
        root = self.plugin.root or str(self.settings.directory)
        return [root, *self.settings.python_path]


def calls_parse_request() -> bool:
    """Tell whether the installed vLLM still serves plugins of the documented generation."""
    from vllm.plugins.io_processors.interface import IOProcessor

    parse = getattr(IOProcessor, "parse_data", None)
    return parse is None or "parse_request" in inspect.getsource(parse)


def refused(subject: Subject) -> str | None:
    """Say why no engine of the installed vLLM serves the plugin, or return None."""
    import vllm

    if subject.generation == REQUEST and not calls_parse_request():
        return (
            f"vLLM {vllm.__version__} does not call parse_request, which 0.29 took away: "
            "show it with vLLM 0.28 or earlier"
        )
    return None


def prepare(subject: Subject, ledger: Ledger) -> None:
    """Find out what the plugin is tried with, or note why it cannot be tried."""
    # Hosts that still take plugins of the documented generation make and call them like others:
    # their parse_data calls parse_request.
    bench = Bench.open(subject.cls, DATA, subject.model, subject.settings.seed)
    subject.bench = bench
    try:
        bench.stock = stock.find(bench, subject.section, origin=subject.origin)
        bench.hidden = bench.unsteady()
    except ConstructorRaised as error:
        # Made with one argument more than the document has: an engine will say the same.
        if subject.generation != REQUEST:
            ledger.blocked = must_wait(["IO-02"], f"making an instance raised {error}")
        return
    if not bench.stock.given:
        ledger.blocked = "nobody knows what the plugin takes: give a profile"
    elif not bench.stock.invalid:
        ledger.beside[REFUSES] = "the profile names no invalid request"


def context(subject: Subject, evidence: Evidence, host: str) -> dict[str, Any]:
    """Return what a certificate says about a live trial."""
    known = hasattr(subject, "bench") and hasattr(subject.bench, "stock")
    return {
        "profile": subject.bench.stock.document() if known else None,
        "device": subject.device,
        "model": subject.section.get("model", "tiny random Llama"),
        f"host_{evidence.value}": host,
    }
