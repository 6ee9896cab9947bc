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

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    #: Certifies with these arguments; returns the exit status and what was said.
    Certify = Callable[..., tuple[int, str]]

TARGET = "example.py:DummyLogitsProcessor"
PATIENCE = 20.0  # seconds in which a process must be gone

# What pytest-asyncio says of a folder without settings.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestDeprecationWarning")

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
        done = pytester.runpytest_inprocess(*PYTEST[1:], "--budget=quick", *paths, *options)
        return int(done.ret), done.stdout.str() + done.stderr.str()

    def by_command(*arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(main, ["certify", "--budget=quick", *arguments])
        return done.exit_code, done.output

    return by_pytest if request.param == "pytest" else by_command


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["exampel:DummyLogitsProcessor"],
            "--plugin-path 'exampel:DummyLogitsProcessor': there is no module 'exampel' on "
            "sys.path. Did you mean 'example'?",
        ),
        (
            ["example:DummyLogitProcessor"],
            "example has no 'DummyLogitProcessor' (it defines DummyLogitsProcessor, "
            "DummyPerReqLogitsProcessor, WrappedPerReqLogitsProcessor). "
            "Did you mean 'DummyLogitsProcessor'?",
        ),
        (
            ["exampel.py"],
            "--plugin-path 'exampel.py': there is no file exampel.py. Did you mean 'example.py'?",
        ),
        (["helpers.py"], "helpers defines no vLLM plugin (classes: Helper)."),
        (["helpers.py:helper"], "helper is not a class but of type function; name the plugin"),
        (["not a target"], "--plugin-path 'not a target' has no known form: give package.module"),
        (
            [TARGET, "--evidence=simulator,ofline"],
            "--evidence 'ofline' is unknown: it takes any of simulator, offline, server, or all. "
            "Did you mean 'offline'?",
        ),
        (
            [TARGET, "--server-url=http://127.0.0.1:8000"],
            "--server-url is only for server evidence: add --evidence server (or all).",
        ),
        ([TARGET, "--plugin-profile=broken.toml"], "profile broken.toml is not valid TOML: "),
        ([TARGET, "--plugin-profile=no.toml"], "--plugin-profile 'no.toml': there is no such file"),
        (
            [TARGET, "--plugin-profile=key.toml"],
            "profile key.toml: [logits-processor] has no key 'onn'; it takes on, off, invalid. "
            "Did you mean 'on'?",
        ),
        (
            [TARGET, "--plugin-profile=type.toml"],
            "profile type.toml: [logits-processor] on must be a list, not 67.",
        ),
        (
            [TARGET, "--plugin-profile=field.toml"],
            "profile: on[0] has 'temprature', which is no field of SamplingParams. "
            "Did you mean 'temperature'?",
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
    section = "[logits-processor]\n"
    (folder / "broken.toml").write_text("[logits-processor\n")
    (folder / "key.toml").write_text(section + "onn = []\n")
    (folder / "type.toml").write_text(section + "on = 67\n")
    (folder / "field.toml").write_text(section + "on = [{ temprature = 1.0 }]\n")
    (folder / "value.toml").write_text(section + "on = [{ temperature = -1.0 }]\n")

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
    (folder / "plugin.py").write_text(PLUGIN.format(apply=apply))

    status, said = certify("plugin.py:Plugin")
    document = certificates(folder)["plugin.py:Plugin"]
    (broken,) = [rule for rule in document["rules"] if rule["id"] == "LB-24"]

    assert status == 1
    assert broken["verdict"] == "fail"
    assert sentence in broken["message"]
    assert "Traceback" not in said
