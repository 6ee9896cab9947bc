# SPDX-License-Identifier: Apache-2.0
"""What is left of requests that are over."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
import torch
import torch._dynamo
from torch._C._dynamo.eval_frame import set_eval_frame

from conformance.watching import leaks
from conformance.watching.leaks import (
    BYTES_PER_REQUEST,
    Given,
    Spent,
    growing,
    kept,
    more_files,
    names_of_files,
    size_of,
)

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ("SamplingParams",)


def _given() -> list[Given]:
    return [([number],) for number in range(10)]


def test_threads_that_have_nothing_to_do_are_not_waited_for() -> None:
    """Looking at a hundred of them takes longer than the work that one may do meanwhile."""
    done = threading.Event()
    threads = [threading.Thread(target=done.wait, daemon=True) for _ in range(100)]
    for thread in threads:
        thread.start()
    began = time.monotonic()
    try:
        size_of(object())
    finally:
        done.set()

    assert time.monotonic() - began < leaks.CATCH_UP / 2


def test_what_somebody_else_holds_is_kept() -> None:
    """Only as many requests are counted as something else refers to."""
    given = _given()
    holder = [entry[0] for entry in given[:4]]

    found = kept(given, NAMES, 3)

    assert found == "the SamplingParams of 4 of them, all finished, are still held somewhere"
    assert kept(given, NAMES, len(holder)) is None


def test_what_hooks_into_calls_holds_nothing() -> None:
    """torch.compile holds the arguments of every call once more while its hook is set."""
    before = set_eval_frame(False)
    try:
        assert kept(_given(), NAMES, 0) is None
    finally:
        set_eval_frame(before)


def test_growth_is_what_the_slowest_of_the_last_times_shows() -> None:
    """A straight line grows; one that had an end, or gains less than a number, does not."""
    line = [1000 + 500 * BYTES_PER_REQUEST * number for number in range(6)]

    assert growing(line, 500)
    assert growing([*line, line[-1]], 500) is None
    assert growing(line, 501) is None


def test_a_busy_machine_leaves_as_much_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only work of this process counts, and waiting for something else than a processor."""
    worked, passed = [0.0], [0.0]
    monkeypatch.setattr(time, "process_time", lambda: worked[0])
    spent = Spent(0.0, 0.0)
    monkeypatch.setattr(leaks, "undelayed", lambda: passed[0])

    worked[0], passed[0] = 4.0, 7.0
    assert not spent.beyond(4.0, 3.0)

    worked[0] = 4.1
    assert spent.beyond(4.0, 3.0)
    assert not spent.beyond(5.0, 3.0)

    passed[0] = 7.2
    assert spent.beyond(5.0, 3.0)


def test_what_was_opened_is_named(tmp_path: Path) -> None:
    """A file by its path, anything else by what it is."""
    before = names_of_files()
    with (tmp_path / "journal").open("w") as journal:
        assert more_files(1, before) == f"1 more files are open, such as {journal.name}"
        ends = os.pipe()
        assert more_files(3, before) == "3 more files are open, such as a pipe"
        for end in ends:
            os.close(end)


class _Holds:
    """Holds a value, as a plugin does."""

    def __init__(self, held: object) -> None:
        self.held = held


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr", "sparse_csc"])
def test_a_sparse_tensor_is_as_large_as_its_parts(layout: str) -> None:
    """It has no storage of its own, and grows with its values."""
    kind = getattr(torch, layout)
    few, many = (size_of(_Holds(torch.eye(size).to_sparse(layout=kind))) for size in (8, 800))

    assert many - few >= 792 * torch.float32.itemsize


def test_work_that_waits_for_a_thread_is_not_kept() -> None:
    """A plugin is measured when its threads have done what they were given."""
    with ThreadPoolExecutor(1) as pool:
        plugin = _Holds(pool)
        pool.submit(int).result()
        before = size_of(plugin)
        for _ in range(300):
            pool.submit(sum, range(30_000))

        # Each of them is a thousand bytes, and what else the process does is measured as well.
        assert size_of(plugin) - before < 300 * 300
