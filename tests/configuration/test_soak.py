# SPDX-License-Identifier: Apache-2.0
"""One server under a mixed load for minutes."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from support import ROOT

from conformance.cli import main
from conformance.configuration.record import STILL, Growth, Look, Record, plot

if TYPE_CHECKING:
    from pathlib import Path

GALLERY = ROOT / "fixtures" / "defective" / "configurations"
SLOT = ROOT / "reference_plugins" / "logits_slot" / "target_token.py"
SECONDS = 90.0


def _record(memory: float = 0.0, handles: float = 0.0, slower: float = 0.0) -> Record:
    """Return a record in which these grow by so much in a second."""
    times = [float(second) for second in range(int(SECONDS))]
    return Record(
        looks=tuple(
            Look(time, "python 7", int((500 + memory * time) * 2**20), int(20 + handles * time))
            for time in times
        ),
        latencies=tuple((time, 0.1 + slower * time) for time in times),
    )


def test_what_stays_the_same_is_no_growth() -> None:
    """A server at work whose numbers stay where they are passes."""
    assert Growth.of(_record(), SECONDS).beyond(STILL) == []


@pytest.mark.parametrize(
    ("record", "word"),
    [
        (_record(memory=1.0), "memory"),
        (_record(handles=1.0), "open files"),
        (_record(slower=-0.001), None),
    ],
)
def test_growth_is_named(record: Record, word: str | None) -> None:
    """Memory, open files and slower answers are each told; faster ones are none."""
    found = Growth.of(record, SECONDS).beyond(STILL)

    assert [word in said for said in found if word] == ([True] if word else [])


def test_answers_that_take_longer_are_growth() -> None:
    """The last third beside the second, where the second is quick."""
    record = Record(latencies=tuple((float(s), 0.1 if s < 60 else 0.5) for s in range(90)))

    assert len(Growth.of(record, SECONDS).beyond(STILL)) == 1


def test_what_grows_without_the_plugin_is_not_its_own() -> None:
    """The same growth of a server without it takes the blame."""
    grown = Growth.of(_record(memory=1.0), SECONDS)

    assert grown.beyond(grown) == []


def test_the_plot_is_an_image() -> None:
    """It has a line for each process, and one for the answers."""
    root = ET.fromstring(plot(_record(memory=1.0), SECONDS))  # noqa: S314 - made here

    assert len(root.findall("{*}polyline")) == 2


@pytest.mark.parametrize("target", ["reference_plugins/io_processor/labels.py@io/data"])
@pytest.mark.engine
def test_only_logits_processors_are_soaked(target: str) -> None:
    """Another plugin is refused in a sentence."""
    done = CliRunner().invoke(main, ["soak", str(ROOT / target), "--minutes", "0.1"])

    assert "soak takes one logits processor" in done.output


@pytest.mark.nightly
@pytest.mark.server
@pytest.mark.timeout(1200)
def test_two_hundred_clients_lose_nothing(tmp_path: Path) -> None:
    """Each has its own answer, and nothing grows."""
    plot = tmp_path / "soak.svg"
    arguments = ["soak", str(SLOT), "--minutes", "1", "--clients", "200", "--plot", str(plot)]

    done = CliRunner().invoke(main, arguments)

    assert done.exit_code == 0, done.output
    assert plot.read_text(encoding="utf-8").startswith("<svg")


@pytest.mark.nightly
@pytest.mark.server
@pytest.mark.timeout(1200)
def test_what_is_kept_shows(tmp_path: Path) -> None:
    """A plugin that keeps a row of every step fails, and without it nothing grows so."""
    target = GALLERY / "keeps_a_row_of_every_step.py"
    arguments = ["soak", str(target), "--plugin-profile", str(GALLERY / "floor.toml")]
    arguments += ["--minutes", "1", "--plot", str(tmp_path / "soak.svg")]

    done = CliRunner().invoke(main, arguments)

    assert done.exit_code == 1, done.output
    assert "memory grew" in done.output
