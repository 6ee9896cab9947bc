# SPDX-License-Identifier: Apache-2.0
"""What a hook answered: checked and copied, so that later changes of it reach nobody."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

from reference_plugins.classifier_hook.contract import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reference_plugins.classifier_hook.contract import Entry

ErrorType = Literal["timeout", "exception", "invalid"]

#: How deep scores may nest; a structure that holds itself is deeper than any.
DEEPEST = 32

#: Characters of an error message: an exception may quote the whole text that was scored.
LONGEST_MESSAGE = 300


class InvalidScores(ValueError):
    """A hook answered with something else than a dict of JSON values: one sentence."""


def copied(answer: object) -> dict[str, Any]:
    """Return what a hook answered, as plain JSON values of its own.

    Raises:
        InvalidScores: *answer* is no dict, or holds what JSON cannot.

    """
    if not isinstance(answer, dict):
        raise InvalidScores(f"`score` must return a dict (got {_kind(answer)})")
    plain: dict[str, Any] = _plain(answer, "scores", 0)
    return plain


def failure(kind: ErrorType, message: str) -> dict[str, Any]:
    """Return what stands for the scores of a hook that gave none."""
    if len(message) > LONGEST_MESSAGE:
        message = message[: LONGEST_MESSAGE - 3] + "..."
    return {"error": {"type": kind, "message": message}}


def decided(answers: Iterable[tuple[Entry, dict[str, Any], bool]]) -> Verdict:
    """Return the verdict on a completion.

    Args:
        answers: each hook with its scores and whether it failed, in the order of registration.

    """
    scores: dict[str, dict[str, Any]] = {}
    blocker = replacement = None
    for entry, answer, failed in answers:
        scores[entry.name] = answer
        if blocker is None and blocks(entry, answer, failed=failed):
            blocker = entry.name
            text = None if failed else answer.get("replacement")
            # An empty text would vanish: vLLM sends no chunk for it in a stream.
            replacement = text if isinstance(text, str) and text else None
    return Verdict(scores, blocker, replacement)


def blocks(entry: Entry, answer: dict[str, Any], *, failed: bool) -> bool:
    """Return whether a hook's answer, or its failure, replaces the completion."""
    return entry.closes if failed else entry.blocking and bool(answer.get("block"))


def _plain(value: object, path: str, depth: int) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, dict | list | tuple):
        if depth == DEEPEST:
            raise InvalidScores(f"scores nest deeper than {DEEPEST} levels, or hold themselves")
        if isinstance(value, dict):
            return {
                _key(key, path): _plain(item, f"{path}[{key!r}]", depth + 1)
                for key, item in value.items()
            }
        return [_plain(item, f"{path}[{n}]", depth + 1) for n, item in enumerate(value)]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidScores(f"{path} is {value}, which JSON cannot hold")
    # Of subclasses, such as NumPy's floats and enumerations, only the value is kept.
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int | float):
        return int(value) if isinstance(value, int) else float(value)
    raise InvalidScores(f"{path} is {_kind(value)}, which JSON cannot hold")


def _key(key: object, path: str) -> str:
    if not isinstance(key, str):
        raise InvalidScores(f"{path} has the key {key!r}, which is no str")
    return str.__str__(key)


def _kind(value: object) -> str:
    return "None" if value is None else f"a value of type {type(value).__name__}"
