# SPDX-License-Identifier: Apache-2.0
"""Lines of a plugin that never ran: what is watched, what is said of them, and where."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any

import pytest
from support import certificate_of

from conformance.coverage import gaps, lines, reached
from conformance.plugin.files import sources
from conformance.reporting import certificate, page, summary
from conformance.settings import Budget, Settings
from conformance.worker import Zygote

SOURCE = dedent(
    '''\
    """A module."""

    from __future__ import annotations

    from typing import TYPE_CHECKING

    if TYPE_CHECKING:
        from elsewhere import Something


    def told(params, tokens):
        """Say something."""
        word = params.get("word")
        if word:
            return dict(
                word=word,
                tokens=tokens,
            )
        for token in tokens:
            if token < 0:
                raise ValueError(token)
        try:
            return int(params["number"])
        except KeyError:
            return None


    def never(params):
        if params.get("not") is None:
            return 0
        return 1


    def left_out():  # pragma: no cover
        return 1


    @torch.compile(dynamic=True)
    def compiled(values):
        return values + 1
    '''
)


@pytest.fixture
def told(tmp_path: Path) -> Iterator[tuple[ModuleType, lines.Sheet]]:
    """The module, with a sheet for its lines."""
    path = tmp_path / "told.py"
    path.write_text(SOURCE, encoding="utf-8")
    sheet = lines.Sheet.laid(tmp_path / "sheet", sources(str(path)))
    lines.watch(sheet)
    module: Any = type(sys)("told")
    try:
        with lines.watched():
            module.torch = type("torch", (), {"compile": lambda **_: lambda function: function})
            exec(compile(SOURCE, str(path), "exec"), vars(module))  # noqa: S102 - the source above
        yield module, sheet
    finally:
        lines.forget()


def _never(sheet: lines.Sheet, profile: object = None) -> dict[str, Any]:
    (file,) = reached.document(sheet.ran(), sheet.taken(), profile)
    return file


def test_what_is_timed_is_not_watched(told: tuple[Any, lines.Sheet]) -> None:
    """Calls and other blocks within do not begin to watch, and behind it all is as before."""
    module, sheet = told
    with lines.watched(), lines.unwatched():
        module.never({"not": 1})
        with lines.watched():
            module.never({"not": 1})
    with lines.unwatched(), lines.watched():
        module.never({"not": 1})
    assert _never(sheet)["says"].endswith("29-31")

    with lines.watched():
        with lines.unwatched():
            pass
        module.never({"not": 1})
    assert sys.gettrace() is None
    assert _never(sheet)["says"].endswith("30")


def test_statements_are_counted() -> None:
    """By their first lines, without docstrings, what is for types alone, and what is left out."""
    assert [line.first for line in gaps.lines_of(SOURCE)] == [
        3, 5, 7, 11, 13, 14, 15, 19, 20, 21, 22, 23, 24, 25, 28, 29, 30, 31, 38,
    ]  # fmt: skip


def test_lines_that_never_ran_have_a_reason(told: tuple[Any, lines.Sheet]) -> None:
    """The condition, loop, handler or function that did not come to them, and keys it reads."""
    module, sheet = told
    with lines.watched():
        module.told({"number": "3"}, [])

    file = _never(sheet, {"on": [{"extra_args": {"number": 1}}]})
    assert file["says"] == "15, 20-21, 24-25, 29-31"
    assert [reached.sentence(why) for why in file["why"]] == [
        "15: `word` was never true: nothing in the profile has `word`",
        "20-21: `tokens` was always empty",
        "24-25: nothing raised `KeyError` there",
        "29-31: nothing called `never`",
    ]
    assert [each["line"] for each in file["source"] if each["never"]] == [
        15, 16, 17, 18, 20, 21, 24, 25, 29, 30, 31,
    ]  # fmt: skip


def test_forks_and_threads_are_watched(told: tuple[Any, lines.Sheet]) -> None:
    """What ran is known even of a process that ends without a word."""
    module, sheet = told
    pid = os.fork()
    if pid == 0:
        with lines.watched():
            module.never({"not": 1})
        os._exit(1)
    os.waitpid(pid, 0)
    with lines.watched():
        thread = threading.Thread(target=module.told, args=({"word": "a"}, ()))
        thread.start()
        thread.join()

    assert {15, 31} <= set(sheet.ran()[str(Path(sheet.path).with_name("told.py"))])
    assert sys.gettrace() is None


def test_only_what_is_called_within_is_watched(told: tuple[Any, lines.Sheet]) -> None:
    """Another's tracer is left alone, and so is what a plugin sets."""
    module, sheet = told
    module.never({"not": 1})
    before = sys.gettrace()
    mine = lambda *_: None  # noqa: E731 - a tracer
    try:
        sys.settrace(mine)
        with lines.watched():
            module.never({"not": 1})
            assert sys.gettrace() is mine
        sys.settrace(before)
        with lines.watched():
            sys.settrace(mine)
        assert sys.gettrace() is mine
    finally:
        sys.settrace(before)

    assert "29-31" in _never(sheet)["says"]


def test_what_never_went_on_has_a_reason(told: tuple[Any, lines.Sheet]) -> None:
    """A condition that always left the function."""
    module, sheet = told
    with lines.watched():
        module.never({})

    says = [reached.sentence(why) for why in _never(sheet, {"on": [{}]})["why"]]
    assert (
        "31: `params.get('not') is None` was never false: nothing in the profile has `not`" in says
    )


def test_files_of_the_package_are_the_plugins(tmp_path: Path) -> None:
    """What a plugin imports of its own package is its own; loose files have nothing in common."""
    package = tmp_path / "pack"
    package.mkdir()
    for name, text in {
        "one": "from .two import x\nimport pack.three as y, os\nfrom elsewhere.four import z",
        "two": "from . import three",
        "three": "",
        "four": "",
    }.items():
        (package / f"{name}.py").write_text(text, encoding="utf-8")

    def found() -> set[str]:
        return {Path(each).stem for each in sources(str(package / "one.py"))}

    assert found() == {"one"}
    (package / "__init__.py").touch()
    assert found() == {"one", "two", "three"}


def test_other_plugins_of_a_file_are_left_out() -> None:
    """Nobody asked about them; a class that helps counts."""
    source = "".join(
        f"class {name}({base}):\n    def f(self):\n        return 1\n"
        for name, base in {
            "Base": "Root",
            "Mine": "Base, Mixin",
            "Other": "Base",
            "Help": "",
        }.items()
    )

    assert sorted(gaps.of_others(source, {6}, "Mine")) == [9]
    assert sorted(gaps.of_others(source, {6, 9}, "Mine")) == []
    assert sorted(gaps.of_others(source, {6}, None)) == [3, 9, 12]
    assert [gap.lines for gap in gaps.gaps(source, {1, 2, 6}, {9})][:1] == [(3,)]


PLUGIN = dedent(
    '''\
    from vllm.v1.sample.logits_processor import AdapterLogitsProcessor


    class Ban(AdapterLogitsProcessor):
        """Bans a token."""

        @classmethod
        def validate_params(cls, params):
            pass

        def is_argmax_invariant(self):
            return False

        def new_req_logits_processor(self, params):
            arguments = params.extra_args or {}
            token = arguments.get("ban")
            if type(token) is not int or not 0 <= token < 500:
                return None

            def ban(output_ids, logits):
                if arguments.get("softly"):
                    logits[token] -= 5.0
                    return logits
                logits[token] = float("-inf")
                return logits

            return ban
    '''
)

PROFILE = """\
[logits-processor]
on = [
    { extra_args = { ban = 7 } },
    { extra_args = { ban = 7, loudly = true } },
    { extra_args = { ban = 9 } },
]
"""


def test_a_certificate_says_what_never_ran(zygote: Zygote, tmp_path: Path) -> None:
    """In the terminal and on the page; and which parameters it could not tell apart."""
    (tmp_path / "ban.py").write_text(PLUGIN, encoding="utf-8")
    (tmp_path / "ban.conformance.toml").write_text(PROFILE, encoding="utf-8")
    settings = Settings(
        targets=(str(tmp_path / "ban.py"),), budget=Budget.QUICK, report=tmp_path / "report"
    )
    document = certificate_of(zygote, settings)
    certificate.write(document, tmp_path)

    (file,) = document["lines"]
    assert (file["file"], file["says"]) == ("ban.py", "22-23")
    says = "22-23: `arguments.get('softly')` was never true: nothing in the profile has `softly`"
    assert [reached.sentence(why) for why in file["why"]] == [says]
    text = summary.text(document)
    assert "ban.py: 16 of 18 lines ran, and 3 of 4 branches; never: 22-23\n" in text
    assert f"  - {says}\n" in text
    assert "<mark>   22 ✗                 logits[token] -= 5.0</mark>" in page.render(document, {})
    assert "on[0] and on[1] never gave different rows\n" in text
    assert "on[2]" not in text
