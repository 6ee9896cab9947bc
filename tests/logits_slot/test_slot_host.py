# SPDX-License-Identifier: Apache-2.0
"""The simulator's host: vLLM's own states and sampler, advanced as Model Runner V2 does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support import ROOT

from conformance.engine.models import tiny_llama

if TYPE_CHECKING:
    from collections.abc import Callable

    from conformance.worker import Zygote

    Told = dict[str, Any]
    Drive = Callable[..., list[Told]]

SLOTS = 8
PROMPT = (7, 11, 13)
PLACEHOLDER = -1
GIVEN = 9  #: the token that requests get


@pytest.fixture
def drive(zygote: Zygote, tmp_path: Path) -> Drive:
    """Return a function that plays steps in a process of its own."""

    def play(*steps: dict[str, Any], most: int = 0) -> list[Told]:
        job = zygote.fork(
            "host_job:play",
            {"model": str(tiny_llama()), "steps": steps, "max_requests": SLOTS, "most": most},
            log=tmp_path / "job.log",
            directory=tmp_path,
            python_path=[str(Path(__file__).parent), str(ROOT)],
        )
        told: list[Told] = job.ask("play", limit=60)
        job.close()
        return told

    return play


def _joins(*names: str, prompt: tuple[int, ...] = PROMPT) -> list[tuple[Any, ...]]:
    return [(name, prompt, ()) for name in names]


def _column(rows: list[dict[str, Any]], name: str) -> list[Any]:
    return [row[name] for row in rows]


def test_slots_come_from_the_end_and_the_last_one_freed_is_the_first_reused(drive: Drive) -> None:
    """Requests that finish in one step are removed in the order of their names."""
    told = drive(
        {"join": _joins("A", "B", "C")},
        {"finish": ("C", "B")},
        {"join": _joins("D")},
        {"finish": ("A",), "join": _joins("E", "F")},
    )

    assert told[0]["slots"] == {"A": 7, "B": 6, "C": 5}
    assert told[1]["slots"] == {"A": 7}
    assert told[2]["slots"] == {"A": 7, "D": 5}
    assert told[3]["slots"] == {"D": 5, "E": 7, "F": 6}
    assert told[3]["entered"] == [("E", 7, 3, 3), ("F", 6, 3, 3)]


def test_rows_of_decodes_come_first_and_prefills_by_length(drive: Drive) -> None:
    """The order of rows is neither that of joining nor that of slots."""
    told = drive(
        {"join": _joins("A", prompt=(7, 11))},
        {"join": [*_joins("B", prompt=(7,) * 5), *_joins("C", prompt=(5,) * 3), *_joins("D")]},
        {"chunk": {}},
    )
    (rows,) = told[1]["calls"]

    assert told[1]["slots"] == {"A": 7, "B": 6, "C": 5, "D": 4}
    assert told[1]["batch"] == _column(rows, "name") == ["A", "C", "D", "B"]
    assert _column(rows, "slot") == [7, 5, 4, 6]
    assert _column(rows, "position") == [2, 2, 2, 4]
    assert told[2]["batch"] == ["A", "B", "C", "D"]


def test_requests_with_drafts_lead(drive: Drive) -> None:
    """Verified requests stand before those that decode one token, however late they joined."""
    told = drive(
        {"join": _joins("A", "B")},
        {"drafts": {"B": (5,)}},
        most=2,
    )
    (rows,) = told[1]["calls"]

    assert _column(rows, "name") == ["B", "B", "A"]


def test_a_preempted_request_resumes_in_another_slot_with_its_outputs(drive: Drive) -> None:
    """Its prefill is longer than its prompt, and is computed again up to its last output."""
    told = drive(
        {"join": _joins("A", "B"), "sampled": {"A": (21,)}},
        {"sampled": {"A": (22,)}},
        {"pause": ("A",)},
        {"join": _joins("C")},
        {"join": [("A", PROMPT, (21, 22))]},
        {},
    )
    rows, later = ({row["name"]: row for row in step["calls"][0]} for step in told[4:])

    assert told[2]["slots"] == {"B": 6}
    assert told[4]["slots"] == {"B": 6, "C": 7, "A": 5}
    assert told[4]["entered"] == [("A", 5, 3, 5)]
    assert rows["A"] == {
        "name": "A",
        "slot": 5,
        "offset": 0,
        "token": 22,
        "position": 4,
        "length": 5,
        "prompt_len": 3,
        "prefill_len": 5,
        "tokens": (*PROMPT, 21, 22),
    }
    assert later["A"]["tokens"] == (*PROMPT, 21, 22, GIVEN)


def test_unfinished_prefills_have_a_row_and_get_no_token(drive: Drive) -> None:
    """A prompt that is computed in chunks stands at the end of its chunk."""
    told = drive(
        {"join": _joins("A", prompt=(7, 11, 13, 5)), "chunk": {"A": 1}},
        {"chunk": {"A": 2}},
        {},
        {},
    )
    rows = [row for step in told for row in step["calls"][0]]

    assert _column(rows, "position") == [0, 2, 3, 4]
    assert _column(rows, "token") == [7, 13, 5, GIVEN]
    assert _column(rows, "tokens")[2] == (7, 11, 13, 5)
    assert _column(rows, "tokens")[3] == (7, 11, 13, 5, GIVEN)


def test_each_draft_has_a_row_and_what_is_rejected_is_not_kept(drive: Drive) -> None:
    """Drafts are fed to the model, not committed; those that were accepted are in the next step."""
    told = drive(
        {"join": _joins("A", "B")},
        {"drafts": {"A": (5, 67)}, "sampled": {"A": (5, 31), "B": (33,)}},
        {},
        most=2,
    )
    verified = [row for row in told[1]["calls"][0] if row["name"] == "A"]
    after = {row["name"]: row for row in told[2]["calls"][0]}

    assert _column(verified, "offset") == [0, 1, 2]
    assert _column(verified, "position") == [3, 4, 5]
    assert _column(verified, "token") == [GIVEN, 5, 67]
    assert {row["tokens"] for row in verified} == {(*PROMPT, GIVEN)}
    assert after["A"]["tokens"] == (*PROMPT, GIVEN, 5, 31)
    assert (after["A"]["position"], after["A"]["token"]) == (5, 31)
    assert after["B"]["tokens"] == (*PROMPT, GIVEN, 33)


def test_placeholders_stand_for_drafts_where_a_step_starts_within_the_prefill(
    drive: Drive,
) -> None:
    """The last chunk of a prefill has rows for drafts that nobody has guessed yet."""
    told = drive(
        {"join": _joins("A", prompt=(7, 11, 13, 5)), "chunk": {"A": 2}, "drafts": {"A": (5, 67)}},
        {"drafts": {"A": (5, 67)}},
        {"drafts": {"A": (5, 67)}},
        most=2,
    )
    (chunk,), (last,), (decode,) = (step["calls"] for step in told)

    assert _column(chunk, "token") == [11]
    assert _column(last, "token") == [5, PLACEHOLDER, PLACEHOLDER]
    assert _column(last, "offset") == [0, 1, 2]
    assert _column(last, "position") == [3, 4, 5]
    assert _column(decode, "token") == [GIVEN, 5, 67]
    assert _column(decode, "position") == [4, 5, 6]


@pytest.mark.parametrize("parts", [2, 3, 5])
def test_parts_cover_all_rows_once(drive: Drive, parts: int) -> None:
    """The calls of a step have the rows of the one call that there would be, request by request."""
    steps = (
        {"join": _joins("A", "B", "C", "D", "E")},
        {"drafts": {"B": (5, 67), "D": (5,)}},
    )
    whole = drive(*steps, most=2)
    cut = drive(*({**step, "parts": parts} for step in steps), most=2)

    for one, several in zip(whole, cut, strict=True):
        (rows,) = one["calls"]
        calls = several["calls"]
        assert 1 < len(calls) <= parts
        assert [row for call in calls for row in call] == rows
        served = [name for call in calls for name in dict.fromkeys(_column(call, "name"))]
        assert served == one["batch"]


def test_a_part_that_nobody_needs_is_not_processed(drive: Drive) -> None:
    """``apply`` is called for the parts with a request that opted in, and then with all rows."""
    told = drive(
        {"join": _joins("A", "B", "C", "D"), "off": ("B", "C", "D"), "parts": 2},
        {"finish": ("A",)},
    )

    assert [_column(call, "name") for call in told[0]["calls"]] == [["A", "B"]]
    assert told[1]["calls"] == []


def test_a_request_that_rests_keeps_its_slot(drive: Drive) -> None:
    """A request that is not scheduled has no row in the step, and goes on where it was."""
    told = drive({"join": _joins("A", "B")}, {"rest": ("A",)}, {})

    assert [step["slots"] for step in told] == [{"A": 7, "B": 6}] * 3
    assert [step["batch"] for step in told] == [["A", "B"], ["B"], ["A", "B"]]
    assert _column(told[2]["calls"][0], "position") == [3, 4]
    assert told[2]["entered"] == []
