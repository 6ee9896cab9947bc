# SPDX-License-Identifier: Apache-2.0
"""Runs in workers: what one plugin costs in calls that take turns with others, load by load."""

import importlib
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.connection import Connection
from typing import Protocol, TypeVar

from conformance.benchmark.figures import Overhead, answering
from conformance.benchmark.surroundings import environment
from conformance.engine.environment import chosen_device
from conformance.plugin.target import Plugin
from conformance.settings import Settings, UsageError


class Load(Protocol):
    """What is done with a plugin, and how often or how much of it."""

    @property
    def name(self) -> str:
        """What progress says."""


_Load = TypeVar("_Load", bound=Load)

#: All loads of a plugin, and what measures one.
Measuring = tuple[Sequence[_Load], Callable[[_Load], Iterable[Overhead]]]


def serve(connection: Connection, *, opened: str, plugin: Plugin, settings: Settings) -> None:
    """Answer ``"open"`` with the versions and all loads, then each of these with its figures.

    *opened* is the ``module:function`` of the context that opens a plugin, a :data:`Measuring`.
    """
    module, _, name = opened.partition(":")
    with answering(connection):
        connection.recv()
        opening = getattr(importlib.import_module(module), name)
        try:
            with opening(plugin, settings) as (loads, measured):
                connection.send((environment(chosen_device(settings.device)), loads))
                while True:
                    connection.send(list(measured(connection.recv())))
        except UsageError as error:
            connection.send(UsageError(f"{plugin.target} cannot be measured: {error}"))
