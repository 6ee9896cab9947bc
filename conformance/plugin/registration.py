# SPDX-License-Identifier: Apache-2.0
"""Names of classes in their modules, and of those that no import reaches: a function makes them.

vLLM knows the latter by what registers them, which the import of their module calls, or vLLM.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from types import ModuleType

import attrs

from conformance.plugin.files import at_name, imported_names, is_made
from conformance.plugin.target import (
    MODEL_REGISTRY,
    Plugin,
    Target,
    registering_entry,
    registries,
)


def classes_of(module: ModuleType) -> dict[str, type]:
    """Return the classes that a module defines itself, by their names in it, in their order.

    A function of another module may have made one of them, and given it the name of that module.
    """
    imported = imported_names(module.__file__)
    found = {
        value: _name_in(module, value) or key
        for key, value in vars(module).items()
        if isinstance(value, type)
        and not key.startswith("_")
        and (_own(module, value.__module__) or (is_made(value) and imported.isdisjoint((key, "*"))))
    }
    return {name: cls for cls, name in found.items()}


def registered(target: Target, module: ModuleType) -> Iterator[tuple[Target, type]]:
    """Yield the classes that the import of a module has registered and kept at no name.

    Each comes with where it is: under a name that nothing has in the module, see :func:`find`.
    """
    seen: set[type] = set()
    for form, registry in registries().items():
        manager = getattr(sys.modules.get(registry.module), registry.manager, None)
        for name, cls in getattr(manager, registry.classes, {}).items():
            if cls in seen or not _own(module, cls.__module__) or _name_in(module, cls):
                continue
            seen.add(cls)
            free = _free(module, cls)
            yield attrs.evolve(target, qualname=free, known_as=f"{form}:{name}"), cls


def registered_by(function: Callable[[], object], form: str, target: Target) -> Target:
    """Return where the first class is that a function registers in a registry, if it does."""
    registry = registries()[form]
    manager = getattr(importlib.import_module(registry.module), registry.manager)
    kept = {name: getattr(manager, name) for name in (registry.places, registry.classes)}
    try:
        for name in kept:
            setattr(manager, name, {})
        function()
        places, classes = (getattr(manager, name) for name in kept)
    finally:
        for name, before in kept.items():
            setattr(manager, name, {**before, **getattr(manager, name)})
    for module, qualname in places.values():
        return attrs.evolve(target, module=module, qualname=qualname)
    for name, cls in classes.items():
        return at_its_name(target, cls, f"{form}:{name}")
    return target


def named(target: Target, module: ModuleType) -> Target:
    """Return where the class of a target is that its name, or the registered one, finds."""
    name = target.qualname
    if name is None or hasattr(module, name.partition(".")[0]):
        return target
    for place, cls in registered(target, module):
        _, _, known = str(place.known_as).rpartition(":")
        if name in (known, cls.__name__, cls.__qualname__):
            return place
    return target


def at_its_name(target: Target, cls: type, known_as: str) -> Target:
    """Return where a class is to be found that vLLM knows by a name.

    A registering function may make it: then no import reaches it, and it goes by a name that
    nothing has in its module, see :func:`find`.
    """
    module = sys.modules.get(cls.__module__)
    place = attrs.evolve(target, module=cls.__module__, qualname=cls.__qualname__)
    if module is not None and (name := _name_in(module, cls)) is not None:
        return attrs.evolve(place, qualname=name)
    return attrs.evolve(place, qualname=_free(module, cls), known_as=known_as)


def lost(target: Target, module: ModuleType) -> str | None:
    """Say that vLLM looks in vain for the class of a target, where it is registered so."""
    for form, registry in registries().items():
        manager = getattr(sys.modules.get(registry.module), registry.manager, None)
        for name, (place, cls) in getattr(manager, registry.places, {}).items():
            asked = target.qualname in (None, name, cls)
            if asked and place == module.__name__ and not hasattr(module, cls):
                return (
                    f"{form.replace('-', ' ')} {name!r} is registered as {place}:{cls}, and "
                    f"{place} has no {cls}, which a function makes: give register_module the class "
                    "there, as module="
                )
    return None


def find(known_as: str, text: str) -> type | None:
    """Return the class that vLLM knows by a name, if it does.

    *text* is the target that it was found by.
    """
    form, _, name = known_as.rpartition(":")
    if _called(form, text):
        importlib.import_module("vllm.plugins").load_general_plugins()
    if not form:
        entry = importlib.import_module(MODEL_REGISTRY).ModelRegistry.models.get(name)
        found: type | None = None if entry is None else entry.load_model_cls()
        return found
    registry = registries()[form]
    manager = getattr(importlib.import_module(registry.module), registry.manager)
    kept: dict[str, type] = getattr(manager, registry.classes)
    return kept.get(name)


def imports(place: Target | Plugin, text: str) -> tuple[str, str]:
    """Return statements that import a class, and an expression that is the class then.

    *text* is the target that it was found by.
    """
    if place.known_as is not None:
        return source(place.known_as, place.module, text)
    qualname = str(place.qualname)
    return f"from {place.module} import {qualname.partition('.')[0]}", qualname


def source(known_as: str, module: str, text: str) -> tuple[str, str]:
    """Return statements after which vLLM knows a class, and an expression that is it then.

    Args:
        known_as: what vLLM knows it by.
        module: what registers it as it is imported.
        text: the target that it was found by: vLLM calls what an entry point names.

    """
    form, _, name = known_as.rpartition(":")
    if form:
        registry = registries()[form]
        place, manager = registry.module, registry.manager
        found = f'{manager}.{registry.classes}["{name}"]'
    else:
        place, manager = MODEL_REGISTRY, "ModelRegistry"
        found = f'{manager}.models["{name}"].load_model_cls()'
    lines = [f"from {place} import {manager}"]
    if _called(form, text):
        lines += ["from vllm.plugins import load_general_plugins", ""]
        lines += ["load_general_plugins()  # an entry point makes the class"]
    else:
        lines = [f"import {module}  # it registers the class", *lines]
    return "\n".join(lines), found


def _called(form: str, text: str) -> bool:
    """Tell whether vLLM calls what registers a class: else the import of its module does."""
    return not form or bool(registering_entry(text))


def _own(module: ModuleType, name: str) -> bool:
    """Tell whether what has this ``__module__`` is defined in a module, or below it."""
    return (name + ".").startswith(module.__name__ + ".")


def _name_in(module: ModuleType, cls: type) -> str | None:
    """Return the name that finds a class in a module, its own before any other, or None."""
    if at_name(module, cls.__qualname__) is cls:
        return cls.__qualname__
    return next((key for key, value in vars(module).items() if value is cls), None)


def _free(module: ModuleType | None, cls: type) -> str:
    """Return a name for a class that nothing has in a module."""
    name = cls.__name__
    while hasattr(module, name):
        name += "_"
    return name
