# SPDX-License-Identifier: Apache-2.0
"""Plugins with ``parse_request``: the documented generation, vLLM 0.10 to 0.28."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from conformance.io_processor import REQUEST
from conformance.io_processor.documented import restore_documented_base
from conformance.io_processor.suites import data, shared
from conformance.rules import Evidence
from conformance.suite import Opening, Replayed, Trial
from conformance.watching.loading_process import Maker


def _recognises(cls: type) -> bool:
    return shared.is_plugin(cls) and shared.defines(cls, "parse_request")


def _open(opening: Opening) -> Trial:
    if opening.evidence is Evidence.SIMULATOR:  # engines and servers have what their release has
        restore_documented_base()
    return shared.open_trial(REQUEST, opening)


def _maker(model: str, section: Mapping[str, Any]) -> Maker:
    ready = shared.maker(REQUEST, model, section)

    def documented() -> Callable[[Any], object]:
        restore_documented_base()
        return ready()

    return documented


def _replay(cls: type, counterexample: Mapping[str, Any], model: str) -> Replayed:
    restore_documented_base()
    return shared.replay(REQUEST, cls, counterexample, model)


SUITE = attrs.evolve(
    data.SUITE, recognises=_recognises, open_trial=_open, replay=_replay, maker=_maker
)
