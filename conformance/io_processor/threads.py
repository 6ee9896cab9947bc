# SPDX-License-Identifier: Apache-2.0
"""Checks of hooks that run on other threads, several at once."""

from __future__ import annotations

import threading
from functools import partial
from itertools import combinations, islice
from typing import TYPE_CHECKING, Any

from conformance.findings import Finding, failed, passed
from conformance.io_processor.answers import Kind, difference, shortened
from conformance.io_processor.direct import finished, meeting, prepared
from conformance.settings import Budget

if TYPE_CHECKING:
    from vllm.outputs import PoolingRequestOutput

    from conformance.io_processor.bench import Bench
    from conformance.io_processor.trial import Trial
    from conformance.io_processor.watched import Watched

#: Pairs of requests that are post-processed at the same time.
PAIRS = {Budget.QUICK: 8, Budget.STANDARD: 20, Budget.DEEP: 60}


def threads(trial: Trial) -> Finding:
    """``post_process`` of two requests at once, on other threads, gives what it gives alone."""
    bench = trial.bench
    if why := other_thread_trouble(bench):
        return failed(why)
    pairs = list(islice(combinations(range(len(bench.stock.valid)), 2), PAIRS[trial.budget]))
    for pair in pairs:
        plugin = bench.make()
        barrier = threading.Barrier(2)
        outputs = [
            prepared(plugin, bench, bench.stock.valid[index], f"id-{place}")
            for place, index in enumerate(pair)
        ]
        workers = [
            _Worker(plugin, bench, list(meeting(each, barrier)), f"id-{place}")
            for place, each in enumerate(outputs)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        for place, index in enumerate(pair):
            wanted = bench.alone(index, f"id-{place}")
            what = workers[place].difference(wanted.data, bench)
            if wanted.kind is Kind.ANSWERED and what:
                mine, other = (
                    shortened(bench.stock.valid[number]) for number in (index, pair[1 - place])
                )
                return failed(
                    f"post_process of {mine}, while another thread post-processed {other}, {what}"
                )
    return passed(len(pairs), len(pairs))


class _Worker(threading.Thread):
    """A thread that post-processes one request."""

    def __init__(
        self,
        plugin: Watched,
        bench: Bench,
        outputs: list[PoolingRequestOutput],
        request_id: str,
    ) -> None:
        super().__init__()
        self._work = partial(finished, plugin, bench, outputs, request_id)
        self._got: Any = None
        self._error: Exception | None = None

    def run(self) -> None:
        try:
            self._got = self._work()
        except Exception as error:  # noqa: BLE001 - told by difference()
            self._error = error

    def difference(self, wanted: Any, bench: Bench) -> str | None:  # noqa: ANN401 - JSON values
        """Say in what the answer is not the one that was wanted, or return None."""
        if self._error is not None:
            return f"raised {type(self._error).__name__}: {self._error}"
        what = difference(self._got, wanted, bench.hidden)
        return what and f"gave {what}"


def other_thread_trouble(bench: Bench) -> str | None:
    """Say what goes wrong where ``post_process`` runs on another thread, or return None."""
    for data in bench.stock.valid[: bench.stock.given]:
        try:
            plugin = bench.make()
            wanted = finished(plugin, bench, prepared(plugin, bench, data, "id-0"), "id-0")
            plugin = bench.make()
            outputs = prepared(plugin, bench, data, "id-0")
        except Exception:  # noqa: BLE001, S112 - another rule is about that
            continue
        worker = _Worker(plugin, bench, outputs, "id-0")
        worker.start()
        worker.join()
        if what := worker.difference(wanted, bench):
            return f"post_process of {shortened(data)}, on another thread than pre_process, {what}"
    return None
