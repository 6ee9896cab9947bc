# SPDX-License-Identifier: Apache-2.0
"""How long a plugin's constructor takes, and whether its instances are shared for that."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TypeVar

import attrs

from conformance.watching.interruption import CONSTRUCTOR_LIMIT, limited

_Made = TypeVar("_Made")

#: Building an instance slower than this, examples share one instance and leave it idle between.
SLOW_SECONDS = 0.005

#: Instances that are built before that is decided.
MEASURED = 3


@attrs.define
class Construction:
    """The instances of a plugin that were built, and the fastest of them."""

    slow: bool = False  #: whether examples share instances
    _made: int = 0
    _fastest: float = math.inf

    def make(self, construct: Callable[[], _Made]) -> _Made:
        """Build an instance; an honest constructor may load a model of its own."""
        started = time.perf_counter()
        with limited(CONSTRUCTOR_LIMIT):
            instance = construct()
        self._made += 1
        self._fastest = min(self._fastest, time.perf_counter() - started)
        # The fastest of several: the first does what is done once, and the machine may be busy.
        if self._made == MEASURED:
            self.slow = self._fastest > SLOW_SECONDS
        return instance
