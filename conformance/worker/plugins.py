# SPDX-License-Identifier: Apache-2.0
"""The plugins of a target, found by importing it in a worker process."""

from __future__ import annotations

import inspect
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import attrs

from conformance.generations import all_generations, named
from conformance.interface import Generation
from conformance.plugin import files, likeness, loader, registration
from conformance.plugin import target as targets
from conformance.plugin.loader import LoadFailure, Unavailable
from conformance.plugin.target import Plugin, Target
from conformance.rules import nearest
from conformance.settings import UsageError
from conformance.worker import installed, limits, private

#: Why a file with a function that registers a parser may have none.
_UNCALLED = (
    ", and registers none when it is imported: vLLM calls nothing in a file that it is given, so a "
    "function that registers a parser has to be called by"
)


def describe(
    connection: Connection,
    wanted: Sequence[Target],
    environment: Mapping[str, str],
    interfaces: frozenset[str],
) -> None:
    """Answer with the plugins of all targets, or a ``UsageError`` for the first that has none.

    ``environment`` are the variables that the profile sets, ``interfaces`` those that it is for.
    """
    connection.recv()
    os.environ.update(environment)
    private.keep()
    limits.limit_memory()
    before = private.Surroundings.take()
    try:
        connection.send([one for each in wanted for one in _plugins(each, before, interfaces)])
    except UsageError as error:
        connection.send(error)


def _plugins(
    target: Target, before: private.Surroundings, interfaces: frozenset[str]
) -> list[Plugin]:
    """Return the plugins of one target.

    Raises:
        UsageError: it has none, or asks for a generation that there is not.

    """
    _check_generation(target)
    source = files.find_source(target)
    try:
        target = loader.resolved(target)
        for suite in installed.suites().values():
            target = suite.resolved(target)
        source = files.find_source(target)
        try:
            module = loader.load_module(target)
        finally:
            before.put_back(source)  # nothing more of the plugin is called here
        target = registration.named(target, module)
        if target.qualname is not None:
            cls = loader.load_class(target)
            if not files.is_made(cls):
                source = files.source_of(cls) or source
            served = _generations(cls, target, interfaces)
            if all(broken for _, broken in served):
                installed.require_hosts()
            # By the name that vLLM would be given: what a package hands on under another one.
            return [
                _describe(target, generation, source, broken, many=len(served) > 1)
                for generation, broken in served
            ]
        classes = registration.classes_of(module)
        places = [(attrs.evolve(target, qualname=name), cls) for name, cls in classes.items()]
        places += registration.registered(target, module)
        if any(suite.recognises(cls) for _, cls in places for suite in installed.suites().values()):
            interfaces = frozenset()  # the others are helpers
        judged = [(*one, *of) for one in places for of in _generations(one[1], target, interfaces)]
        plugins = [one for one in judged if one[3] is None and not inspect.isabstract(one[1])]
        if not plugins:
            installed.require_hosts()
        # Beside plugins, a class that is abstract or merely looks like one is a base or a helper;
        # alone, it is what the author meant.
        chosen = plugins or [entry for entry in judged if _meant(entry[1])]
        if not chosen:
            loader.find_registered(target, module)
    except LoadFailure as error:
        # Nothing is known of the class but its source.
        generation = named(likeness.likely(target, source))
        broken = _describe(target, generation, source, str(error))
        return [attrs.evolve(broken, unavailable=isinstance(error, Unavailable))]
    count = Counter(cls for _, cls, *_ in chosen)
    found = [
        _describe(place, generation, source, broken, many=count[cls] > 1, whole=True)
        for place, cls, generation, broken in chosen
    ]
    if not found:
        names = ", ".join(classes) or "none"
        uncalled = f"{_UNCALLED} {target.module}." if "register_module(" in _text(source) else "."
        raise UsageError(
            f"target {target.text!r}: {target.module} defines no vLLM plugin "
            f"(classes: {names})" + (targets.registering(target.module) or uncalled)
        )
    return found


def _check_generation(target: Target) -> None:
    """Refuse a target that asks for a generation that there is not."""
    names = [generation.name for generation in all_generations()]
    if target.generation is not None and target.generation not in names:
        raise UsageError(
            f"target {target.text!r}: there is no generation {target.generation!r} "
            f"(there are {', '.join(names)})." + nearest(target.generation, names)
        )


def _generations(
    cls: type, target: Target, interfaces: frozenset[str]
) -> list[tuple[Generation, str | None]]:
    """Return the generations of a class, or one and why it cannot be a plugin of it."""
    known = installed.suites()
    suites = [(g, known[g.name]) for g in all_generations() if g.name in known]
    if target.generation is not None:
        suites = [(g, suite) for g, suite in suites if g.name == target.generation]
    if found := [(generation, None) for generation, suite in suites if suite.recognises(cls)]:
        return list(found)
    for generation, suite in suites:
        said = target.generation or generation.interface in interfaces
        if said and suite.possible(cls):
            return [(generation, None)]
    for generation, suite in suites:
        if suite.meant(cls) or target.generation:
            return [(generation, f"{cls.__name__} is not a subclass of {suite.base}")]
    bases = " or ".join(dict.fromkeys(suite.base for _, suite in suites))
    why = f"{cls.__name__} is no vLLM plugin: it is not a subclass of {bases}"
    if able := [generation.name for generation, suite in suites if suite.possible(cls)]:
        why += f"; if it is meant to be one of {', '.join(able)}, give {target.text}@{able[0]}"
    return [(suites[0][0], why)]


def _text(source: str | None) -> str:
    """Return what stands in a file, if it can be read."""
    try:
        return Path(source).read_text(encoding="utf-8") if source else ""
    except (OSError, ValueError):
        return ""


def _meant(cls: type) -> bool:
    return any(suite.meant(cls) for suite in installed.suites().values())


def _describe(
    target: Target,
    generation: Generation,
    source: str | None,
    broken: str | None,
    *,
    many: bool = False,
    whole: bool = False,
) -> Plugin:
    """Return a plugin as data.

    Args:
        target: where its class is.
        generation: its own.
        source: its file.
        broken: why it could not be loaded.
        many: whether its class serves other generations, too.
        whole: whether the whole module was asked for.

    """
    text = f"{target.text}:{target.qualname}" if whole else target.text
    return Plugin(
        target=f"{text}@{generation.name}" if many or target.generation else text,
        interface=generation.interface,
        generation=generation.name,
        module=target.module,
        qualname=target.qualname or "",
        root=target.root,
        path=source,
        digest=files.digest_of(source),
        version=targets.version_of(target),
        broken=broken,
        known_as=target.known_as,
    )
