# SPDX-License-Identifier: Apache-2.0
"""What loading a plugin does to the process: what is seen, what is not, and what harms."""

from __future__ import annotations

import functools
import json
import logging
import os
import random
import signal
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import psutil
import pytest
import torch
from click.testing import CliRunner
from specimens import REFERENCE_VLM
from support import UNUSUAL, UNUSUAL_SLOT
from user import certificates

from conformance.cli import main
from conformance.plugin.target import Target
from conformance.watching import loading, loading_process, process_effects
from conformance.watching.loading import Observer
from conformance.watching.process_effects import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Give the process of the tests back what they change."""
    state, numbers = random.getstate(), np.random.get_state()  # noqa: NPY002 - under test
    drawn, handler = torch.get_rng_state(), signal.getsignal(signal.SIGTERM)
    folder, path, filters = Path.cwd(), sys.path[:], warnings.filters[:]
    level, handlers, limit = logging.root.level, logging.root.handlers[:], sys.getrecursionlimit()
    yield
    random.setstate(state)
    np.random.set_state(numbers)  # noqa: NPY002 - under test
    torch.set_rng_state(drawn)
    signal.signal(signal.SIGTERM, handler)
    os.chdir(folder)
    sys.path[:], warnings.filters[:] = path, filters  # type: ignore[index]
    logging.root.setLevel(level)
    logging.root.handlers[:] = handlers
    sys.setrecursionlimit(limit)
    torch.set_default_dtype(torch.float32)
    torch.use_deterministic_algorithms(mode=False)
    torch.set_float32_matmul_precision("highest")
    os.environ.pop("PLUGIN_SECRET", None)


def _secret() -> None:
    os.environ["PLUGIN_SECRET"] = "hunter2"


CHANGES: dict[str, tuple[Callable[[], object], Kind, str, str]] = {
    "torch's generator": (lambda: torch.rand(1), Kind.GENERATOR, "torch", "torch"),
    "NumPy's generator": (
        lambda: np.random.seed(3),  # noqa: NPY002 - under test
        Kind.GENERATOR,
        "numpy.random",
        "numpy.random",
    ),
    "Python's generator": (random.random, Kind.GENERATOR, "random", "random"),
    "the dtype": (
        lambda: torch.set_default_dtype(torch.float64),
        Kind.SETTING,
        "torch.get_default_dtype()",
        "torch.float64 instead of torch.float32",
    ),
    "determinism": (
        lambda: torch.use_deterministic_algorithms(mode=True),
        Kind.SETTING,
        "torch.are_deterministic_algorithms_enabled()",
        "True instead of False",
    ),
    "precision": (
        lambda: torch.set_float32_matmul_precision("medium"),
        Kind.SETTING,
        "torch.get_float32_matmul_precision()",
        "medium instead of highest",
    ),
    "a handler": (
        lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN),
        Kind.SIGNAL,
        "SIGTERM",
        "takes SIGTERM from the handler that was there",
    ),
    "the environment": (_secret, Kind.ENVIRONMENT, "PLUGIN_SECRET", "sets the environment"),
    "the folder": (lambda: os.chdir("/"), Kind.HOOK, "the working folder", "/ instead of"),
    "the path": (lambda: sys.path.append("/nowhere"), Kind.PATH, "/nowhere", "to sys.path"),
    "the filters": (
        lambda: warnings.simplefilter("ignore"),
        Kind.WARNINGS,
        "a filter for every warning: ignore",
        "adds a filter for every warning: ignore",
    ),
    "the log": (
        lambda: logging.root.setLevel(logging.CRITICAL),
        Kind.LOGGING,
        "the level of the logger root",
        "CRITICAL instead of",
    ),
    "a limit": (
        lambda: sys.setrecursionlimit(4321),
        Kind.HOOK,
        "sys.getrecursionlimit()",
        "4321 instead of",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_changed_is_seen(name: str) -> None:
    """One change is one effect, which says what it is, and no secret."""
    change, kind, what, says = CHANGES[name]
    before = process_effects.taken()

    change()

    (effect,) = process_effects.changed(before)
    assert (effect.kind, effect.name) == (kind, what)
    assert says in process_effects.sentence(effect)
    assert "hunter2" not in repr(effect)


def test_what_stays_open_is_seen(tmp_path: Path) -> None:
    """A file that is open afterwards is named, and one that was closed is not."""
    before = process_effects.taken()
    with (tmp_path / "closed").open("w"), (tmp_path / "open").open("w"):
        seen = process_effects.changed(before)

    assert {effect.name for effect in seen} == {str(tmp_path / "closed"), str(tmp_path / "open")}
    assert process_effects.changed(before) == ()


def replacement(*_: object) -> str:
    """Take the place of something."""
    return ""


LINE = replacement.__code__.co_firstlineno


@pytest.mark.parametrize(
    "new",
    [
        replacement,
        functools.wraps(json.dumps)(replacement),
        functools.partial(replacement, 1),
        functools.cache(replacement),
        staticmethod(replacement),
    ],
    ids=["function", "wrapper", "partial", "cache", "static method"],
)
@pytest.mark.parametrize(
    ("owner", "name"),
    [(json, "dumps"), (torch.nn.Linear, "forward"), (np, "linspace")],
    ids=["Python", "a class", "NumPy"],
)
def test_a_replaced_attribute_is_named(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, new: object
) -> None:
    """The effect says what was replaced, and in which file and line what replaced it is."""
    before = process_effects.taken()
    monkeypatch.setattr(owner, name, new)

    (effect,) = process_effects.changed(before)

    assert effect.kind is Kind.REPLACED
    assert effect.name.endswith(f".{name}")
    assert effect.who is not None
    assert effect.who.endswith(f"{Path(__file__).name}:{LINE}")


def test_a_replaced_module_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another module under the name of one of the host's is a replacement."""
    before = process_effects.taken()
    monkeypatch.setitem(sys.modules, "torch.nn.functional", sys.modules[__name__])

    (effect,) = process_effects.changed(before)
    assert effect.name == "sys.modules['torch.nn.functional']"


def test_what_packages_do_to_themselves_is_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caches, late imports, new names and constants of a package are its own affair."""
    before = process_effects.taken()
    monkeypatch.setattr(torch, "ones", torch.zeros)
    monkeypatch.setattr(torch, "rand", functools.cache(torch.zeros))
    monkeypatch.setattr(json, "dumps", functools.partial(json.loads))
    monkeypatch.setattr(torch, "added_by_a_plugin", replacement, raising=False)
    monkeypatch.setattr(torch, "pi", 3.0)
    for name in ("numpy.ma", "torch.onnx", "torch.distributed.tensor", "xml.dom.minidom"):
        __import__(name)

    assert process_effects.changed(before) == ()


#: What a plugin's constructor does, by what comes of it.
HARMS = {
    "torch.manual_seed(0)": "making an instance seeds the global generator of torch anew",
    "torch.set_default_device('meta')": "torch.get_default_device(): meta instead of cpu",
    "sys.setrecursionlimit(100_000)": "sys.getrecursionlimit(): 100000 instead of",
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)": "takes SIGTERM from the handler",
    "signal.signal(signal.SIGINT, lambda *_: None)": "takes SIGINT from the handler",
    "threading.Thread(target=threading.Event().wait, name='poller').start()": (
        "thread poller keeps the process from ending"
    ),
    "subprocess.Popen(['sleep', '300'])": "process 'sleep 300' outlives the process",
    "subprocess.Popen(['sleep', '300'], start_new_session=True)": "outlives the process",
}
HARMLESS = {
    "torch.rand(3)": "draws from the global generator of torch",
    "old = signal.signal(signal.SIGTERM, lambda *a: old(*a))": "which hands on",
    "sys.setrecursionlimit(20_000)": "sys.getrecursionlimit(): 20000 instead of",
    "torch.set_num_threads(1 + torch.get_num_threads())": "torch.get_num_threads()",
    "torch.Generator().manual_seed(0)": None,
    "state = torch.get_rng_state(); torch.manual_seed(0); torch.set_rng_state(state)": None,
    "threading.Thread(target=threading.Event().wait, daemon=True).start()": None,
    "threading.Thread(target=time.sleep, args=(0.3,)).start()": None,
    "POOL.submit(len, '')": None,
    "subprocess.Popen(['cat'], stdin=subprocess.PIPE)": None,
    "multiprocessing.get_context('fork').Process(target=time.sleep, args=(99,), daemon=True)"
    ".start()": None,
    "subprocess.run(['true'])": None,
}
SOURCE = """\
import multiprocessing, os, random, signal, subprocess, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
import numpy as np, torch
POOL = ThreadPoolExecutor(1)
{top}
class Loaded:
    def __init__(self):
        {line}
"""


def load(place: Path, line: str = "pass", top: str = "") -> loading.Loading:
    """Return what loading a class does whose module and constructor have a line each."""
    path = place / "loaded_plugin.py"
    path.write_text(SOURCE.format(top=top, line=line), encoding="utf-8")
    target = Target(f"{path}:Loaded", path.stem, "Loaded", str(place))
    observer = Observer.fork(target, lambda: lambda cls: cls())
    try:
        found = observer.found(60)
    finally:
        observer.close()
    assert found is not None
    return found


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait a second for what has to end."""
    monkeypatch.setattr(loading_process, "ENDING", 1.0)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("line", HARMS)
def test_what_harms_others_is_told(line: str, tmp_path: Path) -> None:
    """It is the only harm, and nothing that was started is left."""
    seconds = str(300 + os.getpid())  # no other test may leave one
    harm = HARMS[line].replace("300", seconds)
    found = load(tmp_path, line.replace("300", seconds))

    assert found.problem is None
    assert {harm in loading.sentence(each) for each in found.harms} == {True}
    lines = [process.info["cmdline"] for process in psutil.process_iter(["cmdline"])]
    assert ["sleep", seconds] not in lines


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("line", HARMLESS)
def test_what_harms_no_one_is_advice_or_nothing(line: str, tmp_path: Path) -> None:
    """It is no harm; some of it is for operators to know."""
    found = load(tmp_path, line)

    assert found.problem is None
    assert found.harms == ()
    said = [process_effects.sentence(effect) for effect in found.effects]
    assert [HARMLESS[line] in sentence for sentence in said] == [True] * bool(HARMLESS[line])  # type: ignore[operator]


def test_what_the_import_seeds_is_told_apart(tmp_path: Path) -> None:
    """Seeding at import is said of the import, and drawing there is none of it."""
    found = load(tmp_path, top="np.random.seed(4); random.random()")

    (harm,) = found.harms
    assert loading.sentence(harm) == "importing it seeds the global generator of numpy.random anew"
    assert [effect.name for effect in found.effects] == ["random"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("raise OSError('no weights')", "making an instance raised OSError: no weights"),
        ("os._exit(0)", "ends or hangs"),
        ("np.random.get_state = None", "nothing can be compared: TypeError"),
    ],
)
def test_what_cannot_be_loaded_is_said(line: str, says: str, tmp_path: Path) -> None:
    """Where no instance can be made, nothing is said of what it would do."""
    found = load(tmp_path, line)

    assert found.harms == ()
    assert says in str(found.problem)


@pytest.mark.usefixtures("shared_zygote")
def test_advice_is_shown_beside_the_verdict(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Both generations conform; the command, the page and the certificate name who patched."""
    targets = [f"{folder / 'patches_vllm.py'}:PatchesVllm" for folder in (UNUSUAL, UNUSUAL_SLOT)]
    profile = "[logits-processor]\non = [{ extra_args = { green = 2.5 } }]\noff = [{}]\n"
    (tmp_path / "profile.toml").write_text(profile, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")  # so that no sentence is wrapped
    options = ["--plugin-profile", "profile.toml", "--budget", "quick"]

    done = CliRunner().invoke(main, ["certify", *targets, *options])

    assert done.exit_code == 0, done.output
    documents = certificates(tmp_path)
    assert list(documents) == targets
    for target, document in documents.items():
        lines = Path(target.rpartition(":")[0]).read_text("utf-8").splitlines()
        line = lines.index("@functools.wraps(original)") + 1
        patched = "replaces vllm.utils.length_from_prompt_token_ids_or_embeds"
        expected = f"{patched} (by patches_vllm.py:{line})"
        (note,) = [note for note in document["notes"] if note["about"] == loading.ABOUT]
        assert note["says"] == [expected]
        assert f"  - {expected}\n" in done.output
    pages = [page.read_text("utf-8") for page in tmp_path.rglob("index.html")]
    assert ["patches_vllm.py:" in page for page in pages] == [True] * len(targets)


@pytest.mark.usefixtures("shared_zygote")
def test_what_vllm_does_itself_is_nothing_of_a_model(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Making a configuration sets variables and loggers, whatever the plugin is."""
    monkeypatch.chdir(tmp_path)
    options = ["--budget", "quick", "--evidence", "simulator"]

    CliRunner().invoke(main, ["certify", f"{REFERENCE_VLM / 'model.py'}:TinyVlm", *options])

    (document,) = certificates(tmp_path).values()
    assert not [note for note in document["notes"] if note["about"] == loading.ABOUT]
