# SPDX-License-Identifier: Apache-2.0
"""What a job tells its caller beside its answer."""

from __future__ import annotations

from enum import Enum


class Sign(Enum):
    """A sign of life that is neither an answer nor progress."""

    RETURNED = "a call into the plugin has returned"


RETURNED = Sign.RETURNED
