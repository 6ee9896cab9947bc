# SPDX-License-Identifier: Apache-2.0
"""Parsers by their names: those of vLLM, and the one that a profile names as a partner."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from conformance.parser.roles import NAME, manager, name_of, other
from conformance.plugin import loader, registration
from conformance.plugin import target as targets
from conformance.rules import nearest
from conformance.settings import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from conformance.parser.wanted import Wanted
    from conformance.plugin.target import Target


def resolved(role: str, target: Target) -> Target:
    """Follow a name to the class that vLLM registers under it, or a function that registers one.

    Raises:
        UsageError: there is none.

    """
    if (function := loader.registrar(target)) is not None:
        return registration.registered_by(function, f"{role}-parser", target)
    if not target.text.startswith(f"{role}-parser:"):
        return target
    name = target.qualname or ""
    known = registered(role)
    if name not in known:
        raise UsageError(
            f"target {target.text!r}: the installed vLLM has no {role} parser {name!r}."
            + nearest(name, known)
        )
    module, qualname = known[name]
    return attrs.evolve(target, module=module, qualname=qualname)


def registered(role: str) -> Mapping[str, tuple[str, str]]:
    """Return where vLLM has its own parsers, by their names."""
    try:
        found: Mapping[str, tuple[str, str]] = manager(role).lazy_parsers
    except (ImportError, AttributeError):
        return {}
    return found


def partner(cls: type[Any], wanted: Wanted) -> type[Any] | None:
    """Return the parser of the other role with which a model is served, or None.

    Raises:
        UsageError: there is no such parser.

    """
    place = beside(cls, wanted)
    return None if place is None else loader.load_class(place)


def beside(cls: type[Any], wanted: Wanted) -> Target | None:
    """Return where the parser is with which a model is served beside a class, or None.

    It is the one that the profile names; vLLM's own have it under the same name.

    Raises:
        UsageError: there is no such parser.

    """
    kind, name = other(wanted.role), name_of(cls, wanted.role)
    text = wanted.section.get("partner")
    if text is None and name != NAME and name in registered(kind):
        text = f"{kind}-parser:{name}"
    if text is None:
        return None
    where = "[parser] partner"
    try:
        found = [resolved(kind, each) for each in targets.parse(text, Path(wanted.folder))]
        if len(found) == 1 and found[0].qualname is not None:
            place = registration.named(found[0], loader.load_module(found[0]))
            loader.load_class(place)
            return place
    except (UsageError, loader.LoadFailure) as error:
        raise UsageError(f"{where}: {error}") from None
    raise UsageError(f"{where}: {text!r} has to name one class.")
