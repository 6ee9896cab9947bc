# SPDX-License-Identifier: Apache-2.0
"""Processes in which plugin code runs.

A plugin may hang, exit, or break the process it runs in, and importing vLLM takes seconds.
So one *zygote* process imports vLLM once, while the caller's process is still starting up,
and forks a *job* for every piece of work.
The caller never imports vLLM, torch or a plugin, and outlives whatever a plugin does.

``multiprocessing.forkserver`` is not used:
it would import the caller's main module (pytest) again in every job.
"""

from conformance.worker.client import (
    NOT_YET,
    TICK_SECONDS,
    Job,
    JobDied,
    JobHung,
    Zygote,
    ZygoteFailed,
    first_heard,
)
from conformance.worker.limits import Patience

__all__ = [
    "NOT_YET",
    "TICK_SECONDS",
    "Job",
    "JobDied",
    "JobHung",
    "Patience",
    "Zygote",
    "ZygoteFailed",
    "first_heard",
]
