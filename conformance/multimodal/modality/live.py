# SPDX-License-Identifier: Apache-2.0
"""What live evidence of both kinds needs: the plugin, how it is served, and its rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from conformance.checking import Undecided
from conformance.live_trial import LiveTrial
from conformance.multimodal.modality import deployment, hostile
from conformance.multimodal.modality.bench import Bench, ConstructorRaised, opened
from conformance.multimodal.modality.deployment import Deployment, Prompt
from conformance.multimodal.modality.served import parsed
from conformance.multimodal.modality.stock import Sample
from conformance.watching.interruption import PluginExited, PluginHung

LOADS, SURVIVES, TAKEN, CLIENT, REFUSED = "MM-41", "MM-43", "MM-50", "MM-53", "MM-54"
HASH, ROWS, SAME, BEFORE, MIXED = "MM-62", "MM-66", "MM-70", "MM-71", "MM-72"

#: How many of what should be refused are sent.
MISTAKES = 40


def independence(prompt: Prompt) -> str:
    """Return the rule by which the items of a prompt depend on no others."""
    return MIXED if len(prompt.samples) > 1 else BEFORE


@attrs.define(eq=False)
class ModalityTrial(LiveTrial):
    """The trial of one plugin on live evidence of either kind."""

    #: Made when it is known that an engine makes sense.
    deployment: Deployment = attrs.field(init=False)
    _bench: Bench | None = attrs.field(init=False, default=None)

    @property
    def bench(self) -> Bench:
        """The plugin, and what it is given."""
        assert self._bench is not None  # or nothing is run
        return self._bench

    @property
    def model_name(self) -> str:
        """What certificates call the model."""
        return "tiny random Llama with the encoder of the recipe"

    def document(self) -> Mapping[str, Any] | None:
        """Return what the plugin is tried with."""
        return self._bench.document() if self._bench is not None else None

    def prepare(self) -> None:
        """Find out what the plugin is tried with, or note why it cannot be tried."""
        self._bench = opened(self.opening)
        try:
            self.deployment = Deployment.of(self._bench)
        except ConstructorRaised as error:
            self.ledger.fail(LOADS, f"making an instance without arguments raised {error}")
        except (PluginHung, PluginExited) as error:
            self.ledger.fail(SURVIVES, str(error))
        except Undecided as error:
            self.ledger.stop(str(error))
        else:
            if not self.deployment.encodes:
                why = "no encoder is known that could make another number of rows"
                self.ledger.beside[ROWS] = why
            if not self.deployment.samples:
                self.ledger.stop(
                    f"no item that is known takes up to {deployment.MOST_TOKENS} tokens, which is "
                    "what a tiny model has room for"
                )

    def mistakes(self) -> list[Sample]:
        """Return what is no item, as far as nothing of it is hard to send."""
        bench = self.bench
        found = (
            *bench.promises.invalid,
            *hostile.cut(bench.good),
            *hostile.nonsense(bench.modality),
        )
        return [sample for sample in found if not self._unreadable(sample)][:MISTAKES]

    def _unreadable(self, sample: Sample) -> bool:
        """Tell whether it takes a library that is not installed to see what a sample is."""
        if not self.bench.lacks:
            return False
        try:
            return parsed(self.bench.make(), sample.data()).missing
        except (PluginHung, PluginExited):  # the engine or server will show it
            return False
