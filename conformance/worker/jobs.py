# SPDX-License-Identifier: Apache-2.0
"""The trials of one plugin, and its cases played again, in a worker process."""

from __future__ import annotations

import os
import platform
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from vllm.logger import init_logger

from conformance import foreign_build
from conformance.coverage import lines
from conformance.engine import control, held
from conformance.engine.environment import chosen_device, eager, give_cores
from conformance.engine.models import tiny_llama
from conformance.engine.server import hold
from conformance.engine.server_log import difference, read_log
from conformance.generations import named
from conformance.inputs import constants
from conformance.plugin import loader
from conformance.plugin import profile as profiles
from conformance.plugin.expectation import located
from conformance.plugin.loader import LoadFailure
from conformance.plugin.profile import Profile
from conformance.plugin.target import Plugin, Target
from conformance.rules import Evidence
from conformance.settings import Settings, UsageError
from conformance.suite import FEW_RULES, Opening, Replayed, Suite, Trial, unreadable
from conformance.verdict import RuleResult
from conformance.watching import interruption, loading
from conformance.watching.elsewhere import Elsewhere
from conformance.watching.loading import Observer
from conformance.worker import installed, limits, private
from conformance.worker.guarded import Guarded, plain
from conformance.worker.signs import RETURNED


def trial(
    connection: Connection,
    *,
    plugin: Plugin,
    evidence: Evidence,
    settings: Settings,
    model: str,
    folder: str,
    rules: frozenset[str],
    sheet: lines.Sheet | None = None,
    elsewhere: Elsewhere | None = None,
) -> None:
    """Answer each of these rule ids with its result, until the caller hangs up."""
    generation = named(plugin.generation)
    suite = installed.suite_of(generation)
    # A plugin may replace the methods of a class; the caller's questions and answers are ours.
    send, receive = connection.send, connection.recv
    interruption.tell_progress(partial(_tell, send, ""))
    interruption.tell_returned(partial(_tell, send, RETURNED))
    private.keep()
    if evidence is Evidence.SIMULATOR:
        limits.limit_memory()  # engines and servers need what they need
        constants.leave_out_host()
    give_cores(settings.ranks, chosen_device(settings.device))
    problems: list[Exception] = []
    lines.watch(sheet, always=evidence is Evidence.OFFLINE or suite.called_by_host)
    variables = dict(os.environ)
    model = _model(plugin, settings, problems) or model  # before the plugin is imported
    changed = {name: said for name, said in os.environ.items() if variables.get(name) != said}
    # vLLM may have read a variable when it was imported: then a server has to import it anew.
    own = evidence is Evidence.SERVER and not settings.server_url
    unchanged = not changed and chosen_device(settings.device) == "cpu"
    if own and suite.imports_in_server and unchanged:
        hold()
    observer = _observer(suite, plugin, settings, model=model, evidence=evidence, problems=problems)
    if observer and len(rules) > FEW_RULES:
        observer.begin()

    def opening() -> Trial:
        cls = _class(plugin, suite, problems)
        profile = profiles.of_plugin(plugin, settings)
        return suite.open_trial(
            Opening(
                evidence=evidence,
                cls=cls,
                plugin=plugin,
                section=_section(profile, generation.interface) if profile else {},
                origin=profile.origin if profile else None,
                model=model,
                settings=settings,
                folder=folder,
                rules=rules,
                observer=observer,
                elsewhere=elsewhere,
                progress=send,
            )
        )

    asked = (
        partial(_why_not, suite, plugin, evidence, settings, model=model, folder=folder),
        partial(_difference, evidence, folder=folder),
    )
    surroundings = private.Surroundings.take()
    shared = _shared(suite, plugin, settings, model, observer)
    guarded = Guarded(
        plugin,
        evidence,
        opening,
        surroundings,
        *asked,
        shared,
        changed,
        suite.serves,
        _invents_tokenizer(plugin, settings),
    )
    try:
        # The second comes from a caller that was killed.
        with suppress(EOFError, ConnectionResetError):
            _answer(guarded, receive, send, partial(_context, evidence=evidence, observer=observer))
    finally:
        if observer is not None:
            observer.close()
        guarded.close()
        held.let_go()


def _answer(
    guarded: Guarded,
    receive: Callable[[], Any],
    send: Callable[[object], None],
    context: Callable[[Trial, float], Mapping[str, Any]],
) -> None:
    """Open a trial, and answer what is asked of it."""
    try:
        guarded.open()
    except (UsageError, LoadFailure) as error:
        receive()
        send(error)
        return
    patience = 0.0  # who asks early asks again
    while True:
        rule = receive()
        if rule == "context":
            send(context(guarded.opened, patience))
            patience = loading.NOTES_LIMIT
            continue
        send(guarded.check(rule))


def _section(profile: Profile, interface: str) -> Mapping[str, Any]:
    """Return what a profile says of an interface.

    Raises:
        UsageError: ``expected`` names no function.

    """
    return located(profile.section(interface), profile.folder, profile.origin)


def _model(plugin: Plugin, settings: Settings, problems: list[Exception]) -> str | None:
    """Deploy a profile; what is wrong with it is for whoever opens the trial."""
    try:
        return deployed(plugin, settings)
    except UsageError as error:
        problems.append(error)
        return None


def _invents_tokenizer(plugin: Plugin, settings: Settings) -> bool:
    """Tell whether a profile might name the tokenizer that a plugin loads, and does not.

    Parsers do not load theirs: they are handed one, and a rule of their own is about that.
    """
    generation = named(plugin.generation)
    if not plugin.generation.startswith("logits/"):
        return False
    with suppress(UsageError):  # opening the trial raises it again, where it is told
        profile = profiles.of_plugin(plugin, settings)
        section = profile.section(generation.interface) if profile else {}
        return "tokenizer" in generation.fields and "tokenizer" not in section
    return False


def deployed(plugin: Plugin, settings: Settings) -> str | None:
    """Set the variables that the profile names; return the model that it asks for, if any."""
    profile = profiles.of_plugin(plugin, settings)
    if profile is None:
        return None
    os.environ.update(profile.environment)
    section = profile.section(named(plugin.generation).interface)
    tokenizer, beside = section.get("tokenizer"), section.get("additional_config")
    config = section.get("config")
    if not tokenizer and not beside and not config:
        return None
    folder = Path(tokenizer) if tokenizer else None
    try:
        return str(tiny_llama(tokenizer=folder, additional_config=beside, config=config))
    except OSError as error:
        raise UsageError(
            f"profile {profile.origin}: tokenizer names no folder with a tokenizer: {error}."
        ) from None


def _why_not(
    suite: Suite,
    plugin: Plugin,
    evidence: Evidence,
    settings: Settings,
    *,
    model: str,
    folder: str,
) -> str | None:
    """Say why a host of our own does not start without the plugin either; None where it does."""
    if evidence is Evidence.SIMULATOR or (evidence is Evidence.SERVER and settings.server_url):
        return None
    own = suite.own_host(profiles.section_of(plugin, settings))
    encoding = settings.encoding
    for arguments in (settings.server_arguments, *([encoding.arguments] if encoding else [])):
        why = control.why_not(
            own.model if own else model,
            package=None if own and own.of_plugin else plugin.module.partition(".")[0],
            log=_log_without(folder, evidence),
            device=chosen_device(settings.device),
            runner=suite.runner,
            arguments=(*(own.arguments if own else ()), *arguments),
        )
        if why is not None:
            return why
    return None


def _log_without(folder: str, evidence: Evidence) -> Path:
    return Path(folder) / f"{evidence.value}-without-plugin.log"


def _difference(evidence: Evidence, *, folder: str) -> str | None:
    """Write what only the log with the plugin says; return where, or None if that is nothing."""
    without = _log_without(folder, evidence)
    logs = [path for path in without.parent.glob(f"{evidence.value}*.log") if path != without]
    last = max(logs, key=lambda path: path.stat().st_mtime, default=None)
    if last is None or not without.is_file():
        return None
    found = difference(read_log(last), read_log(without))
    shown = without.with_name(f"{evidence.value}-only-with-plugin.txt")
    shown.write_text("\n".join((*found, "")), encoding="utf-8")
    return str(shown) if found else None


def _class(plugin: Plugin, suite: Suite, problems: list[Exception]) -> type:
    """Import a plugin; vLLM has to get on with what it replaced."""
    if problems:
        raise problems.pop(0)
    with lines.watched():
        cls = class_of(plugin)
    if private.replaces(plugin.path):
        init_logger("vllm.plugin")  # as whatever it imports from now on does
        suite.forget()
    return cls


def _shared(
    suite: Suite, plugin: Plugin, settings: Settings, model: str, observer: Observer | None
) -> Mapping[str, Callable[[], RuleResult]]:
    """Return how the rule is judged about what loading leaves to others, if not by the trial."""
    if suite.shares is None:
        return {}
    rule, made = suite.shares
    survives = named(plugin.generation).survival_rule
    takes = suite.loading

    def taken() -> Mapping[str, Any] | None:
        return takes(model, profiles.section_of(plugin, settings)) if takes else None

    return {rule: partial(loading.result, rule, observer, made, survives, taken)}


def _observer(
    suite: Suite,
    plugin: Plugin,
    settings: Settings,
    *,
    model: str,
    evidence: Evidence,
    problems: list[Exception],
) -> Observer | None:
    """Return the process that finds out what loading a plugin does, for the first evidence.

    What went wrong is explained when the trial is opened.
    """
    if evidence is not Evidence.SIMULATOR:
        return None
    try:
        suite.prepare()  # once, and not in each of the processes that follow
        section = profiles.section_of(plugin, settings)
        maker = suite.maker(model, section) if suite.maker else None
    except Exception as error:  # noqa: BLE001 - any
        problems.append(error)
        return None
    return Observer.fork(_target(plugin), maker, private.put_functions_back)


def _tell(send: Callable[[object], None], sign: object) -> None:
    """Give the caller a sign of life."""
    with suppress(OSError):  # nobody asks any more
        send(sign)


def replay(
    connection: Connection, plugin: Plugin, case: dict[str, Any], model: str, settings: Settings
) -> None:
    """Play a counterexample again; answer with the kinds of trouble and a message."""
    connection.recv()
    try:
        connection.send(_replayed(plugin, case, deployed(plugin, settings) or model, settings))
    except UsageError as error:
        connection.send(unreadable(error))
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        connection.send(unreadable(f"{type(error).__name__}: {error}"))


def _replayed(plugin: Plugin, case: dict[str, Any], model: str, settings: Settings) -> Replayed:
    suite = installed.suite_of(named(plugin.generation))
    of_loading = "effect" in case["counterexample"]
    if suite.shares is not None and case["rule"] == suite.shares[0] and of_loading:
        return _loaded_again(suite, plugin, settings, model)
    return suite.replay(class_of(plugin), case["counterexample"], model)


def _loaded_again(suite: Suite, plugin: Plugin, settings: Settings, model: str) -> Replayed:
    """Load a plugin again; return what there is of harm now."""
    problems: list[Exception] = []
    evidence = Evidence.SIMULATOR
    observer = _observer(suite, plugin, settings, model=model, evidence=evidence, problems=problems)
    if observer is None:
        return unreadable(problems[0])
    try:
        (judge,) = _shared(suite, plugin, settings, model, observer).values()
        return loading.again(judge())
    finally:
        observer.close()


def class_of(plugin: Plugin) -> type:
    """Import the class of a plugin.

    Raises:
        LoadFailure: importing it raised.

    """
    return loader.load_class(_target(plugin))


def _target(plugin: Plugin) -> Target:
    return Target(
        plugin.target,
        plugin.module,
        plugin.qualname,
        plugin.root,
        known_as=plugin.known_as,
    )


def _context(
    opened: Trial, patience: float, *, evidence: Evidence, observer: Observer | None
) -> dict[str, Any]:
    """Return what a certificate says about where and with what the rules were tried.

    What loading the plugin does is waited for as long as ``patience`` seconds.
    """
    import torch
    import vllm

    told: Mapping[str, Any] = {}
    try:
        told = opened.context()
    except Exception:  # noqa: BLE001 - a server that is not there has no name; its rules say so
        traceback.print_exc()
    if observer is not None and (found := observer.notes(patience)):
        told = {**told, "notes": [*told.get("notes", ()), found]}
    on_gpu = told.get("device") == "cuda"
    return {
        "vllm": vllm.__version__,
        # Its own type would make the reader import torch.
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "executable": Path(sys.executable).name,
        **plain(told),
        **foreign_build.noted(evidence),
        **({"host_cuda_graphs": "off" if eager("cuda") else "on"} if on_gpu else {}),
    }
