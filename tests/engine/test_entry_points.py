# SPDX-License-Identifier: Apache-2.0
"""Distributions made of metadata alone, read back by the standard library."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
from importlib.metadata import Distribution, distributions
from typing import TYPE_CHECKING

import pytest

from conformance.engine.entry_points import synthetic_distribution, write_distribution

if TYPE_CHECKING:
    from pathlib import Path

GROUP = "vllm.logits_processors"


def found(folder: Path) -> dict[str, Distribution]:
    """Return the distributions in *folder* by name."""
    return {one.metadata["Name"]: one for one in distributions(path=[str(folder)])}


def test_entry_point_loads_in_another_process(tmp_path: Path) -> None:
    """A process that has the folder on PYTHONPATH loads the object through the entry point."""
    folder = synthetic_distribution(
        tmp_path / "made", name="probe", group=GROUP, entries={"ordered": "collections:OrderedDict"}
    )
    program = (
        "from importlib.metadata import entry_points\n"
        f"print([(one.name, one.load()) for one in entry_points(group={GROUP!r})])\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert "('ordered', <class 'collections.OrderedDict'>)" in done.stdout


def test_record_is_well_formed(tmp_path: Path) -> None:
    """RECORD lists every file of the distribution with its right hash and size."""
    synthetic_distribution(tmp_path, name="probe", group=GROUP, entries={"a": "b:c", "d": "e:f"})

    files = found(tmp_path)["probe"].files or []

    assert {one.name for one in files} == {"METADATA", "RECORD", "entry_points.txt"}
    for one in files:
        if one.name != "RECORD":
            data = one.locate().read_bytes()  # type: ignore[attr-defined] # it is a Path
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
            assert one.hash is not None
            assert (one.hash.mode, one.hash.value, one.size) == ("sha256", digest, len(data))


def test_entries_keep_their_order(tmp_path: Path) -> None:
    """The entry points are read in the order in which they were given."""
    entries = {"z": "module:Last", "a": "module:First", "dotted.name-1": "package.module:A.b"}
    synthetic_distribution(tmp_path, name="probe", group=GROUP, entries=entries)

    points = found(tmp_path)["probe"].entry_points

    assert [(one.name, one.value) for one in points] == list(entries.items())
    assert {one.group for one in points} == {GROUP}


def test_distributions_share_a_folder(tmp_path: Path) -> None:
    """Several distributions in one folder are found side by side."""
    synthetic_distribution(tmp_path, name="one", group="g.one", entries={"a": "b"})
    synthetic_distribution(tmp_path, name="Two.Dots-and_lines", group="g.two", entries={"c": "d"})

    assert set(found(tmp_path)) == {"one", "Two.Dots-and_lines"}


def test_written_again(tmp_path: Path) -> None:
    """A distribution of the same name takes the place of the earlier one."""
    synthetic_distribution(tmp_path, name="probe", group=GROUP, entries={"old": "b:c"})
    synthetic_distribution(tmp_path, name="probe", group=GROUP, entries={"new": "b:c"})

    assert [one.name for one in found(tmp_path)["probe"].entry_points] == ["new"]


@pytest.mark.parametrize(
    ("group", "entries"),
    [
        (GROUP, {}),
        (GROUP, {"": "a:b"}),
        (GROUP, {"a": ""}),
        (GROUP, {"a=b": "c:d"}),
        (GROUP, {"a": "b:c\nd = e:f"}),
        (GROUP, {"# a": "b:c"}),
        (GROUP, {"[a": "b:c"}),
        (GROUP, {" a": "b:c"}),
        ("a]\n[b", {"a": "b:c"}),
        ("a]", {"a": "b:c"}),
        ("", {"a": "b:c"}),
    ],
)
def test_what_cannot_be_written_is_refused(
    tmp_path: Path, group: str, entries: dict[str, str]
) -> None:
    """Names that would be read back as something else are refused, and nothing is written."""
    with pytest.raises(ValueError, match="entry"):
        synthetic_distribution(tmp_path, name="probe", group=group, entries=entries)

    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["", "-probe", "pro/be", "../probe", "a b"])
def test_bad_distribution_names_are_refused(tmp_path: Path, name: str) -> None:
    """A name that is no distribution's never becomes a path."""
    with pytest.raises(ValueError, match="no valid distribution name"):
        write_distribution(tmp_path, name=name, version="1")
