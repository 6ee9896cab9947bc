# SPDX-License-Identifier: Apache-2.0
"""``vllm-conformance init``: a profile and a CI file to start from."""

from __future__ import annotations

import shutil
import tomllib
from typing import TYPE_CHECKING

import pytest
from samples import PLUGIN
from support import FIXTURES, ROOT
from user import CLI, run

from conformance.init_command import FIELDS, profile
from conformance.profile import SECTIONS, check

if TYPE_CHECKING:
    from pathlib import Path

LABELS = ROOT / "reference_plugins" / "io_processor" / "labels.py"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with plugins of two interfaces."""
    shutil.copy(FIXTURES / "documented_example.py", tmp_path / "mine.py")
    shutil.copy(LABELS, tmp_path)
    return tmp_path


def test_every_key_is_explained() -> None:
    """A new profile has each key that a profile may have, and no other."""
    assert {name: list(fields) for name, fields in FIELDS.items()} == {
        name: list(keys) for name, keys in SECTIONS.items()
    }


@pytest.mark.parametrize("interface", SECTIONS)
def test_examples_are_profiles(interface: str) -> None:
    """Each comment that stands for a value is a profile once it is none."""
    lines = [f"{key} = {field.example}" for key, field in FIELDS[interface].items()]
    check("an example", tomllib.loads("\n".join([f"[{interface}]", *lines])))


def test_values_are_written_as_toml() -> None:
    """What was found is in the profile; what TOML cannot say is left out."""
    found = {"on": [{"extra_args": {"a": None, "b": [1, 0.5, 'x"y']}}], "off": [{}]}
    document = tomllib.loads(profile(PLUGIN, found))

    assert document == {
        "logits-processor": {"on": [{"extra_args": {"b": [1, 0.5, 'x"y']}}], "off": [{}]}
    }


def test_a_profile_is_found_out(here: Path) -> None:
    """What watching the plugins tells is written beside them, and certifies them."""
    status, said = run(*CLI, "init", "mine.py", "labels.py@io/data", folder=here)
    lines = said.splitlines()
    mine = tomllib.loads((here / "mine.conformance.toml").read_text())
    labels = tomllib.loads((here / "labels.conformance.toml").read_text())

    assert status == 0, said
    assert mine["logits-processor"]["on"][0] == {"extra_args": {"target_token": 67}}
    assert labels["io-processor"]["valid"]
    assert "wrote .github/workflows/conformance.yml" in lines
    command = lines[-1].split()
    assert command[:2] == ["vllm-conformance", "certify"]
    assert run(*CLI, *command[1:], "--budget", "quick", folder=here)[0] == 0
    assert f"run: {' '.join(command)} --evidence all" in (
        here / ".github" / "workflows" / "conformance.yml"
    ).read_text().replace("\n", " ")


def test_what_is_there_stays(here: Path) -> None:
    """Nothing is written over, and where GitLab's file is, GitHub's is not written."""
    (here / "mine.conformance.toml").write_text("[logits-processor]\n")
    (here / ".gitlab-ci.yml").write_text("# mine\n")
    status, said = run(*CLI, "init", "mine.py", folder=here)

    assert status == 0, said
    assert "kept mine.conformance.toml: it is there already (--force writes over it)" in said
    assert (here / "mine.conformance.toml").read_text() == "[logits-processor]\n"
    assert (here / ".gitlab-ci.yml").read_text() == "# mine\n"
    assert not (here / ".github").exists()


def test_a_target_that_is_not_there_is_told(tmp_path: Path) -> None:
    """A mistake is one sentence, and nothing is written."""
    status, said = run(*CLI, "init", "nothing.py", folder=tmp_path)

    assert status == 4
    assert "there is no file nothing.py" in said
    assert list(tmp_path.iterdir()) == []
