# SPDX-License-Identifier: Apache-2.0
"""The checkpoint that a profile names is a folder, or what a function writes into an empty one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from conformance.multimodal.processor.checkpoint import folder_of, remove
from conformance.settings import UsageError

if TYPE_CHECKING:
    from pathlib import Path

WRITES = """\
def written(folder):
    (folder / "config.json").write_text("{}", encoding="utf-8")
"""


@pytest.mark.parametrize("name", ["writes_a_folder.py:written", "writes_a_folder:written"])
def test_a_function_is_named_by_its_module_or_its_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both forms name the function of a file that lies where Python looks for modules."""
    (tmp_path / "writes_a_folder.py").write_text(WRITES, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    folder = folder_of(name)
    files = [path.name for path in folder.iterdir()]
    remove(folder)

    assert files == ["config.json"]
    assert not folder.exists()


def test_a_file_that_is_not_there_is_named() -> None:
    """The message says which file was looked for."""
    with pytest.raises(UsageError, match=r"there is no file 'none\.py'"):
        folder_of("none.py:written")
