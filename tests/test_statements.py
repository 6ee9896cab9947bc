# SPDX-License-Identifier: Apache-2.0
"""Ways of statements for which no line stands: which there are, and which are gone."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from conformance.coverage import gaps, lines, reached
from conformance.coverage.statements import arms
from conformance.plugin.files import sources

SOURCE = dedent(
    """\
    import asyncio


    def told(values, flag=False):
        found = 0
        for value in values:
            if value > 1:
                found += 1
        while found > 5:
            found -= 1
        if (
            flag
            and values
        ):
            found = 2
        return found


    def falls(value):
        if value:
            value = 1


    def leaves(values):
        for value in values:
            if value:
                return value
            match value:
                case 0:
                    found = 1
                case None:
                    found = 2


    async def waits(values):
        if await asyncio.sleep(0, values):
            found = 1
        async for value in later(values):
            found = 2


    async def later(values):
        for value in values:
            await asyncio.sleep(0)
            yield value


    def raises(values):
        try:
            if next(values):
                found = 1
        except StopIteration:
            pass


    class Down:
        def __init__(self, count):
            self.count = count

        def __iter__(self):
            return self

        def __next__(self):
            if not self.count:
                raise StopIteration
            self.count -= 1
            return self.count


    def always():
        for value in (1, 2):
            if True:
                value = 1
        while True:
            break
        if value: return 1
        for each in [*range(3)]: value = each
        return value


    def spread(value, values):
        if (
            value in values
            and value
        ):
            value = 1
    """
)


@pytest.fixture
def gone(tmp_path: Path) -> Iterator[Callable[[Callable[[Any], object]], set[tuple[int, str]]]]:
    """Call something with the module, and return the ways that it has gone."""
    path = tmp_path / "told.py"
    path.write_text(SOURCE, encoding="utf-8")

    def ways(call: Callable[[Any], object]) -> set[tuple[int, str]]:
        sheet = lines.Sheet.laid(tmp_path / "sheet", sources(str(path)))
        lines.watch(sheet)
        module: Any = type(sys)("told")
        exec(compile(SOURCE, str(path), "exec"), vars(module))  # noqa: S102 - the source above
        try:
            with lines.watched():
                call(module)
        finally:
            lines.forget()
        return {(arm.first, arm.way.value) for arm in sheet.taken()[str(path)]}

    yield ways
    lines.forget()


def test_ways_that_no_line_stands_for() -> None:
    """Conditions with no ``else``, the last of several cases, loops; not what is sure."""
    found = [(arm.first, arm.way.value) for arm in arms(SOURCE)]

    assert found == [
        (6, "end"), (6, "empty"), (7, "past"), (9, "end"), (9, "empty"), (11, "past"),
        (20, "past"), (25, "end"), (25, "empty"), (26, "past"), (31, "past"),
        (36, "past"), (38, "end"), (38, "empty"), (43, "end"), (43, "empty"), (50, "past"),
        (64, "past"), (71, "end"), (82, "past"),
    ]  # fmt: skip


EMPTY = {(6, "empty"), (6, "end"), (9, "empty"), (9, "end"), (11, "past")}


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda m: m.told([]), EMPTY),
        (lambda m: m.told([1]), EMPTY - {(6, "empty")} | {(7, "past")}),
        (lambda m: m.told([2]), EMPTY - {(6, "empty")}),
        (lambda m: m.told([2] * 9, flag=True), {(6, "end"), (9, "end")}),
        (lambda m: m.falls(0), {(20, "past")}),
        (lambda m: m.falls(1), set()),
        (lambda m: m.leaves([]), {(25, "end"), (25, "empty")}),
        (lambda m: m.leaves([1]), set()),
        (lambda m: m.leaves([0]), {(25, "end"), (26, "past")}),
        (lambda m: m.leaves([""]), {(25, "end"), (26, "past"), (31, "past")}),
        (lambda m: m.leaves(m.Down(0)), {(25, "end"), (25, "empty")}),
        (lambda m: m.leaves(m.Down(1)), {(25, "end"), (26, "past"), (64, "past")}),
        (
            lambda m: asyncio.run(m.waits([])),
            {(36, "past"), (38, "end"), (38, "empty"), (43, "end"), (43, "empty")},
        ),
        (lambda m: asyncio.run(m.waits([1])), {(38, "end"), (43, "end")}),
        (lambda m: m.raises(iter([])), set()),
        (lambda m: m.raises(iter([0])), {(50, "past")}),
        (lambda m: list(m.Down(1)), {(64, "past")}),
        (lambda m: m.always(), {(71, "end")}),
        (lambda m: m.spread(1, [1]), set()),
        (lambda m: m.spread(2, [1]), {(82, "past")}),
        (lambda m: m.spread(0, [0]), {(82, "past")}),
    ],
)
def test_ways_that_are_gone(
    gone: Callable[[Callable[[Any], object]], set[tuple[int, str]]],
    call: Callable[[Any], object],
    expected: set[tuple[int, str]],
) -> None:
    """Also where a coroutine waits in between; and what an exception ends is none."""
    assert gone(call) == expected


def test_what_was_never_gone_is_told(tmp_path: Path) -> None:
    """Once, by the line of the statement; and they are counted beside blocks."""
    source = dedent(
        """\
        def told(args, values):
            kind = args.get("kind")
            if kind == "soft":
                values = []
            for value in values:
                if value:
                    return value
            while values:
                values = values[1:]
            return kind
        """
    )
    path = tmp_path / "told.py"
    path.write_text(source, encoding="utf-8")
    every = frozenset(range(1, 11))
    taken = {arm for arm in arms(source) if arm.first in {5, 6}}

    (file,) = reached.document(
        {str(path): every}, {str(path): taken}, {"on": [{"kind": "soft"}, {"kind": "soft"}]}
    )
    assert (file["lines"], file["never"]) == (10, [])
    assert (file["branches"], file["taken"]) == (10, 7)
    assert [reached.sentence(why) for why in file["why"]] == [
        "3: `kind == 'soft'` was never false: every `kind` in the profile is 'soft'",
        "8: the loop never came to its end",
        "8: `values` was true whenever the loop began",
    ]
    assert reached.counts(file) == "10 of 10 lines ran, and 7 of 10 branches"
    assert [row["line"] for row in file["source"] if row["partly"]] == [3, 8]


def test_functions_that_are_known_are_not_watched(tmp_path: Path) -> None:
    """Of which every line and way is known; what is new is counted for this process."""
    path = tmp_path / "told.py"
    path.write_text(SOURCE, encoding="utf-8")
    lines.watch(lines.Sheet.laid(tmp_path / "sheet", sources(str(path))))
    module: Any = type(sys)("told")
    exec(compile(SOURCE, str(path), "exec"), vars(module))  # noqa: S102 - the source above
    try:
        numbers = [lines.news()]
        for value in (0, 1, 1):
            with lines.watched():
                module.falls(value)
            numbers.append(lines.news())
        first, second, third = (after - before for before, after in pairwise(numbers))
        assert (first, second, third) == (2, 1, 0)
        assert not lines.anything_left()
    finally:
        lines.forget()


UNTAKEN = """\
def plugin(a, b):
    match a:
        case 1:
            b = 2
    if b:
        b = 3
    for x in b:
        b = 4
    while a:
        a = 0
    return b
"""


def test_each_way_that_was_never_gone_is_told_in_a_sentence() -> None:
    """All lines ran, and of every statement one way is missing."""
    found = gaps.gaps(UNTAKEN, range(1, UNTAKEN.count("\n") + 1), gone=())

    assert [(gap.lines, gap.says) for gap in found] == [
        ((2,), "`a` was like one of the cases each time"),
        ((5,), "`b` was never false"),
        ((7,), "the loop never came to its end"),
        ((7,), "`b` was never empty"),
        ((9,), "the loop never came to its end"),
        ((9,), "`a` was true whenever the loop began"),
    ]


FULL = """\
def post_process(self, model_output, names):
    for name, output in zip(names, model_output, strict=True):
        names = output
        if name:
            break
    else:
        names = 0
    for number, output in enumerate(model_output):
        if number:
            break
    else:
        names = 1
    for number in itertools.count():
        if number:
            break
    else:
        names = 2
    for name in names:
        if name:
            break
    else:
        names = 3
"""


def test_what_hosts_hand_over_is_never_empty() -> None:
    """There is no request without prompts, so there is none without outputs."""
    ran = range(1, FULL.count("\n") + 1)
    found = [gap.says for gap in gaps.gaps(FULL, ran, gone=())]

    assert [says for says in found if "empty" in says] == ["`names` was never empty"]


CONSTANTS = """\
WORDS = ("a", "b")
KINDS: dict[str, int] = {"a": 1, **dict(WORDS)}
LATER = []
TWICE = ["a"]
TWICE = [*WORDS]


class Plugin:
    names = frozenset({"a"})
    own = ["a"]

    def __init__(self):
        self.own = []

    def serve(self, OTHER=KINDS):
        for each in %s:
            print(each)
"""


@pytest.mark.parametrize(
    ("over", "empty"),
    [
        ("WORDS", False),
        ("enumerate(WORDS)", False),
        ("KINDS.items()", False),
        ("self.names", False),
        ("Plugin.names", False),
        ("LATER", True),
        ("TWICE", True),
        ("OTHER", True),
        ("self.own", True),
        ("WORDS[2:]", True),
        ("zip(WORDS, LATER)", True),
    ],
)
def test_a_constant_that_holds_something_is_never_empty(over: str, empty: bool) -> None:
    """So nothing is missing where a loop over it always had something to do."""
    assert any(arm.way == "empty" for arm in arms(CONSTANTS % over)) is empty
