# SPDX-License-Identifier: Apache-2.0
"""A hook, the contexts that it is given, and calls that are alone."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import attrs

from conformance.classifier_hook.calls import Call, one, run
from conformance.comparison import unsteady
from conformance.interruption import CONSTRUCTOR_LIMIT, in_call, limited
from conformance.settings import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from conformance.comparison import Place

#: What is scored besides the texts of the profile, for checks that ask for no verdict.
TEXTS = (
    "The quick brown fox jumps over the lazy dog.",
    "Write to jane.doe@example.org or call +1 202 555 0143.",
    "1 2 3 4 5",
)

#: How often the same completion is scored to find what differs from one time to the next.
TIMES = 3


class ConstructorRaised(Exception):
    """Making an instance raised."""


def runtime(module: str) -> Any:  # noqa: ANN401 - a module of the runtime
    """Return a module of the runtime that scores completions.

    Raises:
        UsageError: it is not installed.

    """
    try:
        return importlib.import_module(f"reference_plugins.classifier_hook.{module}")
    except ModuleNotFoundError:
        raise UsageError(
            "classifier hooks are certified with the runtime that calls them, which is not "
            "installed: pip install vllm-reference-plugins."
        ) from None


@attrs.define(eq=False)
class Bench:
    """One class, and what it scores."""

    cls: type[Any]
    allowed: tuple[str, ...]
    blocked: tuple[str, ...]
    origin: str | None  #: of the profile
    seed: int
    _alone: dict[tuple[int, str], Call] = attrs.field(factory=dict)
    _unsteady: frozenset[Place] | None = None

    @classmethod
    def open(
        cls, hook: type[Any], section: Mapping[str, Any], *, origin: str | None, seed: int
    ) -> Bench:
        """Prepare for a class.

        Raises:
            UsageError: the profile's texts are none, or the runtime is not installed.

        """
        runtime("contract")
        for key in ("allowed", "blocked"):
            for text in section.get(key, ()):
                if not isinstance(text, str):
                    raise UsageError(
                        f"profile {origin}: [classifier-hook] {key} must hold texts, not {text!r}."
                    )
        return cls(
            hook, tuple(section.get("allowed", ())), tuple(section.get("blocked", ())), origin, seed
        )

    @property
    def texts(self) -> tuple[str, ...]:
        """Everything ordinary that is scored, each once."""
        return tuple(dict.fromkeys((*self.allowed, *self.blocked, *TEXTS)))

    def document(self) -> dict[str, Any]:
        """Return the effective profile, for the certificate."""
        return {
            "origin": self.origin or "none",
            "allowed": list(self.allowed),
            "blocked": list(self.blocked),
        }

    def make(self) -> Any:  # noqa: ANN401 - a hook
        """Make an instance, outside any event loop.

        Raises:
            ConstructorRaised: it raised.
            PluginHung: it did not return.

        """
        try:
            with limited(CONSTRUCTOR_LIMIT), in_call("__init__"):
                return self.cls()
        except Exception as error:
            raise ConstructorRaised(f"{type(error).__name__}: {error}") from error

    def context(self, text: str, *, request_id: str = "id-0", **changes: Any) -> Any:  # noqa: ANN401
        """Return the context of a completion."""
        tokens = tuple(ord(c) % 500 for c in text[:512])
        fields = {
            "request_id": request_id,
            "prompt": "Say something.",
            "generated_text": text,
            "finish_reason": "stop",
            "prompt_token_ids": (1, 2, 3),
            "output_token_ids": tokens,
            **changes,
        }
        return runtime("contract").ScoringContext(**fields)

    def call(self, text: str, hook: Any = None, **changes: Any) -> Call:  # noqa: ANN401
        """Score one text with a fresh instance, or with a given one."""
        mine = self.make() if hook is None else hook
        found: Call = run(one(mine, self.context(text, **changes)))
        return found

    def alone(self, index: int, request_id: str) -> Call:
        """Return what a fresh instance says of one of the texts when it scores nothing else."""
        key = (index, request_id)
        if key not in self._alone:
            self._alone[key] = self.call(self.texts[index], request_id=request_id)
        return self._alone[key]

    def unsteady(self) -> frozenset[Place]:
        """Return the places of scores that differ from one time to the next."""
        if self._unsteady is None:
            found: frozenset[Place] = frozenset()
            for index in range(min(TIMES, len(self.texts))):
                calls = [self.call(self.texts[index]) for _ in range(TIMES)]
                if not any(call.error for call in calls):
                    found |= unsteady(plain(call.value) for call in calls)
            self._unsteady = found
        return self._unsteady


def plain(value: Any) -> Any:  # noqa: ANN401 - scores
    """Return scores as the runtime copies them, or as they are where it refuses to."""
    scores = runtime("scores")
    try:
        return scores.copied(value)
    except scores.InvalidScores:
        return repr(value)
