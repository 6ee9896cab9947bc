# SPDX-License-Identifier: Apache-2.0
"""Memory that an exploring process shares with its parent: its request, and its progress."""

from __future__ import annotations

import mmap
import pickle
from typing import TYPE_CHECKING

import attrs

from conformance.logits.fuzzing.serving import End, Outcome, Stage

if TYPE_CHECKING:
    from conformance.logits.fuzzing.values import Keywords
    from conformance.logits.played import Kind

_ROOM = 1 << 20  #: bytes for the request that the explorer is at
_COUNT = slice(0, 8)  #: of them: how many steps there were
_LENGTH = slice(8, 16)  #: how long the request is
_IN_ENGINE = 16  #: whether it is in the engine
_HEAD = 17


@attrs.frozen
class Slate:
    """The request that the explorer is at, and how far it has come."""

    _memory: mmap.mmap = attrs.field(factory=lambda: mmap.mmap(-1, _ROOM))

    @property
    def count(self) -> int:
        """How many steps there were."""
        return int.from_bytes(self._memory[_COUNT])

    def count_up(self) -> None:
        """Say that it is getting on."""
        self._memory[_COUNT] = (self.count + 1).to_bytes(8)

    def tell(self, keywords: Keywords) -> None:
        """Leave word of the request that comes next, for the case that it is the last."""
        written = pickle.dumps(keywords)
        written = written if len(written) <= _ROOM - _HEAD else b""
        self._memory[_LENGTH] = len(written).to_bytes(8)
        self._memory[_IN_ENGINE] = False
        self._memory[_HEAD : _HEAD + len(written)] = written
        self.count_up()

    def enter(self) -> None:
        """Leave word that the request is in the engine."""
        self._memory[_IN_ENGINE] = True

    def lost(self, kind: Kind, said: str) -> Outcome:
        """Return the outcome of the request that the explorer did not survive."""
        length, in_engine = int.from_bytes(self._memory[_LENGTH]), self._memory[_IN_ENGINE]
        told = self._memory[_HEAD : _HEAD + length]
        keywords = pickle.loads(told) if length else {}  # noqa: S301 - ours
        stage = Stage.ENGINE if in_engine else Stage.ADMISSION
        return Outcome(End.HARMFUL, keywords, stage=stage, kind=kind, said=said)

    def close(self) -> None:
        """Let go of the memory."""
        self._memory.close()
