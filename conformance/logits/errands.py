# SPDX-License-Identifier: Apache-2.0
"""What the process of an engine has others find out: there, nobody has touched the plugin yet."""

from __future__ import annotations

import hashlib
import importlib
import os
import pickle
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import attrs

from conformance.logits.fuzzing.explorer import Explored
from conformance.logits.parameters import Parameters
from conformance.settings import UsageError
from conformance.suite import Opening
from conformance.watching.untouched import Errands


@attrs.frozen
class Find:
    """What switches a plugin on?"""

    section: Mapping[str, Any]  #: of the profile
    origin: str | None
    model: str
    seed: int
    what: str  #: ``module:function`` that answers

    @classmethod
    def of(cls, opening: Opening, suite: str) -> Self:
        """Return what is asked of the plugin of a trial, with the module of its suite."""
        seed = opening.settings.seed
        return cls(opening.section, opening.origin, opening.model, seed, f"{suite}:find")

    def answered(
        self, found: Callable[[type, Find], Parameters], plugin: type
    ) -> Parameters | UsageError:
        """Return the parameters that a plugin is tried with, or what is wrong with its profile."""
        try:
            return found(plugin, self)
        except UsageError as error:
            return error


@attrs.frozen
class Explore:
    """What becomes of the requests that any client may send?"""

    parameters: Parameters
    model: str
    seed: int
    what: str  #: ``module:function`` that answers


def found(untouched: Errands, errand: Find) -> Parameters:
    """Return what switches a plugin on.

    Raises:
        UsageError: its profile is wrong.
        EOFError: it ends the process.

    """
    return _parameters(untouched.run(errand))


def found_here(
    suite: str,
    cls: type,
    section: Mapping[str, Any],
    *,
    origin: str | None,
    model: str,
    seed: int,
) -> Parameters:
    """Return what switches a plugin on, as the module of its suite finds it in this process.

    Raises:
        UsageError: its profile is wrong.

    """
    errand = Find(section, origin, model, seed, f"{suite}:find")
    return _parameters(importlib.import_module(suite).find(cls, errand))


def _parameters(answer: Parameters | UsageError) -> Parameters:
    if isinstance(answer, UsageError):
        raise answer
    return answer


#: What an explorer found, for the other trials of the same run.
EXPLORED = "explored.pickle"


def explored(untouched: Errands, errand: Explore, opening: Opening) -> Explored:
    """Return what becomes of requests, as another trial of the same run found out, if one has.

    Engines and servers are asked the same: it is the simulator that says what is worth asking.
    """
    path = Path(opening.folder) / EXPLORED
    about = _about(opening.plugin.target, errand)
    with suppress(FileNotFoundError):
        said = path.read_bytes()
        if said.startswith(about):
            known: Explored = pickle.loads(said[len(about) :])  # noqa: S301 - our own run's
            return known
    answer: Explored = untouched.run(errand)
    draft = path.with_suffix(f".{os.getpid()}")
    draft.write_bytes(about + pickle.dumps(answer))
    draft.replace(path)
    return answer


def _about(target: str, errand: Explore) -> bytes:
    """Return which run and which question an answer is about; what other runs left says nothing.

    Trials of one run are forks of one process.
    """
    digest = hashlib.sha256(pickle.dumps((target, errand))).hexdigest()
    return f"{os.getppid()} {digest}\n".encode()
