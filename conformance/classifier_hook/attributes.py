# SPDX-License-Identifier: Apache-2.0
"""Checks of what a hook says of itself."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from conformance.checking import checks
from conformance.classifier_hook.bench import Bench
from conformance.classifier_hook.calls import runtime
from conformance.classifier_hook.trial import Trial
from conformance.coverage.lines import watched
from conformance.findings import Finding, failed, passed

#: The attributes, each with the rule that is about it, in the order in which they are read.
RULE_OF = {
    "name": "CH-02",
    "blocking": "CH-03",
    "timeout_ms": "CH-04",
    "score": "CH-05",
    "on_error": "CH-06",
}


async def _score(_: object) -> dict[str, Any]:
    return {}


_NAME = "a hook"

#: What stands for the others while one attribute is looked at.
_GOOD: dict[str, Any] = {
    "name": _NAME,
    "blocking": False,
    "timeout_ms": 100,
    "score": _score,
    "on_error": "block",
}


class Seen:
    """A hook of which the runtime sees one attribute, and good ones in place of the others."""

    def __init__(self, hook: object, attribute: str) -> None:
        self._hook, self._attribute = hook, attribute

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - an attribute of the hook
        if name == self._attribute or name not in _GOOD:
            with watched():  # a property is the plugin's
                return getattr(self._hook, name)
        return _GOOD[name]


def trouble(bench: Bench, attribute: str) -> str | None:
    """Say why the runtime refuses a hook for one of its attributes, or return None."""
    registry = runtime("registry")
    hook = bench.make()
    if attribute == "on_error" and not hasattr(hook, attribute):
        return None
    try:
        registry.checked(Seen(hook, attribute))
    except registry.HookRefused as refused:
        own = bench.cls.__qualname__
        said = str(refused).replace(f"{__name__}.Seen", own).replace(f"hook {_NAME!r}", own)
        return re.sub(r" at 0x[0-9a-f]+", "", said)
    return None


def unawaited(bench: Bench) -> str | None:
    """Say why the runtime does not get the scores of a hook, or return None."""
    if why := trouble(bench, "score"):
        return why
    error = bench.alone(bench.texts[0]).error
    return str(error) if isinstance(error, runtime("dispatch").NoAwaitable) else None


def _taken(attribute: str, trial: Trial) -> Finding:
    """Judge whether the runtime takes one attribute."""
    why = trouble(trial.bench, attribute)
    return failed(why) if why else passed(1)


blocking = checks("CH-03")(partial(_taken, "blocking"))
timeout = checks("CH-04")(partial(_taken, "timeout_ms"))
on_error = checks("CH-06")(partial(_taken, "on_error"))


@checks("CH-05")
def awaited(trial: Trial) -> Finding:
    """What is called with the context returns something to await."""
    why = unawaited(trial.bench)
    return failed(why) if why else passed(1)


@checks("CH-01")
def made(trial: Trial) -> Finding:
    """The hook can be made outside an event loop, more than once."""
    bench = trial.bench
    for _ in range(2):
        bench.make()
    return passed(2)


@checks("CH-02")
def named(trial: Trial) -> Finding:
    """The name is one that the runtime takes, and the same for two instances."""
    bench = trial.bench
    if why := trouble(bench, "name"):
        return failed(why)
    one, other = bench.make().name, bench.make().name
    if one != other:
        return failed(f"two instances, made alike, have the names {one!r} and {other!r}")
    return passed(2)


@checks("CH-07", after=("CH-02", "CH-03", "CH-04", "CH-06"))
def constant(trial: Trial) -> Finding:
    """Attributes are the same before and after calls."""
    bench = trial.bench
    hook = bench.make()
    before = _read(hook)
    bench.row(hook, bench.texts)
    if (after := _read(hook)) != before:
        return failed(f"before it scored the hook said {before} of itself, afterwards {after}")
    return passed(len(bench.texts))


def _read(hook: object) -> dict[str, Any]:
    with watched():
        return {name: getattr(hook, name, None) for name in RULE_OF if name != "score"}
