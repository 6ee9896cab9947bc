# SPDX-License-Identifier: Apache-2.0
"""Profiles: where they are found, and what is wrong with them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from conformance.plugin import profile
from conformance.running import validation
from conformance.settings import Settings, UsageError

if TYPE_CHECKING:
    from pathlib import Path

ON = "on = [{ extra_args = { target_token = 67 } }]"
SECTIONS = "[logits-processor], [io-processor], [classifier-hook], [multimodal], [parser]"


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    """Make a plugin's source file, in a package of a project."""
    path = tmp_path / "project" / "package" / "plugin.py"
    path.parent.mkdir(parents=True)
    path.touch()
    return path


def write(path: Path, text: str) -> Path:
    """Write a file and return its path."""
    path.write_text(text, encoding="utf-8")
    return path


def test_the_profile_beside_the_plugin_comes_first(plugin: Path) -> None:
    """``NAME.conformance.toml`` is preferred to the project's ``pyproject.toml``."""
    write(plugin.with_name("plugin.conformance.toml"), f"[logits-processor]\n{ON}\n")
    write(plugin.parents[1] / "pyproject.toml", "[tool.vllm-conformance.logits-processor]\n")
    found = profile.find(str(plugin))

    assert found is not None
    assert found.origin == "plugin.conformance.toml"
    assert found.section("logits-processor")["on"] == [{"extra_args": {"target_token": 67}}]


def test_the_project_holds_the_profile(plugin: Path) -> None:
    """``[tool.vllm-conformance]`` of the nearest ``pyproject.toml`` is found from below."""
    write(plugin.parents[1] / "pyproject.toml", f"[tool.vllm-conformance.logits-processor]\n{ON}\n")
    found = profile.find(str(plugin))

    assert found is not None
    assert found.origin == "pyproject.toml"
    assert found.section("logits-processor")["on"]


def test_a_class_has_its_own_sections(plugin: Path) -> None:
    """They take the place of those for all classes; a class that is not there is refused."""
    plugin.write_text("class One: ...\nclass Two: ...\n")
    beside = plugin.with_name("plugin.conformance.toml")
    write(beside, f"[logits-processor]\n{ON}\n[classes.Two.logits-processor]\non = [{{}}]\n")
    found = profile.find(str(plugin))
    write(beside, "[classes.Tow.logits-processor]\non = [{}]\n")
    with pytest.raises(UsageError) as caught:
        profile.find(str(plugin))

    assert found is not None
    assert found.of_class("One").section("logits-processor")["on"][0]["extra_args"]
    assert found.of_class("Two").section("logits-processor") == {"on": [{}]}
    assert str(caught.value) == (
        "profile plugin.conformance.toml: [classes.Tow] is for a class that plugin.py does not "
        "have. Did you mean 'Two'?"
    )


@pytest.mark.parametrize("text", ["[project]\nname = 'x'\n", "this is not TOML"])
def test_a_project_without_a_profile_is_left_alone(plugin: Path, text: str) -> None:
    """A ``pyproject.toml`` that does not mention the harness is nothing to complain about."""
    write(plugin.parents[1] / "pyproject.toml", text)

    assert profile.find(str(plugin)) is None


def test_a_section_that_is_not_there_is_empty() -> None:
    """A profile of another interface says nothing about this one."""
    found = profile.Profile("x.toml", {"multimodal": {"model": "tiny-llava"}})

    assert found.section("logits-processor") == {}


@pytest.mark.parametrize("key", ["model", "tokenizer", "chat_template"])
def test_paths_are_those_from_the_profile_on(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever reads the section finds them, wherever a command was given."""
    (tmp_path / "profiles" / "own").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    found = profile.Profile("x.toml", {"of": {key: "own"}}, tmp_path / "profiles")
    other = profile.Profile("x.toml", {"of": {key: "organisation/name"}}, tmp_path / "profiles")

    assert found.section("of") == {key: str(tmp_path / "profiles" / "own")}
    assert other.section("of") == {key: "organisation/name"}


def test_a_profile_may_be_a_python_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module's object gives the same fields, as a mapping or as attributes, or strategies."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    write(
        tmp_path / "profiles_of_mine.py",
        "from hypothesis import strategies as st\n"
        "whole = {'logits-processor': {'on': [{'min_p': 0.5}]}}\n"
        "fields = {'on': st.builds(dict, min_p=st.floats(0.1, 0.9)), 'off': [{}]}\n"
        "class Attributes:\n    on = [{'min_p': 0.5}]\n    unrelated = 1\n",
    )
    load = [
        profile.load(f"profiles_of_mine:{name}", tmp_path).section("logits-processor")
        for name in ("whole", "fields", "Attributes")
    ]

    assert load[0] == load[2] == {"on": [{"min_p": 0.5}]}
    assert set(load[1]) == {"on", "off"}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[logits-processor]\non = [", "profile p.toml is not valid TOML: "),
        ("[logits-procesor]", " Did you mean 'logits-processor'?"),
        ("[logits-processor]\nof = []", " Did you mean 'off'?"),
        (
            f"[logits_processor]\n{ON}",
            f"profile p.toml has an unknown section [logits_processor]; it may have {SECTIONS}.",
        ),
        (
            "[logits-processor]\ninvald = []",
            "profile p.toml: [logits-processor] has no key 'invald'; it takes on, off, invalid,",
        ),
        (
            "[logits-processor]\non = 67",
            "profile p.toml: [logits-processor] on must be a list, not 67.",
        ),
        (
            "[multimodal]\nmodel = []",
            "profile p.toml: [multimodal] model must be a string, not [].",
        ),
        (
            "[classes.Plugin.logits-processor]\nof = []",
            "profile p.toml [classes.Plugin]: [logits-processor] has no key 'of'; it takes on,",
        ),
        ("classes.Plugin = 1", "profile p.toml [classes.Plugin] must be a table, not 1."),
        ("[klasses.Plugin.logits-processor]", " Did you mean 'classes'?"),
        ("logits-processor = 1", "profile p.toml: logits-processor must be a table, not 1."),
    ],
)
def test_a_broken_profile_is_told_in_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    """The sentence names the file, the place, and the nearest right spelling."""
    write(tmp_path / "p.toml", text)

    with pytest.raises(UsageError) as caught:
        profile.load("p.toml", tmp_path)

    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("plugin.conformance.tml", "is no module:object either. Did you mean 'plugin.conformance"),
        (".", "--plugin-profile '.' is a folder: name a TOML file in it."),
        ("no_such_module_here:thing", "there is no module 'no_such_module_here' on sys.path."),
        (
            "conformance.plugin.profile:fnd",
            "conformance.plugin.profile has no 'fnd'. Did you mean 'find'?",
        ),
    ],
)
def test_a_profile_that_is_not_there_is_told(tmp_path: Path, spec: str, sentence: str) -> None:
    """A misspelt ``--plugin-profile`` is a usage error, with the nearest file or name."""
    write(tmp_path / "plugin.conformance.toml", "")

    with pytest.raises(UsageError) as caught:
        profile.load(spec, tmp_path)

    assert sentence in str(caught.value)


def test_mistake_beside_the_plugin_is_told_before_vllm_is_imported(plugin: Path) -> None:
    """Whoever mistypes a section is told at once, and not when vLLM has been imported."""
    write(plugin.with_name("plugin.conformance.toml"), "[logits-procesor]\n")
    settings = Settings(targets=(str(plugin),), directory=plugin.parent)

    with pytest.raises(UsageError, match="Did you mean 'logits-processor'"):
        validation.validate(settings)
