# SPDX-License-Identifier: Apache-2.0
"""Which constants Hypothesis draws.

It collects those in the source of every module that is not installed, which is what finds a plugin
that treats token 4242 otherwise.  Those of the harness and of vLLM, where they are run from their
source trees, are left out: reading them takes a second of every trial, and a changed line of
theirs would change what a seed draws.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hypothesis.internal.conjecture import providers

_OURS = ("conformance", "vllm")


def leave_out_host() -> None:
    """Let Hypothesis collect the constants of modules that are imported from now on alone."""
    is_local = getattr(providers, "is_local_module_file", None)
    if is_local is None:  # another release, which may draw other values, too
        return
    known = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    folders = tuple(
        f"{Path(file).parent}{os.sep}"
        for name in _OURS
        if (file := getattr(sys.modules.get(name), "__file__", None))
    )

    def wanted(path: str) -> bool:
        return path not in known and not path.startswith(folders) and bool(is_local(path))

    setattr(providers, "is_local_module_file", wanted)  # noqa: B010 - it is not exported
