# SPDX-License-Identifier: Apache-2.0
"""Only what is as regular as pieces of a text is said to be lost between two of them."""

from __future__ import annotations

from conformance.classifier_hook import seams

#: Characters of the text that is blocked.
LENGTH = 17


def _answers(*gaps: tuple[int, int], count: int = 400) -> list[bool]:
    let_through = {place for start, end in gaps for place in range(start, end)}
    return [place not in let_through for place in range(count)]


def _told(answers: list[bool]) -> tuple[int, int] | None:
    return seams._gaps(answers, LENGTH)


def test_regular_gaps_are_a_seam() -> None:
    """Each ends where a piece does, or a little before."""
    assert _told(_answers((121, 124), (249, 252), (377, 380))) == (123, 251)


def test_what_is_diluted_or_drawn_is_none() -> None:
    """A model may let texts through that stand far behind, or some by its noise."""
    assert _told(_answers()) is None
    assert _told(_answers((60, 400))) is None
    assert _told(_answers((121, 124))) is None
    assert _told(_answers((50, 53), (70, 73), (201, 204))) is None
    assert _told(_answers((121, 124), (249, 262), (377, 380))) is None
    assert _told(_answers((121, 124), (377, 380))) is None
    assert _told([]) is None
    assert _told([False] * 400) is None
