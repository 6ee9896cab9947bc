# SPDX-License-Identifier: Apache-2.0
"""The plugins of a target, found by importing it in a worker process."""

from __future__ import annotations

import inspect
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection

import attrs

from conformance.generations import all_generations, named
from conformance.interface import Generation
from conformance.plugin import files, likeness, loader
from conformance.plugin import target as targets
from conformance.plugin.loader import LoadFailure, Unavailable
from conformance.plugin.target import Plugin, Target
from conformance.rules import nearest
from conformance.settings import UsageError
from conformance.worker import installed, limits, private


def describe(
    connection: Connection, wanted: Sequence[Target], environment: Mapping[str, str]
) -> None:
    """Answer with the plugins of all targets, or a ``UsageError`` for the first that has none.

    ``environment`` are the variables that the profile sets.
    """
    connection.recv()
    os.environ.update(environment)
    private.keep()
    limits.limit_memory()
    before = private.Surroundings.take()
    try:
        connection.send([plugin for target in wanted for plugin in _plugins(target, before)])
    except UsageError as error:
        connection.send(error)


def _plugins(target: Target, before: private.Surroundings) -> list[Plugin]:
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
        if target.qualname is not None:
            cls = loader.load_class(target)
            source = files.source_of(cls) or source
            served = _generations(cls, target)
            if all(broken for _, broken in served):
                installed.require_hosts()
            # By the name that vLLM would be given: what a package hands on under another one.
            return [
                _describe(target, target.qualname, generation, source, broken, many=len(served) > 1)
                for generation, broken in served
            ]
        classes = loader.classes_of(module)
        judged = [(cls, *one) for cls in classes for one in _generations(cls, target)]
        plugins = [one for one in judged if one[2] is None and not inspect.isabstract(one[0])]
        if not plugins:
            installed.require_hosts()
    except LoadFailure as error:
        # Nothing is known of the class but its source.
        generation = named(likeness.likely(target, source))
        broken = _describe(target, target.qualname, generation, source, str(error))
        return [attrs.evolve(broken, unavailable=isinstance(error, Unavailable))]
    # Beside plugins, a class that is abstract or merely looks like one is a base or a helper;
    # alone, it is what the author meant.
    chosen = plugins or [entry for entry in judged if _meant(entry[0])]
    count = Counter(cls for cls, *_ in chosen)
    found = [
        _describe(target, cls.__qualname__, generation, source, broken, many=count[cls] > 1)
        for cls, generation, broken in chosen
    ]
    if not found:
        names = ", ".join(cls.__name__ for cls in classes) or "none"
        raise UsageError(
            f"--plugin-path {target.text!r}: {target.module} defines no vLLM plugin "
            f"(classes: {names})" + (targets.registering(target.module) or ".")
        )
    return found


def _check_generation(target: Target) -> None:
    """Refuse a target that asks for a generation that there is not."""
    names = [generation.name for generation in all_generations()]
    if target.generation is not None and target.generation not in names:
        raise UsageError(
            f"--plugin-path {target.text!r}: there is no generation {target.generation!r} "
            f"(there are {', '.join(names)})." + nearest(target.generation, names)
        )


def _generations(cls: type, target: Target) -> list[tuple[Generation, str | None]]:
    """Return the generations of a class, or one and why it cannot be a plugin of it."""
    known = installed.suites()
    suites = [(g, known[g.name]) for g in all_generations() if g.name in known]
    if target.generation is not None:
        suites = [(g, suite) for g, suite in suites if g.name == target.generation]
    if found := [(generation, None) for generation, suite in suites if suite.recognises(cls)]:
        return list(found)
    for generation, suite in suites:
        if suite.meant(cls) or target.generation:
            return [(generation, f"{cls.__name__} is not a subclass of {suite.base}")]
    bases = " or ".join(dict.fromkeys(suite.base for _, suite in suites))
    return [(suites[0][0], f"{cls.__name__} is no vLLM plugin: it is not a subclass of {bases}")]


def _meant(cls: type) -> bool:
    return any(suite.meant(cls) for suite in installed.suites().values())


def _describe(
    target: Target,
    qualname: str | None,
    generation: Generation,
    source: str | None,
    broken: str | None,
    *,
    many: bool = False,
) -> Plugin:
    """Return a plugin as data; ``many`` tells whether its class serves other generations too."""
    whole = target.qualname is None and qualname is not None
    text = f"{target.text}:{qualname}" if whole else target.text
    return Plugin(
        target=f"{text}@{generation.name}" if many or target.generation else text,
        interface=generation.interface,
        generation=generation.name,
        module=target.module,
        qualname=qualname or "",
        root=target.root,
        path=source,
        digest=files.digest_of(source),
        version=targets.version_of(target),
        broken=broken,
        architecture=target.architecture,
    )
