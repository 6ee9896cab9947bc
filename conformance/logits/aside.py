# SPDX-License-Identifier: Apache-2.0
"""What the second process of a trial finds out when its half of the histories has been played.

Where it finds nothing wrong the first one need not ask again.  What goes wrong is looked at there:
only there it can be told from what other rules show, and made smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

import attrs

if TYPE_CHECKING:
    from conformance.findings import Finding


class Answer(Protocol):
    """What a question of a trial gives."""

    @property
    def clean(self) -> bool:
        """Whether nothing went wrong, and something was tried."""


Question = Callable[[Any], Answer]


@attrs.frozen
class Aside:
    """What was found out."""

    leaks: Finding | None = None  #: None where a call goes wrong, for the rule that is about it
    clean: dict[Question, Answer] = attrs.field(factory=dict)


def answered(trial: object, questions: Iterable[Question]) -> dict[Question, Answer]:
    """Return the answers that are clean."""
    clean: dict[Question, Answer] = {}
    for question in questions:
        with suppress(Exception):  # raised again where it is asked in earnest
            if (answer := question(trial)).clean:
                clean[question] = answer
    return clean
