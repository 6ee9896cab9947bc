# SPDX-License-Identifier: Apache-2.0
"""The hooks of one engine, in the order of their registration."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Literal

from reference_plugins.classifier_hook.contract import Entry

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reference_plugins.classifier_hook.contract import ExternalClassifierHook

#: The longest timeout, a day: asyncio's clock takes no more on every platform.
LONGEST_MS = 24 * 60 * 60 * 1000

_ABSENT = object()


class HookRefused(ValueError):
    """A hook does not keep the contract, and was not registered: one sentence on why.

    The hook's author should look at the attribute that the sentence names.
    """


def checked(hook: object) -> Entry:
    """Return *hook* as an entry of a registry.

    Raises:
        HookRefused: an attribute is missing or is not what the contract asks for.

    """
    if isinstance(hook, type):
        raise HookRefused(f"{_label(hook)} is a class: register an instance of it")
    name = _attribute(hook, "name")
    if not isinstance(name, str) or not name.strip():
        raise HookRefused(f"`name` of {_label(hook)} must be a non-empty str (got {name!r})")
    blocking = _attribute(hook, "blocking")
    if not isinstance(blocking, bool):
        raise HookRefused(
            f"`blocking` of hook {name!r} must be True or False "
            f"(got {blocking!r} of type {type(blocking).__name__})"
        )
    timeout_ms = _attribute(hook, "timeout_ms")
    # bool is a subclass of int: True would be a timeout of one millisecond.
    if isinstance(timeout_ms, bool) or not isinstance(timeout_ms, int) or timeout_ms <= 0:
        raise HookRefused(
            f"`timeout_ms` of hook {name!r} must be an int of 1 or more "
            f"(got {timeout_ms!r} of type {type(timeout_ms).__name__})"
        )
    if timeout_ms > LONGEST_MS:
        raise HookRefused(f"`timeout_ms` of hook {name!r} is more than a day ({timeout_ms})")
    _check_score(name, _attribute(hook, "score"))
    on_error: Literal["block", "allow"] = _attribute(hook, "on_error", "block")
    if on_error not in ("block", "allow"):
        raise HookRefused(
            f"`on_error` of hook {name!r} must be 'block' or 'allow' (got {on_error!r})"
        )
    return Entry(
        hook=hook,  # type: ignore[arg-type] # what the protocol asks for was just looked at
        name=name,
        blocking=blocking,
        timeout=timeout_ms / 1000,
        closes=blocking and on_error == "block",
    )


class Registry:
    """Hooks by name; the first that was registered comes first."""

    def __init__(self, hooks: Iterable[ExternalClassifierHook] = ()) -> None:
        """Register *hooks*, in their order."""
        self.entries: tuple[Entry, ...] = ()
        for hook in hooks:
            self.register(hook)

    def register(self, hook: ExternalClassifierHook) -> Entry:
        """Add *hook*, for requests that start from now on, and return its entry.

        Raises:
            HookRefused: the hook does not keep the contract, or its name is taken.

        """
        entry = checked(hook)
        if any(entry.name == other.name for other in self.entries):
            raise HookRefused(f"a hook named {entry.name!r} is already registered")
        # A new tuple: requests under way keep the hooks that they started with.
        self.entries = (*self.entries, entry)
        return entry


def _check_score(name: str, score: object) -> None:
    # A function that is not async may return an awaitable: decorators make such ones.
    if not callable(score) or inspect.isasyncgenfunction(score):
        kind = "is an async generator function" if callable(score) else "cannot be called"
        raise HookRefused(
            f"`score` of hook {name!r} must return scores, awaited, `async def score(self, ctx)` "
            f"({score!r} {kind})"
        )
    try:
        inspect.signature(score).bind(object())
    except (TypeError, ValueError) as error:
        raise HookRefused(
            f"`score` of hook {name!r} must take one argument, the context ({error})"
        ) from error


def _attribute(hook: object, attribute: str, default: object = _ABSENT) -> Any:  # noqa: ANN401 - whatever the hook has
    try:
        return getattr(hook, attribute)
    except AttributeError as error:
        # A property that fails inside raises the same error as a name that is not there.
        if default is not _ABSENT and not hasattr(type(hook), attribute):
            return default
        raise HookRefused(f"{_label(hook)} has no `{attribute}` ({error})") from error
    except Exception as error:
        raise HookRefused(f"`{attribute}` of {_label(hook)} cannot be read: {error!r}") from error


def _label(hook: object) -> str:
    kind = hook if isinstance(hook, type) else type(hook)
    return f"{kind.__module__}.{kind.__qualname__}"
