# SPDX-License-Identifier: Apache-2.0
"""Opening the trial of a plugin in live engines or servers, where they can start at all."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from conformance.engine.entry_points import refused
from conformance.logits.fuzzing.explorer import Explored
from conformance.logits.offline import Watch
from conformance.logits.parameters import Parameters
from conformance.logits.requests import Stock
from conformance.logits.roles import Roles
from conformance.rules import Evidence
from conformance.suite import Opening, Trial, Unopened


def open_live(
    opening: Opening,
    roles: Roles,
    watch: Callable[[], Watch],
    parameters: Parameters,
    bench: Stock,
    *,
    explored: Callable[[], Explored],
) -> Trial:
    """Open the trial of a plugin on live evidence."""
    external = opening.evidence is Evidence.SERVER and opening.settings.server_url
    if not external and (why := refused(roles.runner)):
        # Told before any engine starts: what vLLM says of it then is hard to understand.
        return Unopened(why, opening.evidence)
    module = importlib.import_module(f"conformance.logits.{opening.evidence.value}")
    watches = (watch(),) if opening.evidence is Evidence.OFFLINE else ()
    trial: Trial = module.Trial(opening, roles, parameters, bench, explored, *watches)
    return trial
