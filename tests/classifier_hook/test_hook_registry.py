# SPDX-License-Identifier: Apache-2.0
"""What may be registered as a hook, and what is said of everything else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from reference_plugins.classifier_hook.registry import HookRefused, Registry, checked

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Hook:
    """Keeps the contract, where nothing is changed."""

    blocking = False
    timeout_ms = 100

    def __init__(self, name: str = "one", **changes: object) -> None:
        self.name = name
        vars(self).update(changes)

    async def score(self, ctx: object) -> dict[str, Any]:
        """Say what was scored."""
        return {"scored": str(ctx)}


async def no_context() -> dict[str, Any]:
    """Take no context."""
    return {}


async def two_arguments(ctx: object, more: object) -> dict[str, Any]:
    """Take more than the context."""
    return {"scored": (ctx, more)}


async def yields(ctx: object) -> AsyncIterator[object]:
    """Be an async generator."""
    yield ctx


def test_hooks_keep_the_order_of_their_registration() -> None:
    """The first that was registered comes first."""
    registry = Registry([Hook("b"), Hook("a"), Hook("c")])

    assert [entry.name for entry in registry.entries] == ["b", "a", "c"]


def test_attributes_are_read_once() -> None:
    """A hook that changes its attributes afterwards changes nothing."""
    hook = Hook("before", blocking=True, timeout_ms=250)
    entry = Registry().register(hook)
    hook.name, hook.timeout_ms = "after", 1

    assert (entry.name, entry.blocking, entry.timeout, entry.closes) == ("before", True, 0.25, True)


def test_requests_under_way_keep_their_hooks() -> None:
    """Registering makes a new tuple and leaves the old one as it was."""
    registry = Registry([Hook("a")])
    before = registry.entries
    registry.register(Hook("b"))

    assert [entry.name for entry in before] == ["a"]


def test_names_are_unique() -> None:
    """The second hook of a name is refused, and the first stays."""
    registry = Registry([Hook("a")])
    with pytest.raises(HookRefused, match="a hook named 'a' is already registered"):
        registry.register(Hook("a"))

    assert len(registry.entries) == 1


@pytest.mark.parametrize(
    ("blocking", "on_error", "closes"),
    [(True, "block", True), (True, "allow", False), (False, "block", False)],
)
def test_only_blocking_hooks_close(blocking: bool, on_error: str, closes: bool) -> None:
    """A failure replaces the answer if the hook blocks and does not say otherwise."""
    assert checked(Hook(blocking=blocking, on_error=on_error)).closes is closes


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"name": ""}, "`name` of .*Hook must be a non-empty str"),
        ({"name": "  "}, "must be a non-empty str"),
        ({"name": 5}, r"must be a non-empty str \(got 5\)"),
        ({"name": None}, "must be a non-empty str"),
        ({"blocking": 1}, r"`blocking` of hook 'one' must be True or False \(got 1 of type int\)"),
        ({"blocking": "yes"}, "must be True or False"),
        ({"timeout_ms": 0}, r"`timeout_ms` of hook 'one' must be an int of 1 or more \(got 0"),
        ({"timeout_ms": -5}, "must be an int of 1 or more"),
        ({"timeout_ms": True}, "must be an int of 1 or more"),
        ({"timeout_ms": 0.5}, "must be an int of 1 or more"),
        ({"timeout_ms": "100"}, "must be an int of 1 or more"),
        ({"timeout_ms": None}, "must be an int of 1 or more"),
        ({"timeout_ms": 10**400}, "more than a day"),
        ({"on_error": "ignore"}, "`on_error` of hook 'one' must be 'block' or 'allow'"),
        ({"score": yields}, "an async generator function"),
        ({"score": None}, "must return scores, awaited.*cannot be called"),
        ({"score": no_context}, "must take one argument, the context"),
        ({"score": two_arguments}, "must take one argument, the context"),
    ],
)
def test_everything_else_is_refused_with_a_sentence(changes: dict[str, Any], sentence: str) -> None:
    """The sentence names the attribute and its value."""
    with pytest.raises(HookRefused, match=sentence):
        checked(Hook(**changes))


@pytest.mark.parametrize("absent", ["name", "blocking", "timeout_ms", "score"])
def test_missing_attributes_are_named(absent: str) -> None:
    """A hook without one of the attributes is refused by its name."""
    attributes = {"name": "one", "blocking": False, "timeout_ms": 1, "score": Hook().score}
    del attributes[absent]
    with pytest.raises(HookRefused, match=f"has no `{absent}`"):
        checked(SimpleNamespace(**attributes))


def test_a_property_that_raises_is_refused() -> None:
    """What a hook's own property raises ends up in the sentence."""

    class Raises(Hook):
        @property
        def blocking(self) -> bool:  # type: ignore[override] # so do hooks in the wild
            raise ZeroDivisionError("by design")

    with pytest.raises(HookRefused, match=r"`blocking` of .*Raises cannot be read.*by design"):
        checked(Raises())


def test_a_property_that_misses_something_does_not_count_as_absent() -> None:
    """An optional attribute whose property fails is no default."""

    class Misses(Hook):
        @property
        def on_error(self) -> str:
            return self.nothing  # type: ignore[attr-defined, no-any-return] # that is the fault

    with pytest.raises(HookRefused, match="`on_error`"):
        checked(Misses())


def test_a_class_is_no_hook() -> None:
    """Who registers the class is told to make an instance."""
    with pytest.raises(HookRefused, match=r"is a class: register an instance"):
        checked(Hook)
