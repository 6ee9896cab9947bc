# SPDX-License-Identifier: Apache-2.0
"""Requests without arguments that arrive as an empty table: what a plugin refuses of these."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from conformance.logits.calls import PluginRaised, call
from conformance.logits.fuzzing import carriers
from conformance.logits.keywords import sampling_params
from conformance.watching.interruption import PluginHung, limited

ABOUT = "ordinary requests"


def notes(plugin: type[Any], off: Collection[object]) -> list[dict[str, Any]]:
    """Return what a certificate says where a route of the server has all of them refused.

    vLLM's own example does that, so it is no verdict.

    Args:
        plugin: the class.
        off: the parameter sets that leave it off.

    """
    empty: dict[str, Any] = {"extra_args": {}}
    route = carriers.ordinary(empty)
    if route is None or {} not in off or empty in off:
        return []
    try:
        with limited():
            call("validate_params", plugin.validate_params, sampling_params(empty, ""))
    except PluginRaised as error:
        says = f"each request to {route.path} without vllm_xargs has {empty}, and is refused"
        return [{"about": ABOUT, "says": [f"{says}: {error}"]}]
    except PluginHung:
        pass  # the rule about admission says so
    return []
