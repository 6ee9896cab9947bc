# SPDX-License-Identifier: Apache-2.0
"""Checks of loading, construction, and how the hooks are called."""

from __future__ import annotations

import asyncio
import inspect
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FunctionType
from typing import Any

import vllm
from vllm.outputs import PoolingRequestOutput

from conformance.checking import checks
from conformance.counterexample.io_engine_player import settings_of
from conformance.engine.entry_points import TRIED, synthetic_distribution
from conformance.findings import Finding, failed, inapplicable, passed
from conformance.io_processor import DATA
from conformance.io_processor.bench import Bench, ConstructorRaised
from conformance.io_processor.documented import calls_parse_request, installed_constructor
from conformance.io_processor.prompts import parsed
from conformance.io_processor.trial import Trial
from conformance.plugin.target import IO_PROCESSORS
from conformance.watching.interruption import in_call, limited
from conformance.watching.raised import said

#: The module of the function that the entry point names, and the class that the function names.
_MODULE = "vllm_conformance_io_entry"

ASYNC = ("pre_process_async", "post_process_async")

_OUTPUTS: list[object] = []


@checks("IO-01")
def loads(trial: Trial) -> Finding:
    """vLLM finds the class by the name that an entry point's function returns."""
    bench = trial.bench
    if "<locals>" in bench.cls.__qualname__ or "." in bench.cls.__qualname__:
        return failed(
            f"vLLM finds no class inside another one: move {bench.cls.__qualname__} to the module"
        )
    from vllm.plugins.io_processors import get_io_processor
    from vllm.utils.import_utils import resolve_obj_by_qualname

    name = f"{bench.cls.__module__}.{bench.cls.__qualname__}"
    if resolve_obj_by_qualname(name) is not bench.cls:
        return failed(f"{name} is another object than the class itself")
    bench.make()  # where the constructor raises, that is another rule's affair
    documented = bench.generation != DATA
    if documented and not calls_parse_request():
        return passed(1)
    makes = inspect.signature(get_io_processor).parameters
    renderer = (bench.around.renderer,) if "renderer" in makes else ()
    with entry_point(name), installed_constructor():
        try:
            found = get_io_processor(bench.around.config, *renderer, TRIED)
        except Exception as error:
            why = said(error, bench.path)
            if documented:  # which asks for another constructor
                return failed(f"vLLM {vllm.__version__} cannot make it: {why}")
            # The constructor does not mind its first instance, but minds this one.
            raise ConstructorRaised(why) from error
    if type(found) is not bench.cls:
        return failed(f"vLLM made a {type(found).__name__} of {name}")
    return passed(2)


@contextmanager
def entry_point(qualname: str) -> Iterator[Path]:
    """Install an entry point for a class in a temporary folder, for the time of the block."""
    with tempfile.TemporaryDirectory(prefix="vllm-conformance-") as name:
        folder = Path(name)
        module = entry_module(folder, qualname)
        synthetic_distribution(
            folder, name=TRIED, group=IO_PROCESSORS, entries={TRIED: f"{module}:qualname"}
        )
        sys.path.insert(0, name)
        try:
            yield folder
        finally:
            sys.path.remove(name)
            sys.modules.pop(_MODULE, None)


def entry_module(folder: Path, qualname: str) -> str:
    """Write a module whose function ``qualname`` returns the dotted name of a class.

    Returns:
        The name of the module.

    """
    folder.mkdir(parents=True, exist_ok=True)
    source = f'def qualname():\n    return "{qualname}"\n'
    (folder / f"{_MODULE}.py").write_text(source, encoding="utf-8")
    return _MODULE


@checks("IO-02")
def constructor(trial: Trial) -> Finding:
    """Instances are made as the host makes them, and leave the configuration alone."""
    bench = trial.bench
    for time in ("", " a second time"):
        try:
            bench.make()
        except ConstructorRaised as error:
            arguments = "vllm_config, renderer" if bench.generation == DATA else "vllm_config"
            return failed(f"{bench.cls.__name__}({arguments}) raised {error}{time}")
    now = settings_of(bench.around.config)
    if changed := sorted(key for key, value in now.items() if bench.configured.get(key) != value):
        return failed(f"the constructor changed {', '.join(changed)} of the configuration")
    return passed(2)


@checks("IO-03")
def takes_renderer(trial: Trial) -> Finding:
    """The constructor takes a second argument."""
    bench = trial.bench
    try:
        with in_call("__init__"):
            bench.cls(bench.around.config, bench.around.renderer)
    except TypeError as error:
        # A release that hands a renderer over cannot load it: that is told once.
        return trial.broken(("IO-01",)) or failed(
            f"{bench.cls.__name__}(vllm_config, renderer) raised {said(error, bench.path)}"
        )
    return passed(1)


@checks("IO-05")
def signatures(trial: Trial) -> Finding:
    """Every hook can be called with the arguments that hosts give it."""
    return uncallable(trial.bench) or passed(1)


def uncallable(bench: Bench) -> Finding | None:
    """Return which hook cannot be called as hosts call it, or None."""
    made = bench.make().plugin
    parse = "parse_data" if bench.generation == DATA else "parse_request"
    calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
        (parse, ({},), {}),
        (bench.asked, (), {}),
        (bench.asked, (None,), {}),
        ("pre_process", (), {"prompt": None, "request_id": "id"}),
        ("pre_process", (), {"prompt": None}),
        ("post_process", (_OUTPUTS,), {"request_id": "id"}),
        ("post_process", (_OUTPUTS,), {}),
        ("pre_process_async", (), {"prompt": None, "request_id": "id"}),
        ("post_process_async", (_OUTPUTS,), {"request_id": "id"}),
        ("post_process_async", (), {"model_output": None, "request_id": "id"}),
    ]
    for name, arguments, keywords in calls:
        try:
            _signature(made, name).bind(*arguments, **keywords)
        except TypeError as error:
            given = [*("..." for _ in arguments), *(f"{key}=..." for key in keywords)]
            why = f"{name}({', '.join(given)}) is not possible: {error}"
            return failed(why, case={"hook": name})
        except ValueError:  # a callable that hides its signature
            continue
    return None


def _signature(made: object, name: str) -> inspect.Signature:
    """Return what a call of a hook binds its arguments to.

    A descriptor such as functools.singledispatchmethod hands out a function that takes anything,
    and says that it wraps one that takes self, too.
    """
    found, written = getattr(made, name), inspect.getattr_static(made, name)
    own = isinstance(written, FunctionType | staticmethod)
    return inspect.signature(found, follow_wrapped=own or not isinstance(found, FunctionType))


@checks("IO-06")
def awaitable(trial: Trial) -> Finding:
    """What is overridden of the awaited hooks returns what can be awaited."""
    if not (names := overridden(trial.bench)):
        return none_awaited()
    plain = [
        name for name in names if not inspect.iscoroutinefunction(getattr(trial.bench.cls, name))
    ]
    if plain and (name := _unawaitable(trial, plain)):
        why = f"{name} is no coroutine function: awaiting what it returns raises TypeError"
        return failed(why, case={"hook": name})
    return passed(len(names))


def _unawaitable(trial: Trial, names: list[str]) -> str | None:
    """Return which of the hooks that are no coroutine functions returns nothing to await.

    Such a function may return a future, so it is called with a request that is answered.
    """
    trial.prepare()
    if not trial.bench.stock.valid:
        return names[0]
    plugin = trial.bench.make().plugin
    prompt = parsed(plugin, trial.bench, trial.bench.stock.valid[0])

    async def ask() -> str | None:
        for name in ASYNC:
            given = {"prompt": prompt} if name == ASYNC[0] else {"model_output": _no_outputs()}
            hook = getattr(plugin, name)
            with in_call(name):
                answer = hook(**given, request_id="id-0")
            if not inspect.isawaitable(answer):
                return name
            with suppress(Exception):  # of no outputs it need not make an answer
                await answer
        return None

    try:
        with limited():
            return asyncio.run(ask())
    except Exception:  # noqa: BLE001 - rules about requests tell that
        return None


async def _no_outputs() -> AsyncIterator[tuple[int, PoolingRequestOutput]]:
    none: tuple[tuple[int, PoolingRequestOutput], ...] = ()
    for output in none:
        yield output


def overridden(bench: Bench) -> list[str]:
    """Return the awaited hooks that the class defines itself."""
    from vllm.plugins.io_processors.interface import IOProcessor

    return [name for name in ASYNC if getattr(bench.cls, name) is not getattr(IOProcessor, name)]


def none_awaited() -> Finding:
    """Return the finding that a rule about awaited hooks does not apply."""
    return inapplicable("the plugin leaves the awaited hooks to the base class")
