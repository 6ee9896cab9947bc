# SPDX-License-Identifier: Apache-2.0
"""Which families the installed vLLM has a host for: a newer one may have moved what ours import.

Plugins of the others are judged all the same.
"""

from __future__ import annotations

import importlib

from conformance.generations import all_generations
from conformance.interface import Generation
from conformance.plugin.loader import Unavailable
from conformance.suite import Suite
from conformance.worker import hindrances


def suite_of(generation: Generation) -> Suite:
    """Import what judges plugins of a generation; most need vLLM."""
    found: Suite = importlib.import_module(generation.suite).SUITE
    return found


def suites() -> dict[str, Suite]:
    """Import what judges plugins, by generation, but for those that vLLM has no host for."""
    return {each.name: suite_of(each) for each in all_generations() if _unknown_host(each) is None}


def beforehand() -> None:
    """Import what judges plugins, for all processes that are forked from this one."""
    suites()


def _unknown_host(generation: Generation) -> str | None:
    """Say what vLLM does not have where plugins of a generation are judged, if it has not."""
    try:
        suite_of(generation)
    except ImportError as error:
        if not hindrances.is_moved(error):
            raise
        return hindrances.not_known(error)
    return None


def require_hosts() -> None:
    """Do nothing where every family has a host.

    Raises:
        Unavailable: one has none, and what is no plugin of the others may be one of it.

    """
    for generation in all_generations():
        if (why := _unknown_host(generation)) is not None:
            raise Unavailable(why)
