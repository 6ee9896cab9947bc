# SPDX-License-Identifier: Apache-2.0
"""What was raised, as part of a sentence."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import pytest

from conformance.watching.raised import placed, said

if TYPE_CHECKING:
    from pathlib import Path

PLUGIN = """\
import collections


def asserts(text):
    assert text


def raises(text):
    raise ValueError(text)


def within_a_library(text):
    collections.deque(maxlen=1).extend(each for each in fails(text))


def fails(text):
    yield text
    raise NotImplementedError


class Mute(Exception):
    def __str__(self):
        raise RuntimeError


def mute(text):
    raise Mute
"""


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("asserts", "", "AssertionError at plugin.py:5, `assert text`"),
        ("raises", "no model", "ValueError: no model"),
        ("raises", "", "ValueError at plugin.py:9, `raise ValueError(text)`"),
        ("raises", "<a at 0x7f12>", "ValueError: <a>"),
        (
            "within_a_library",
            "",
            "NotImplementedError at plugin.py:18, `raise NotImplementedError`",
        ),
        ("mute", "", "Mute at plugin.py:27, `raise Mute`"),
    ],
)
def test_an_error_without_a_text_is_told_by_its_line(
    tmp_path: Path, name: str, text: str, sentence: str
) -> None:
    """An assertion says nothing else."""
    (tmp_path / "plugin.py").write_text(PLUGIN, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("plugin", tmp_path / "plugin.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with pytest.raises(Exception) as caught:  # noqa: PT011 - of any kind
        getattr(module, name)(text)

    assert said(caught.value) == sentence


def test_the_line_is_the_plugin_s(tmp_path: Path) -> None:
    """Whatever library raised: its own lines say nothing to an author."""
    import torch

    path = tmp_path / "plugin.py"
    path.write_text("def call(torch):\n    torch.nn.Module().get_extra_state()\n", encoding="utf-8")
    scope: dict[str, object] = {}
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), scope)  # noqa: S102 - ours
    with pytest.raises(RuntimeError) as caught:
        scope["call"](torch)  # type: ignore[operator] # a function
    caught.value.args = ()

    assert said(caught.value).startswith("RuntimeError at plugin.py:2")


def test_the_line_of_an_error_with_a_text_is_told(tmp_path: Path) -> None:
    """Once, also where it stands for a text that there is not."""
    path = tmp_path / "plugin.py"
    path.write_text("def call(*text):\n    raise TypeError(*text)\n", encoding="utf-8")
    scope: dict[str, object] = {}
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), scope)  # noqa: S102 - ours
    for text, told in (("no", "TypeError: no at plugin.py:2"), ("", "TypeError at plugin.py:2")):
        with pytest.raises(TypeError) as caught:
            scope["call"](text)  # type: ignore[operator] # a function
        assert placed(caught.value).startswith(told)
        assert placed(caught.value).count("plugin.py:2") == 1


def test_of_a_validation_the_first_error_is_told() -> None:
    """The text of pydantic begins with how many errors there are."""
    from pydantic import BaseModel, ValidationError

    class Config(BaseModel):
        layers: int

    with pytest.raises(ValidationError) as caught:
        Config.model_validate({"layers": "many"})

    assert said(caught.value).startswith("ValidationError: Config: layers: Input should be a valid")
