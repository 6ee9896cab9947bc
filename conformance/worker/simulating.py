# SPDX-License-Identifier: Apache-2.0
"""What live trials have simulated, in a process that takes no device but the CPU."""

from __future__ import annotations

from multiprocessing.connection import Connection

from conformance.generations import named
from conformance.inputs import constants
from conformance.plugin import profile as profiles
from conformance.plugin.expectation import located
from conformance.plugin.target import Plugin
from conformance.settings import Settings
from conformance.watching import elsewhere
from conformance.watching.untouched import Untouched
from conformance.worker import limits, private
from conformance.worker.jobs import class_of, deployed


def serve(connection: Connection, *, plugin: Plugin, settings: Settings, address: str) -> None:
    """Run errands about a plugin that come to an address, until the caller hangs up."""
    private.keep()
    limits.limit_memory()
    constants.leave_out_host()
    deployed(plugin, settings)
    if (profile := profiles.of_plugin(plugin, settings)) is not None:
        # Errands may be about functions that it names.
        section = profile.section(named(plugin.generation).interface)
        located(section, profile.folder, profile.origin)
    untouched = Untouched.fork(class_of(plugin))
    try:
        elsewhere.serve(address, untouched, connection)
    finally:
        untouched.close()
