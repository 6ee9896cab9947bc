# SPDX-License-Identifier: Apache-2.0
"""From what the user typed to the classes under test."""

from __future__ import annotations

import hashlib
import re
import sys
from typing import TYPE_CHECKING

import attrs
import pytest

from conformance.engine.entry_points import synthetic_distribution
from conformance.plugin import files, loader
from conformance.plugin import target as targets
from conformance.plugin.files import find_source
from conformance.plugin.loader import LoadFailure, load_class
from conformance.plugin.registration import classes_of
from conformance.plugin.target import Target, parse
from conformance.settings import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GROUP = "vllm.logits_processors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a folder with a loose file and a package."""
    (tmp_path / "loose.py").write_text("class Plugin: ...\nclass _Hidden: ...\n")
    package = tmp_path / "package" / "inner"
    package.mkdir(parents=True)
    (tmp_path / "package" / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "module.py").write_text("class Outer:\n    class Inner: ...\nnumber = 7\n")
    return tmp_path


@pytest.fixture(autouse=True)
def clean_imports() -> Iterator[None]:
    """Forget what a test imported."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def refusal(text: str, folder: Path) -> str:
    """Return the sentence with which a target is refused."""
    with pytest.raises(UsageError) as caught:
        load_class(parse(text, folder)[0])
    return str(caught.value)


def test_module_forms_name_a_module(folder: Path) -> None:
    """A dotted name is a module, with a class after the colon or without."""
    assert parse("a.b:C", folder) == (Target("a.b:C", "a.b", "C"),)
    assert parse("a.b:C.D", folder) == (Target("a.b:C.D", "a.b", "C.D"),)
    assert parse("a.b", folder) == (Target("a.b", "a.b"),)


def test_a_loose_file_is_imported_from_its_folder(folder: Path) -> None:
    """A file outside any package is a top-level module of its folder."""
    expected = Target("loose.py:Plugin", "loose", "Plugin", str(folder))

    assert parse("loose.py:Plugin", folder) == (expected,)


def test_a_file_in_a_package_is_imported_by_its_dotted_name(folder: Path) -> None:
    """A file inside a package is the module that vLLM would import."""
    (target,) = parse("package/inner/module.py", folder)

    assert (target.module, target.root) == ("package.inner.module", str(folder))


def test_the_file_of_a_package_is_the_package(folder: Path) -> None:
    """``__init__.py`` stands for its package."""
    (target,) = parse(str(folder / "package" / "inner" / "__init__.py"), folder)

    assert target.module == "package.inner"


def test_entry_points_are_found_by_group_and_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An entry point is named by its group and name; a distribution stands for all of its own."""
    entries = {"one": "loose:Plugin", "two": "package.inner.module:Outer"}
    synthetic_distribution(folder, name="probe-kit", group=GROUP, entries=entries)
    monkeypatch.syspath_prepend(folder)
    one = Target(f"entry-point:{GROUP}/one", "loose", "Plugin")
    two = Target(f"entry-point:{GROUP}/two", "package.inner.module", "Outer")

    assert parse(f"entry-point:{GROUP}/one", folder) == (one,)
    assert parse("dist:probe-kit", folder) == (one, two)


IO_SOURCE = """
def register(): return "loose.Plugin"
def nothing(): return None
def colon(): return "loose:Plugin"
def broken(): raise RuntimeError("no such device")
"""


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("register", None),
        ("nothing", "io_entry:nothing returned None: the plugin says that it cannot be used here"),
        ("colon", "returned 'loose:Plugin', not a name as 'package.module.Class'"),
        ("broken", "io_entry:broken raised RuntimeError: no such device"),
    ],
)
def test_entry_points_of_io_processors_are_followed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, sentence: str | None
) -> None:
    """They name a function, which names the class; what else it gives is told."""
    (folder / "io_entry.py").write_text(IO_SOURCE, encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    target = Target(f"entry-point:{targets.IO_PROCESSORS}/{name}", "io_entry", name)

    if sentence is None:
        assert loader.resolved(target) == attrs.evolve(target, module="loose", qualname="Plugin")
    else:
        with pytest.raises(LoadFailure, match=re.escape(sentence)):
            loader.resolved(target)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("looose.py", "'looose.py': there is no file looose.py. Did you mean 'loose.py'?"),
        ("no/such.py:Plugin", "there is no file no/such.py (there is no folder no)."),
        ("package/v3.1.py:P", "name 'v3.1', which has a dot in it: certify a copy, named v3_1.py."),
        ("a-b:C", "'a-b:C' has no known form: give package.module:Class, path/to/file.py:Class,"),
        (".", "'.' is a folder with loose.py in it, and not of a model, which has a config.json: "),
        ("./package/inner", "is a folder with module.py in it, and not of a model"),
        ("loose.py:", "'loose.py:' names no class behind the colon: give package.module:Class,"),
        ("./notes.txt", "'./notes.txt' is no Python file, whose name ends with .py: give"),
        (f"entry-point:{GROUP}/none", "no installed package has that entry point (the group is"),
        ("dist:pytset", "no distribution 'pytset' is installed. Did you mean 'pytest'?"),
        ("dist:attrs", "the distribution has no entry point in vllm.logits_processors or"),
        ("loose.py:Plugni", "loose has no 'Plugni' (it defines Plugin). Did you mean 'Plugin'?"),
        ("package/inner/module.py:number", "number is not a class but of type int; name"),
        ("package/inner/module.py:Outer.In", "has no 'Outer.In' (it defines Outer)."),
        ("lose:Plugin", "there is no module 'lose' on sys.path. Did you mean 'loose'?"),
        ("package.iner.module:Outer", "no module 'package.iner' on sys.path. Did you mean"),
        ("loose.Plugin", "there is no module 'loose.Plugin' on sys.path. If Plugin is a class,"),
    ],
)
def test_wrong_targets_are_refused_in_one_sentence(
    folder: Path, monkeypatch: pytest.MonkeyPatch, text: str, sentence: str
) -> None:
    """The sentence names the mistake, and the nearest right spelling where there is one."""
    monkeypatch.syspath_prepend(folder)
    (folder / "notes.txt").touch()
    (folder / "package" / "v3.1.py").touch()

    assert sentence in refusal(text, folder)


def test_a_class_is_loaded_with_its_folder_on_the_path(folder: Path) -> None:
    """Loading a file target makes its folder importable, for the file and for its neighbours."""
    (target,) = parse("package/inner/module.py:Outer.Inner", folder)

    assert load_class(target).__qualname__ == "Outer.Inner"
    assert str(folder) in sys.path


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("1 / 0", "importing broken raised ZeroDivisionError: division by zero (broken.py:2)"),
        ("import sys; sys.exit(3)", "importing broken raised SystemExit: 3 (broken.py:2)"),
        ("def f(:", "importing broken raised SyntaxError: invalid syntax"),
        ("import no_such", "raised ModuleNotFoundError: No module named 'no_such' (broken.py:2)"),
    ],
)
def test_a_module_that_raises_is_the_plugins_fault(
    tmp_path: Path, source: str, sentence: str
) -> None:
    """Whatever an import raises is told in one sentence, with the plugin's own line."""
    (tmp_path / "broken.py").write_text(f"# a plugin\n{source}\n")
    (target,) = parse("broken.py:Plugin", tmp_path)

    with pytest.raises(LoadFailure) as caught:
        load_class(target)

    assert sentence in str(caught.value)


def test_classes_of_a_module_are_its_own(folder: Path) -> None:
    """Imported and private classes are not offered for certification."""
    (folder / "imports.py").write_text(
        "from loose import Plugin\nfrom collections import Counter\nclass Mine: ...\n"
    )
    sys.path.insert(0, str(folder))
    (target,) = parse("imports.py", folder)

    assert [*classes_of(loader.load_module(target))] == ["Mine"]


def test_classes_that_a_function_elsewhere_made_are_the_modules_own(folder: Path) -> None:
    """Such a class has the name of the function's module, and is left out where it is imported."""
    (folder / "maker.py").write_text("def make(name): return type(name, (), {})\n")
    (folder / "makes.py").write_text(
        "from maker import make\nMade, _Hidden = make('Made'), make('Hidden')\n"
    )
    (folder / "hands_on.py").write_text("from makes import Made\nclass Mine(Made): ...\n")
    sys.path.insert(0, str(folder))
    targets = [parse(f"{name}.py", folder)[0] for name in ("makes", "hands_on")]
    makes, hands_on = map(loader.load_module, targets)

    assert [*classes_of(makes)] == ["Made"]
    assert [*classes_of(hands_on)] == ["Mine"]


def test_the_source_is_found_without_importing(folder: Path) -> None:
    """A digest can be taken of a file that does not import."""
    (folder / "broken.py").write_text("1 / 0\n")
    (target,) = parse("broken.py", folder)
    path = find_source(target)

    assert path == str(folder / "broken.py")
    assert files.digest_of(path) == "sha256:" + hashlib.sha256(b"1 / 0\n").hexdigest()
    assert "broken" not in sys.modules


def test_a_package_that_raises_raises_again(folder: Path) -> None:
    """What it had imported by then does not make the next import succeed."""
    package = folder / "package" / "inner"
    (package / "__init__.py").write_text("from package.inner import module\n1 / 0\n")
    sys.path.insert(0, str(folder))
    target = Target("package.inner.module:Outer", "package.inner.module", "Outer")

    assert find_source(target) == str(package / "module.py")
    assert "package.inner.module" not in sys.modules
    with pytest.raises(LoadFailure, match="ZeroDivisionError"):
        load_class(target)


def test_there_is_no_digest_without_a_file() -> None:
    """A class that was typed into a prompt has no source to take a digest of."""
    assert files.digest_of(None) is None


def test_nothing_is_left_beside_a_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Byte code would outlive a change within the same second that keeps the file's size."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "leaves_nothing.py").write_text("ONE = 1\n")
    (target,) = targets.parse("leaves_nothing.py", tmp_path)
    loader.load_module(target)

    assert [path.name for path in tmp_path.iterdir()] == ["leaves_nothing.py"]
    assert not sys.dont_write_bytecode
