# SPDX-License-Identifier: Apache-2.0
"""A job: what switches a logits processor on, as a certification finds it.

It plays with the plugin in the simulator, which takes no device but the CPU; steps are measured in
another process, which may use a GPU.
"""

from __future__ import annotations

import traceback
from multiprocessing.connection import Connection

from conformance.benchmark.figures import Switches
from conformance.generations import named
from conformance.logits import errands
from conformance.plugin.profile import of_plugin
from conformance.plugin.target import Plugin
from conformance.settings import Settings, UsageError
from conformance.worker.jobs import class_of


def find(connection: Connection, *, plugin: Plugin, settings: Settings, model: str) -> None:
    """Answer with the :class:`Switches` of a plugin, or with the ``UsageError`` that it is."""
    connection.recv()
    try:
        connection.send(_found(plugin, settings, model))
    except UsageError as error:
        connection.send(error)
    except Exception as error:  # noqa: BLE001 - a plugin may raise anything
        traceback.print_exc()
        connection.send(UsageError(f"{plugin.target} cannot be measured: {error}."))


def _found(plugin: Plugin, settings: Settings, model: str) -> Switches:
    """Return the requests that switch a plugin on, and those that do not.

    Raises:
        UsageError: nothing switches it on, or its profile is broken.

    """
    cls, profile = class_of(plugin), of_plugin(plugin, settings)
    section = profile.section(plugin.interface) if profile else {}
    origin = profile.origin if profile else None
    suite = named(plugin.generation).suite
    found = errands.found_here(suite, cls, section, origin=origin, model=model, seed=settings.seed)
    if not found.on:
        raise UsageError(
            f"{plugin.target}: nothing was found that switches it on; write a profile "
            "(vllm-conformance init TARGET makes one to start from)."
        )
    return Switches(found.on, found.off)
