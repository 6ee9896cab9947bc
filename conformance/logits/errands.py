# SPDX-License-Identifier: Apache-2.0
"""What the process of an engine has others find out: there, nobody has touched the plugin yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from conformance.settings import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from conformance.logits.fuzzing.exploration import Explored
    from conformance.logits.parameters import Parameters
    from conformance.untouched import Untouched


@attrs.frozen
class Find:
    """What switches a plugin on?"""

    section: Mapping[str, Any]  #: of the profile
    origin: str | None
    model: str
    seed: int
    what: str  #: ``module:function`` that answers

    def answered(self, find: Callable[..., Parameters], cls: type) -> Parameters | UsageError:
        """Return the parameters that a plugin is tried with, or what is wrong with its profile."""
        try:
            return find(cls, self.section, origin=self.origin, model=self.model, seed=self.seed)
        except UsageError as error:
            return error


@attrs.frozen
class Explore:
    """What becomes of the requests that any client may send?"""

    parameters: Parameters
    model: str
    seed: int
    what: str  #: ``module:function`` that answers


def found(untouched: Untouched, errand: Find) -> Parameters:
    """Return what switches a plugin on.

    Raises:
        UsageError: its profile is wrong.
        EOFError: it ends the process.

    """
    answer = untouched.run(errand)
    if isinstance(answer, UsageError):
        raise answer
    parameters: Parameters = answer
    return parameters


def explored(untouched: Untouched, errand: Explore) -> Explored:
    """Return what becomes of requests."""
    answer: Explored = untouched.run(errand)
    return answer
