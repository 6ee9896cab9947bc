# SPDX-License-Identifier: Apache-2.0
"""What holds of every history: who ends, who is left out, and who overlaps whom."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from specimens import io_references
from support import ask_job

from conformance.plugin import target as targets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conformance.worker import Zygote

    Told = dict[str, Any]

GENERATIONS = ("io/data", "io/request")
SHAPES = ("sequence", "interleaved", "same-ids", "troubled", "order")


def _ask(zygote: Zygote, function: str, folder: Path, **arguments: Any) -> Any:  # noqa: ANN401 - as `ask_job`
    asked = f"io_simulator_job:{function}"
    return ask_job(zygote, asked, arguments, folder, beside=__file__, limit=240)


@pytest.fixture(scope="module", params=GENERATIONS)
def told(
    request: pytest.FixtureRequest, zygote: Zygote, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[Told]]:
    """Play histories of every shape with a correct plugin; return what came of them, by shape."""
    folder = tmp_path_factory.mktemp("traffic")
    (specimen,) = (
        found
        for found in io_references()
        if "LineLabels" in found.target and found.generation == request.param
    )
    (target,) = targets.parse(specimen.target, folder)
    valid = [*specimen.profile["valid"][:2], {"lines": [f"line {n}" for n in range(40)]}]
    arguments = {
        "target": target,
        "generation": request.param,
        "section": {**specimen.profile, "valid": valid},
    }
    found: dict[str, list[Told]] = _ask(zygote, "play", folder, **arguments)
    assert tuple(found) == SHAPES
    return found


def _all(told: dict[str, list[Told]]) -> Iterator[Told]:
    for histories in told.values():
        yield from histories


def test_everybody_arrives_once(told: dict[str, list[Told]]) -> None:
    """Each request of a history arrives, and only once."""
    for history in _all(told):
        arrived = Counter(request for do, request, *_ in history["steps"] if do == "arrives")

        assert len(arrived) == len(history["requests"])
        assert set(arrived.values()) == {1}


def test_whoever_is_left_alone_ends(told: dict[str, list[Told]]) -> None:
    """A request that neither the engine nor its client interferes with is answered or refused."""
    for history in _all(told):
        for request in history["untouched"]:
            valid = history["requests"][request][1]

            assert history["kinds"][request] == ("answered" if valid else "refused")


def test_nobody_is_forgotten(told: dict[str, list[Told]]) -> None:
    """Requests that somebody interferes with end, too, and leave nothing open."""
    for history in _all(told):
        assert not history["unfinished"]
        assert not history["late"]
        assert not history["open"]


def test_trouble_is_only_where_it_belongs(told: dict[str, list[Told]]) -> None:
    """Failures, disconnections and refusals happen in the histories that are about them."""
    for name, histories in told.items():
        kinds = {kind for history in histories for kind in history["kinds"].values()}

        assert kinds == (
            {"answered", "refused", "failed", "cancelled"} if name == "troubled" else {"answered"}
        )


def test_one_after_the_other_never_overlap(told: dict[str, list[Told]]) -> None:
    """In a sequence each request is over before the next arrives; elsewhere some are not."""
    assert not any(_overlap(history) for history in told["sequence"])
    for name in ("interleaved", "same-ids", "troubled"):
        assert any(_overlap(history) for history in told[name])


def _overlap(history: Told) -> bool:
    waiting: set[str] = set()
    for do, request, _, waits in history["steps"]:
        if do == "arrives" and waiting:
            return True
        waiting = waiting | {request} if waits else waiting - {request}
    return False


def test_ids_are_equal_where_they_should_be(told: dict[str, list[Told]]) -> None:
    """All requests have one id in the histories about equal ids, and different ones elsewhere."""
    for name, histories in told.items():
        for history in histories:
            ids = {identity for identity, _ in history["requests"]}

            assert len(ids) == (1 if name == "same-ids" else len(history["requests"]))


def test_outputs_change_places_only_where_order_matters(told: dict[str, list[Told]]) -> None:
    """A request's own outputs arrive in order, except in the histories about order."""
    turned = {
        name: any(not _in_order(history) for history in histories)
        for name, histories in told.items()
    }

    assert turned == {name: name == "order" for name in SHAPES}


def _in_order(history: Told) -> bool:
    arrived: dict[str, list[int]] = {}
    for do, request, output, _ in history["steps"]:
        if do == "output delivered":
            arrived.setdefault(request, []).append(output)
    return all(indices == sorted(indices) for indices in arrived.values())


def test_engines_and_clients_interfere_in_every_way(told: dict[str, list[Told]]) -> None:
    """Trouble comes before the first output and after it, and others come afterwards."""
    steps = [history["steps"] for history in told["troubled"]]

    for trouble in ("client disconnects", "engine fails"):
        ways = {
            (any(do == "output delivered" for do, *_ in before), bool(after))
            for history in steps
            for place, (do, request, *_) in enumerate(history)
            if do == trouble
            for before in [[s for s in history[:place] if s[1] == request]]
            for after in [[s for s in history[place:] if s[0] == "arrives"]]
        }
        assert ways == {(False, False), (False, True), (True, False), (True, True)}


def test_moves_shrink(zygote: Zygote, tmp_path: Path) -> None:
    """The smallest history that has what is asked for has nothing else, whatever was drawn."""
    first, second = _ask(zygote, "shrink", tmp_path)

    assert first == second
    assert len(first["asked"]) == 2
    assert [each["data"] for each in first["asked"]] == [0, 0]
    assert [move["do"] for move in first["moves"]] == ["arrives", "arrives", "client disconnects"]
