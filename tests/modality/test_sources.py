# SPDX-License-Identifier: Apache-2.0
"""Bytes from data URLs, base64 and local files, and from nothing else."""

from __future__ import annotations

import base64
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference_plugins.modality import InputError, MediaAccess

CLOSED = MediaAccess(fetcher=None)
SMALL = MediaAccess(max_bytes=100, fetcher=None)
REFUSED = "the file is not among those that may be read"


@given(st.binary(min_size=1, max_size=200))
def test_all_ways_to_send_a_file_give_its_bytes(content: bytes) -> None:
    """As bytes, as base64, in a data URL of either form, and as a file under a folder."""
    text = base64.b64encode(content).decode()
    escaped = "".join(f"%{byte:02X}" for byte in content)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a file")
        path.write_bytes(content)
        access = MediaAccess(local_folders=(folder,), fetcher=None)
        forms: list[object] = [
            content,
            bytearray(content),
            memoryview(content),
            {"data": text, "format": "png"},
            f"data:image/png;base64,{text}",
            f"DATA:;BASE64,{text}",
            {"url": f"data:,{escaped}", "detail": "high"},
            path,
            path.as_uri(),
            {"url": path.as_uri().replace("file://", "file://localhost")},
        ]

        assert {access.load(form) for form in forms} == {content}


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ("data:image/png;base64", "needs a comma"),
        ("data:image/png;base64,@@@@", "the data are not base64"),
        ("data:;base64,QUJ", "the data are not base64"),
        ({"data": "häh?"}, "the data are not base64"),
        ("data:,", "the file is empty"),
        (b"", "the file is empty"),
        ("https://a.example/", "URLs are not fetched here"),
        ({"url": 5}, "a URL, a path, base64 data or bytes are needed .got dict."),
        ({}, "got dict"),
        (None, "got NoneType"),
        (5, "got int"),
        (object(), "got object"),
        ("file:///etc/passwd", "local files are not read here"),
        (Path("/etc/passwd"), "local files are not read here"),
        ("file://host/etc/passwd", "a file on host 'host' is not read"),
        ("file://[/x", "not a URL of a local file"),
    ],
)
def test_what_is_no_file_is_the_clients_error(data: object, sentence: str) -> None:
    """By default nothing is read from this machine."""
    with pytest.raises(InputError, match=sentence):
        CLOSED.load(data)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (bytes(101), "the file has more than 100 bytes"),
        (memoryview(bytes(104)).cast("i"), "the file has more than 100 bytes"),
        ({"data": base64.b64encode(bytes(101)).decode()}, "has 101 bytes, of which 100 may be"),
        ({"data": "A" * 10_000_000}, "the base64 data hold more than 100 bytes"),
        ("data:;base64," + "A" * 10_000_000, "the base64 data hold more than 100 bytes"),
        ("data:," + "a" * 101, "has 101 bytes, of which 100 may be"),
        ("data:," + "%41" * 10_000, "the data URL holds more than 100 bytes"),
    ],
)
def test_too_much_is_refused_however_it_is_sent(data: object, sentence: str) -> None:
    """One byte over the limit after it is decoded, and ten million before."""
    with pytest.raises(InputError, match=sentence):
        SMALL.load(data)


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """Return a folder with files inside and outside of what may be read."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "fine").write_bytes(b"fine")
    (tmp_path / "openly").mkdir()
    (tmp_path / "openly" / "secret").write_bytes(b"secret")
    (tmp_path / "open" / "link").symlink_to(tmp_path / "openly" / "secret")
    (tmp_path / "open" / "inner").symlink_to(tmp_path / "open" / "fine")
    (tmp_path / "open" / "way out").symlink_to(tmp_path / "openly")
    (tmp_path / "open" / "loop").symlink_to(tmp_path / "open" / "loop")
    os.mkfifo(tmp_path / "open" / "pipe")
    return tmp_path


@pytest.mark.parametrize(
    "name",
    [
        "open/../openly/secret",
        "openly/secret",
        "open/link",
        "open/way out/secret",
        "open/loop",
        "open/pipe",
        "open/",
        "open/none",
        "open/fine/deeper",
        "open/nul\0",
        "open/" + "x" * 5000,
    ],
)
def test_only_regular_files_under_the_folder_are_read(house: Path, name: str) -> None:
    """All with one sentence: which files there are is nobody's business."""
    access = MediaAccess(local_folders=(house / "open",), fetcher=None)
    with pytest.raises(InputError, match=f"^{REFUSED}$"):
        access.load(house / name)


def test_links_inside_the_folder_are_followed(house: Path) -> None:
    """What counts is where a path ends, also if the folder itself is a link."""
    (house / "alias").symlink_to(house / "open")
    access = MediaAccess(local_folders=(house / "alias",), fetcher=None)

    assert access.load(house / "open" / "inner") == b"fine"
    assert access.load(house / "alias" / "fine") == b"fine"
    assert access.load(f"file://{house}/alias/%66ine") == b"fine"


def test_a_file_is_read_no_further_than_the_limit(tmp_path: Path) -> None:
    """Of fifty mebibytes, the first shows that they are too many; some files have no end at all."""
    with Path(tmp_path, "sparse").open("wb") as file:
        file.truncate(50 * 2**20)
    access = MediaAccess(max_bytes=1000, local_folders=(tmp_path, "/dev"), fetcher=None)
    with pytest.raises(InputError, match="the file has 1048576 bytes, of which 1000 may be"):
        access.load(tmp_path / "sparse")
    with pytest.raises(InputError, match=REFUSED):
        access.load(Path("/dev/zero"))


def test_a_link_that_appears_between_look_and_opening_is_not_followed(
    house: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path was resolved, and then somebody put a link in its place."""
    access = MediaAccess(local_folders=(house / "open",), fetcher=None)
    monkeypatch.setattr(Path, "resolve", lambda path, **_: path)
    for name in ("link", "way out/secret"):
        with pytest.raises(InputError, match=REFUSED):
            access.load(house / "open" / name)
