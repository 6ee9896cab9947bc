# SPDX-License-Identifier: Apache-2.0
"""Opening the trial of a plugin in live engines or servers, where they can start at all."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import attrs

from conformance.engine.entry_points import refused
from conformance.logits.ledger import Ledger
from conformance.rules import Evidence

if TYPE_CHECKING:
    from collections.abc import Callable

    from conformance.logits.offline import Watch
    from conformance.logits.parameters import Parameters
    from conformance.logits.requests import Stock
    from conformance.logits.roles import Roles
    from conformance.settings import Settings
    from conformance.target import Plugin
    from conformance.verdict import RuleResult


@attrs.frozen
class _Blocked:
    """A trial that shows nothing, for a reason."""

    ledger: Ledger

    def check(self, rule: str) -> RuleResult:
        """Return that a rule could not be verified, and why."""
        return self.ledger.result(rule, 0.0)


def open_trial(
    evidence: Evidence,
    roles: Roles,
    watch: Callable[[], Watch],
    *,
    plugin: Plugin,
    parameters: Parameters,
    bench: Stock,
    model: str,
    settings: Settings,
    folder: str,
) -> Any:  # noqa: ANN401 - a trial: has check(rule) and may have close()
    """Open the trial of a plugin on live evidence.

    Args:
        evidence: ``offline`` or ``server``.
        roles: what live evidence of the generation is about.
        watch: makes what is watched of the plugin in an offline engine.
        plugin: the plugin as data.
        parameters: what it is tried with.
        bench: the class, and what requests are made of.
        model: folder of the model.
        settings: the options of the run.
        folder: where logs go.

    """
    external = evidence is Evidence.SERVER and settings.server_url
    if not external and (why := refused(roles.runner)):
        # Told before any engine starts: what vLLM says of it then is hard to understand.
        ledger = Ledger(roles, evidence, parameters)
        ledger.blocked = why
        return _Blocked(ledger)
    module = importlib.import_module(f"conformance.logits.{evidence.value}")
    watches = (watch(),) if evidence is Evidence.OFFLINE else ()
    return module.Trial(roles, *watches, plugin, parameters, bench, model, settings, folder)
