# SPDX-License-Identifier: Apache-2.0
"""What runs in worker processes: describing targets, and the trials of one plugin.

The only module outside the generation folders that imports plugin code.
"""

from __future__ import annotations

import importlib
import inspect
import math
import platform
import sys
import traceback
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from conformance import hindrances, interruption
from conformance import profile as profiles
from conformance import target as targets
from conformance.engine.environment import eager
from conformance.generations import all_generations, named
from conformance.rules import nearest
from conformance.settings import UsageError
from conformance.target import LoadFailure, Plugin, Target
from conformance.verdict import RuleResult, Verdict, must_wait

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.connection import Connection

    from conformance.rules import Evidence, Generation
    from conformance.settings import Settings


def describe(connection: Connection, wanted: Sequence[Target]) -> None:
    """Answer with the plugins of all targets, or a ``UsageError`` for the first that has none."""
    connection.recv()
    try:
        connection.send([plugin for target in wanted for plugin in _plugins(target)])
    except UsageError as error:
        connection.send(error)


def trial(
    connection: Connection,
    *,
    plugin: Plugin,
    evidence: Evidence,
    settings: Settings,
    model: str,
    folder: str,
) -> None:
    """Answer each rule id with its result, until the caller hangs up."""
    generation = named(plugin.generation)
    opened: Any = None
    interruption.tell_progress(partial(_tell, connection))
    try:
        try:
            cls = class_of(plugin)
            profile = profile_of(plugin, settings)
            opened = importlib.import_module(generation.suite).open_trial(
                evidence,
                cls,
                plugin,
                profile.section(generation.interface) if profile else {},
                origin=profile.origin if profile else None,
                model=model,
                settings=settings,
                folder=folder,
            )
        except (UsageError, LoadFailure) as error:
            connection.recv()
            connection.send(UsageError(str(error)))
            return
        except Exception as error:  # noqa: BLE001 - reported as whose fault it is
            traceback.print_exc()
            try:
                opened = _unopened(error, plugin, evidence)
            except UsageError as mistake:
                connection.recv()
                connection.send(mistake)
                return
        while True:
            rule = connection.recv()
            if rule == "context":
                connection.send(_context(opened))
                continue
            connection.send(_check(opened, rule, evidence, connection))
    except EOFError:
        pass
    finally:
        if hasattr(opened, "close"):
            opened.close()


def _tell(connection: Connection) -> None:
    """Say that the trial gets on."""
    with suppress(OSError):  # nobody asks any more
        connection.send("")


def replay(connection: Connection, plugin: Plugin, case: dict[str, Any], model: str) -> None:
    """Play a counterexample again; answer with the kinds of trouble and a message."""
    connection.recv()
    suite = importlib.import_module(named(plugin.generation).suite)
    connection.send(suite.replay(class_of(plugin), case["counterexample"], model=model))


def _check(opened: Any, rule: str, evidence: Evidence, connection: Connection) -> RuleResult:  # noqa: ANN401
    if hasattr(opened, "progress"):
        opened.progress = connection.send
    try:
        result = opened.check(rule)
    except Exception as error:  # noqa: BLE001 - reported as the harness's own fault
        traceback.print_exc()
        return RuleResult(rule, Verdict.ERROR, evidence, message=_named(error))
    if not isinstance(result, RuleResult):
        return RuleResult(rule, Verdict.ERROR, evidence, message=f"the check gave {result!r}")
    return attrs.evolve(result, counterexample=_plain(result.counterexample))


def _plain(value: Any) -> Any:  # noqa: ANN401 - any value of a counterexample or a profile
    """Return a value as JSON has it; what JSON cannot say becomes a string.

    A type of vLLM, torch or a generation would make the caller import it, and so would an enum.
    """
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Enum):
        return _plain(value.value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no infinity, and float() reads it back
    return value if isinstance(value, str | int | float | bool | None) else repr(value)


def _unopened(error: Exception, plugin: Plugin, evidence: Evidence) -> _Unopened:
    """Return a trial that could not be opened, and whose fault that is.

    Raises:
        UsageError: that of what else is installed.

    """
    try:
        hindrances.explain(error, plugin)
    except LoadFailure as failure:
        return _Unopened(str(failure), evidence, named(plugin.generation).loading_rule)
    return _Unopened(f"the trial could not be opened: {_named(error)}", evidence)


@attrs.frozen
class _Unopened:
    """A trial that could not be opened: one rule is broken and the others wait, or all are errors.

    Without a rule that is broken the harness is to blame.
    """

    message: str
    evidence: Evidence
    broken: str | None = None

    def check(self, rule: str) -> RuleResult:
        if self.broken is None:
            return RuleResult(rule, Verdict.ERROR, self.evidence, message=self.message)
        if rule == self.broken:
            return RuleResult(rule, Verdict.FAIL, self.evidence, 1, 1, message=self.message)
        waits = must_wait([self.broken])
        return RuleResult(rule, Verdict.NOT_VERIFIED, self.evidence, message=waits)


def _plugins(target: Target) -> list[Plugin]:
    """Return the plugins of one target.

    Raises:
        UsageError: it has none, or asks for a generation that there is not.

    """
    _check_generation(target)
    source = targets.find_source(target)
    try:
        target = targets.resolved(target)
        for generation in all_generations():
            suite = importlib.import_module(generation.suite)
            if hasattr(suite, "resolved"):
                target = suite.resolved(target)
        source = targets.find_source(target)
        if target.qualname is not None:
            cls = targets.load_class(target)
            source = targets.source_of(cls) or source
            served = _generations(cls, target)
            # By the name that vLLM would be given: what a package hands on under another one.
            return [
                _describe(target, target.qualname, generation, source, broken, many=len(served) > 1)
                for generation, broken in served
            ]
        module = targets.load_module(target)
    except LoadFailure as error:
        # Nothing is known of the class but its source: the first interface answers for it.
        generation = named(target.generation or _likely(target))
        return [_describe(target, target.qualname, generation, source, str(error))]
    classes = targets.classes_of(module)
    judged = [(cls, *one) for cls in classes for one in _generations(cls, target)]
    plugins = [entry for entry in judged if entry[2] is None and not inspect.isabstract(entry[0])]
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
            f"(classes: {names})."
        )
    return found


def _likely(target: Target) -> str:
    """Return the generation that answers for what cannot be loaded."""
    group = target.text.removeprefix("entry-point:").partition("/")[0]
    return _OF_GROUP.get(group, all_generations()[0].name)


#: The generation of what an entry point's function names or registers, by the group.
_OF_GROUP: Mapping[str, str] = {
    targets.IO_PROCESSORS: "io/data",
    targets.GENERAL_PLUGINS: "mm/processor",
}


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
    suites = [(g, importlib.import_module(g.suite)) for g in all_generations()]
    if target.generation is not None:
        suites = [(g, suite) for g, suite in suites if g.name == target.generation]
    if found := [(generation, None) for generation, suite in suites if suite.recognises(cls)]:
        return list(found)
    for generation, suite in suites:
        if suite.meant(cls) or target.generation:
            return [(generation, f"{cls.__name__} is not a subclass of {suite.BASE}")]
    bases = " or ".join(dict.fromkeys(suite.BASE for _, suite in suites))
    return [(suites[0][0], f"{cls.__name__} is no vLLM plugin: it is not a subclass of {bases}")]


def _meant(cls: type) -> bool:
    return any(importlib.import_module(g.suite).meant(cls) for g in all_generations())


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
        digest=targets.digest_of(source),
        version=targets.version_of(target),
        broken=broken,
    )


def class_of(plugin: Plugin) -> type:
    """Import the class of a plugin.

    Raises:
        LoadFailure: importing it raised.

    """
    return targets.load_class(Target(plugin.target, plugin.module, plugin.qualname, plugin.root))


def profile_of(plugin: Plugin, settings: Settings) -> profiles.Profile | None:
    """Return the profile that a run names, or the one beside the plugin."""
    if settings.profile is not None:
        return profiles.load(settings.profile, settings.directory)
    return profiles.find(plugin.path)


def _context(opened: Any) -> dict[str, Any]:  # noqa: ANN401 - a trial of any generation
    """Return what a certificate says about where and with what the rules were tried."""
    import torch
    import vllm

    told: dict[str, Any] = {}
    try:
        told = opened.context() if hasattr(opened, "context") else {}
    except Exception:  # noqa: BLE001 - a server that is not there has no name; its rules say so
        traceback.print_exc()
    on_gpu = told.get("device") == "cuda"
    return {
        "vllm": vllm.__version__,
        # Its own type would make the reader import torch.
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "executable": Path(sys.executable).name,
        **_plain(told),
        **({"host_cuda_graphs": "off" if eager("cuda") else "on"} if on_gpu else {}),
    }


def _named(error: BaseException) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(frame.filename).name}:{frame.lineno})"
