# SPDX-License-Identifier: Apache-2.0
"""Opening the trial of a plugin in live engines or servers, where they can start at all."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial

from conformance.engine.entry_points import refused
from conformance.logits.errands import Explore, explored
from conformance.logits.offline import Watch
from conformance.logits.parameters import Parameters
from conformance.logits.requests import Stock
from conformance.logits.roles import Roles
from conformance.rules import Evidence
from conformance.suite import Opening, Trial, Unopened
from conformance.watching.untouched import Errands


def open_live(
    opening: Opening,
    untouched: Errands,
    parameters: Parameters,
    *,
    suite: str,
    stock: Callable[..., Stock],
    roles: Roles,
    watch: Callable[[], Watch],
) -> Trial:
    """Open the trial of a plugin on live evidence.

    Args:
        opening: what is tried, and how.
        untouched: a process in which nothing has been done with the plugin.
        parameters: what the plugin is tried with.
        suite: the module whose ``explored`` tells what becomes of requests.
        stock: makes what the generation tries a plugin on.
        roles: the rules of the generation.
        watch: makes what is watched in an engine.

    """
    model, seed = opening.model, opening.settings.seed
    bench = stock(opening.cls, model, parameters.choices(), seed, parameters.waits)
    bench.meaning = parameters.meaning
    external = opening.evidence is Evidence.SERVER and opening.settings.server_url
    if not external and (why := refused(roles.runner)):
        # Told before any engine starts: what vLLM says of it then is hard to understand.
        return Unopened(why, opening.evidence)
    sent = Explore(parameters, model, seed, f"{suite}:explored")
    module = importlib.import_module(f"conformance.logits.{opening.evidence.value}")
    watches = (watch(),) if opening.evidence is Evidence.OFFLINE else ()
    trial: Trial = module.Trial(
        opening, roles, parameters, bench, partial(explored, untouched, sent, opening), *watches
    )
    return trial
