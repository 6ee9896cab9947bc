# SPDX-License-Identifier: Apache-2.0
"""What a process shares: taken down before and after something, and compared.

Everything in a process has one generator of random numbers, one default dtype, one handler for
each signal; what a plugin changes of it, others feel.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from typing import Any

import attrs

from conformance.watching import replaced
from conformance.watching.descriptors import open_here
from conformance.watching.process_facts import (
    blanket_filters,
    generator_states,
    interpreter_hooks,
    logger_settings,
    signal_handlers,
    torch_settings,
)


class Kind(StrEnum):
    """What of a process is another one."""

    GENERATOR = "generator"  #: the state of a generator of random numbers
    SETTING = "setting"  #: a setting of torch that others compute with
    SIGNAL = "signal"  #: the handler of a signal
    LINGERING = "lingering"  #: a thread or a process that is left
    REPLACED = "replaced"  #: an attribute of the host
    HOOK = "hook"  #: a hook, a limit or the working folder
    ENVIRONMENT = "environment"  #: a variable
    PATH = "path"  #: an entry of ``sys.path``
    WARNINGS = "warnings"  #: a filter that takes in every warning
    LOGGING = "logging"  #: a logger that everything goes through
    FILE = "file"  #: a file or a socket that stays open
    TOKENIZER = "tokenizer"  #: a setting of the renderer's tokenizer


@attrs.frozen
class Effect:
    """One thing that was changed; data, which travels between processes."""

    kind: Kind
    name: str
    before: str | None = None
    after: str | None = None
    #: ``file.py:LINE``, or the module, of what took the place of something.
    who: str | None = None


@attrs.frozen(eq=False)
class Snapshot:
    """What a process shares, at one time."""

    facts: Mapping[tuple[Kind, str], Any]
    attributes: replaced.Attributes


def taken() -> Snapshot:
    """Take down what this process shares."""
    return Snapshot(dict(_facts()), replaced.attributes())


def changed(before: Snapshot) -> tuple[Effect, ...]:
    """Return what is other than it was."""
    return (*facts_changed(before), *attributes_replaced(before))


def attributes_replaced(before: Snapshot) -> tuple[Effect, ...]:
    """Return the attributes of modules and classes that are others than they were."""
    names = sorted(replaced.replaced(before.attributes))
    return tuple(Effect(Kind.REPLACED, name, who=who) for name, who in names)


def facts_changed(before: Snapshot) -> tuple[Effect, ...]:
    """Return what else is other than it was."""
    return tuple(_facts_changed(before.facts))


@contextmanager
def noted(effects: list[Effect]) -> Iterator[Callable[[], Iterator[Effect]]]:
    """Add to a list what is other after a block than before, but for attributes of modules.

    The block gets a function that yields what is other by then.
    """
    before = dict(_facts())
    try:
        yield partial(_facts_changed, before)
    finally:
        effects.extend(_facts_changed(before))


def sentence(effect: Effect) -> str:
    """Say what was changed, and by whom."""
    name, adds = effect.name, effect.after is not None
    said = {
        Kind.GENERATOR: f"draws from the global generator of {name}",
        Kind.LINGERING: f"{name} {effect.after}",
        Kind.REPLACED: f"replaces {name}",
        Kind.SIGNAL: f"takes {name} from the handler that was there",
        Kind.ENVIRONMENT: f"{'sets' if adds else 'removes'} the environment variable {name}",
        Kind.PATH: f"{'adds' if adds else 'takes'} {name} {'to' if adds else 'from'} sys.path",
        Kind.WARNINGS: f"{'adds' if adds else 'takes away'} {name}",
        Kind.FILE: f"{'leaves open' if adds else 'closes'} {name}",
        Kind.TOKENIZER: f"{name} of the renderer's tokenizer: {effect.after} instead of "
        f"{effect.before}",
    }.get(effect.kind, f"{name}: {effect.after} instead of {effect.before}")
    return f"{said} (by {effect.who})" if effect.who else said


def _facts_changed(before: Mapping[tuple[Kind, str], Any]) -> Iterator[Effect]:
    after = dict(_facts())
    for key in dict.fromkeys((*before, *after)):
        was, is_ = before.get(key), after.get(key)
        if was is not is_ and was != is_:
            kind, name = key
            who = replaced.place_of(is_) if callable(is_) else None
            # What is in variables may be secret, and states of generators are long.
            if kind in (Kind.ENVIRONMENT, Kind.GENERATOR):
                was, is_ = was and "set", is_ and "set"
            yield Effect(kind, name, _text(was), _text(is_), who)


def _facts() -> Iterator[tuple[tuple[Kind, str], Any]]:
    """Yield all but the attributes of modules and classes, by kind and name."""
    parts: tuple[tuple[Kind, Mapping[str, Any]], ...] = (
        (Kind.GENERATOR, generator_states()),
        (Kind.SETTING, torch_settings()),
        (Kind.SIGNAL, signal_handlers()),
        (Kind.HOOK, interpreter_hooks()),
        (Kind.ENVIRONMENT, os.environ),
        (Kind.PATH, dict.fromkeys(map(str, sys.path), True)),
        (Kind.WARNINGS, blanket_filters()),
        (Kind.LOGGING, logger_settings()),
        (Kind.FILE, dict.fromkeys(_open_files(), True)),
    )
    for kind, values in parts:
        for name, value in values.items():
            yield (kind, name), value


def _open_files() -> Iterator[str]:
    """Yield files and sockets that are open, as far as the system says; not its own devices."""
    for name in open_here().values():
        if name.startswith("socket:") or (
            name.startswith("/") and not name.startswith(("/dev/", "/proc/", "/sys/", "/memfd:"))
        ):
            yield name


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, tuple):
        return ", ".join(str(_text(each)) for each in value) or "none"
    if isinstance(value, logging.Handler):
        return type(value).__name__
    if isinstance(value, signal.Handlers):
        return value.name
    return getattr(value, "__qualname__", None) or str(value)
