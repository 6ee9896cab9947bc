# SPDX-License-Identifier: Apache-2.0
"""What a profile says of items: which are valid, and which are not.

``valid`` and ``invalid`` hold data as ``parse_input`` takes them. In a TOML file
``{ file = "cloud.ply" }`` stands for the bytes of a file, and ``{ call = "samples.py:cloud" }`` for
what a function returns.
"""

from __future__ import annotations

import copy
import importlib
import importlib.util
import sys
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs
from hypothesis import strategies as st

from conformance.multimodal.modality.stock import Sample
from conformance.plugin.loader import without_byte_code
from conformance.rules import nearest
from conformance.search import examples
from conformance.settings import UsageError
from conformance.watching.comparison import shortened

#: How many of a profile's strategy are taken.
DRAWN = 12


@attrs.frozen(eq=False)
class Promises:
    """What a profile says of items."""

    valid: tuple[Sample, ...] = ()
    invalid: tuple[Sample, ...] = ()


def promised(
    section: Mapping[str, Any], folders: Sequence[Path], *, origin: str | None, seed: int
) -> Promises:
    """Read the ``valid`` and ``invalid`` items of a profile.

    Raises:
        UsageError: a file or a function is not there.

    """
    found = {}
    for key in ("valid", "invalid"):
        values = section.get(key, ())
        if isinstance(values, st.SearchStrategy):
            values = examples(values, DRAWN, seed)
        found[key] = tuple(
            _sample(value, f"{key}[{index}]", folders, origin) for index, value in enumerate(values)
        )
    return Promises(**found)


def forms(
    section: Mapping[str, Any], known: Collection[str], origin: str | None
) -> tuple[str, ...]:
    """Return the ``forms`` that a profile names.

    Raises:
        UsageError: there is no such form.

    """
    named = tuple(map(str, section.get("forms", ())))
    for name in named:
        if name not in known:
            raise UsageError(
                f"profile {origin}: [multimodal] forms has {name!r}, and there are "
                f"{', '.join(known)}." + nearest(name, known)
            )
    return named


def _sample(value: object, place: str, folders: Sequence[Path], origin: str | None) -> Sample:
    promise = place.startswith("valid")
    if isinstance(value, Mapping) and set(value) == {"file"}:
        path = _found(str(value["file"]), folders, origin)
        return Sample(
            f"{place}, {path.name}", path.read_bytes, path.suffix[1:].upper(), promised=promise
        )
    if isinstance(value, Mapping) and set(value) == {"call"}:
        function = named(str(value["call"]), folders, origin)
        return Sample(f"{place}, {value['call']}", function, promised=promise)
    return Sample(f"{place}, {shortened(value, 40)}", partial(_copied, value), promised=promise)


def _copied(value: object) -> object:
    try:
        return copy.deepcopy(value)
    except Exception:  # noqa: BLE001 - objects need not be copied: then all calls share them
        return value


def named(spec: str, folders: Sequence[Path], origin: str | None) -> Any:  # noqa: ANN401 - what a profile names
    """Return what ``package.module:name`` or ``file.py:name`` names.

    Raises:
        UsageError: there is no such module, file or name.

    """
    module, colon, name = spec.rpartition(":")
    if not colon:
        raise UsageError(
            f"profile {origin}: [multimodal] names {spec!r}, where file.py:name or "
            "package.module:name must be."
        )
    try:
        loaded: Any
        if module.endswith(".py"):
            loaded = loaded_from(_found(module, folders, origin))
        else:
            loaded = importlib.import_module(module)
        return getattr(loaded, name)
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"profile {origin}: [multimodal] names {spec!r}, which cannot be had: {error}."
        ) from None


def loaded_from(path: Path) -> object:
    """Return the module of a file; the plugin's own is there already, and has its classes."""
    found = path.resolve()
    names = (path.name, found.name)
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        # Names first: links are looked up on the disk, for each of thousands of modules.
        if isinstance(file, str) and file.endswith(names) and Path(file).resolve() == found:
            return module
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None  # the name ends as Python's files do
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Where its classes are pickled, they are looked for by the module's name.
    sys.modules.setdefault(path.stem, module)
    with without_byte_code():
        spec.loader.exec_module(module)
    return module


def _found(name: str, folders: Sequence[Path], origin: str | None) -> Path:
    for folder in folders:
        if (path := folder / name).is_file():
            return path
    raise UsageError(f"profile {origin}: [multimodal] names {name!r}, and there is no such file.")
