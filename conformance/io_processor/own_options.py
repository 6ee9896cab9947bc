# SPDX-License-Identifier: Apache-2.0
"""Options of a plugin's own model that its constructor reads, and the tiny models do not have.

That an option is missing is shown by adding it: if the constructor no longer asks for the name in
vain, in a configuration with that option, it was the configuration's.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from pathlib import Path

from conformance.engine.pooling_models import with_options
from conformance.io_processor.host import Surroundings, surroundings
from conformance.plugin import missing
from conformance.settings import UsageError

#: Makes an instance.
Make = Callable[[Surroundings], object]


def lacking(make: Make, around: Surroundings, error: Exception) -> missing.ModelLacks | None:
    """Return what the configuration of a tiny model lacks, if a constructor raised for that."""
    known = around.config.model_config.hf_config
    for name in _unknown(missing.chain(error)) if around.own is not None else ():
        if hasattr(known, name) or name not in _still(make, around, error):
            continue  # it is there, or is not asked for each time
        with tempfile.TemporaryDirectory(prefix="vllm-conformance-") as folder:
            base = Path(around.config.model_config.model)
            try:
                other = surroundings(str(with_options({name: {}}, Path(folder) / base.name, base)))
            except UsageError:  # vLLM itself reads it
                continue
            if name not in _still(make, other, error):
                return missing.ModelLacks(f"no {name!r} in its config.json")
    return None


def _unknown(causes: Iterable[BaseException]) -> Iterator[str]:
    """Yield the names that were looked for in vain, and may be those of an option."""
    for cause in causes:
        name = cause.name if isinstance(cause, AttributeError) else None
        if isinstance(cause, KeyError) and cause.args:
            name = cause.args[0]
        if isinstance(name, str) and name and "/" not in name:
            yield name


def _still(make: Make, around: Surroundings, before: Exception) -> set[str]:
    """Return the names that are looked for in vain by another instance."""
    try:
        make(around)
    except Exception as error:  # noqa: BLE001 - the plugin may raise anything
        # It was raised while the first one was handled.
        return set(_unknown(takewhile(lambda cause: cause is not before, missing.chain(error))))
    return set()
