# SPDX-License-Identifier: Apache-2.0
"""The GitHub Action and the GitLab template, as far as they run without those services.

The steps that are shell are run in their order, with inputs and outputs put in as the service
does; the steps that use other actions are only looked at.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest
import yaml
from support import DEFECTIVE, FIXTURES, ROOT
from user import CACHE

ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
GITLAB = yaml.safe_load((ROOT / "ci" / "gitlab.yml").read_text())
_EXPRESSION = re.compile(r"\$\{\{\s*(.+?)\s*\}\}")


@attrs.define
class Runner:
    """Runs the shell steps of a composite action, as GitHub's runner does."""

    folder: Path
    inputs: dict[str, str]
    outputs: dict[str, dict[str, str]] = attrs.field(factory=dict)
    said: str = ""

    def run(self, steps: list[dict[str, Any]]) -> int:
        """Run steps until one fails; return the exit status."""
        return next((status for step in steps if (status := self._step(step))), 0)

    @property
    def summary(self) -> str:
        """The step summary."""
        return (self.folder / "summary").read_text()

    def _step(self, step: dict[str, Any]) -> int:
        if "run" not in step:
            return 0
        told = self.folder / "output"
        told.write_text("")
        (self.folder / "summary").touch()
        environment = os.environ | {
            "RUNNER_OS": "Linux",
            "RUNNER_ARCH": "X64",
            "RUNNER_TEMP": str(self.folder / "temporary"),
            "GITHUB_ACTION_PATH": str(ROOT),
            "GITHUB_OUTPUT": str(told),
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary"),
            "VLLM_CONFORMANCE_CACHE": CACHE,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        environment |= {name: self._filled(value) for name, value in step.get("env", {}).items()}
        # The flags that GitHub gives bash.
        done = subprocess.run(
            [
                "/bin/bash",
                "--noprofile",
                "--norc",
                "-eo",
                "pipefail",
                "-c",
                self._filled(step["run"]),
            ],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        self.said += done.stdout + done.stderr
        if "id" in step:
            lines = [line.partition("=") for line in told.read_text().splitlines()]
            self.outputs[step["id"]] = {name: value for name, _, value in lines}
        return done.returncode

    def _filled(self, text: str) -> str:
        return _EXPRESSION.sub(lambda match: self._value(match[1].split(".")), str(text))

    def _value(self, path: list[str]) -> str:
        if path[0] == "inputs":
            return self.inputs[path[1]]
        assert path[0] == "steps"
        return self.outputs[path[1]][path[3]]


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    """A runner that has checked out two plugins, where vLLM and the harness are installed."""
    shutil.copy(DEFECTIVE / "keeps_replaced_occupant.py", tmp_path / "faulty.py")
    shutil.copy(FIXTURES / "mended_example.py", tmp_path / "good.py")
    # The environment is where the cache would have put it.
    (tmp_path / "temporary").mkdir()
    (tmp_path / "temporary" / "vllm-conformance").symlink_to(sys.prefix)
    defaults = {name: each.get("default", "") for name, each in ACTION["inputs"].items()}
    return Runner(tmp_path, defaults | {"plugin": "", "harness": "", "budget": "quick"})


def test_the_action_certifies(runner: Runner) -> None:
    """Several targets are certified in one run, and the summary and the report are there."""
    runner.inputs["targets"] = (
        "good.py:DummyLogitsProcessor\n  good.py:WrappedPerReqLogitsProcessor"
    )
    status = runner.run(ACTION["runs"]["steps"])

    assert status == 0, runner.said
    assert "### good.py:DummyLogitsProcessor: conformant" in runner.summary
    assert len(list((runner.folder / "reports" / "local").glob("*/index.html"))) == 2


def test_the_action_fails_by_the_exit_status(runner: Runner) -> None:
    """A plugin that fails leaves its summary and its report, and then the job fails."""
    runner.inputs["targets"] = "faulty.py"
    status = runner.run(ACTION["runs"]["steps"])

    assert status == 1, runner.said
    assert runner.outputs["certify"]["status"] == "1"
    assert "non-conformant" in runner.summary
    assert list((runner.folder / "reports" / "local").glob("*/cases/LB-06.json"))


def test_the_action_tells_of_mistakes(runner: Runner) -> None:
    """A target that does not exist is a sentence and status 4, not a missing file."""
    runner.inputs["targets"] = "nothing.py"

    assert runner.run(ACTION["runs"]["steps"]) == 4
    assert "there is no file nothing.py" in runner.said


@pytest.mark.parametrize(
    ("harness", "installed"),
    [
        (ACTION["inputs"]["harness"]["default"], f"{ROOT}[cpu]"),
        ("vllm-plugin-conformance==0.1.0", "vllm-plugin-conformance==0.1.0"),
    ],
)
def test_the_action_installs_the_harness_of_its_own_commit(
    runner: Runner, harness: str, installed: str
) -> None:
    """So the action of a fork certifies with the fork; another harness can be named."""
    # Pip is only to be asked: an interpreter that repeats what it is told.
    python = runner.folder / "temporary" / "vllm-conformance"
    python.unlink()
    (python / "bin").mkdir(parents=True)
    (python / "bin" / "python").write_text('#!/bin/sh\necho "$@"\n')
    (python / "bin" / "python").chmod(0o755)
    runner.inputs |= {"plugin": ".", "harness": harness}
    steps = ACTION["runs"]["steps"]
    status = runner.run(steps[: 1 + [step.get("name") for step in steps].index("Install")])

    assert status == 0, runner.said
    assert f"-m pip install . {installed}\n" in runner.said


@pytest.mark.parametrize("path", ["README.md", "action.yml", "ci/gitlab.yml"])
def test_nobody_has_to_fill_in_whose_repository_it_is(path: str) -> None:
    """A fork is used as it is: its owner is whoever runs the workflow."""
    assert not re.findall(r"\b(?:OWNER|URL of)\b", (ROOT / path).read_text(encoding="utf-8"))


def test_the_action_refers_to_what_it_has() -> None:
    """Each expression names an input of the action, or an output of an earlier step."""
    known: set[str] = set()
    for step in ACTION["runs"]["steps"]:
        for expression in _EXPRESSION.findall(yaml.safe_dump(step)):
            kind, name, *_ = expression.split(".")
            assert name in (ACTION["inputs"] if kind == "inputs" else known), expression
        known |= {step["id"]} if "id" in step else set()
    used = yaml.safe_dump(ACTION["runs"])
    for name in ACTION["inputs"]:
        assert f"inputs.{name}" in used


def test_the_gitlab_job_certifies(tmp_path: Path) -> None:
    """The script of the job, with its variables, fails by the exit status."""
    shutil.copy(DEFECTIVE / "keeps_replaced_occupant.py", tmp_path / "faulty.py")
    _, certify = GITLAB["conformance"]["script"]
    done = subprocess.run(
        ["/bin/bash", "-eo", "pipefail", "-c", certify],
        cwd=tmp_path,
        env=os.environ
        | GITLAB["variables"]
        | {
            "CONFORMANCE_TARGETS": "faulty.py",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "VLLM_CONFORMANCE_CACHE": CACHE,
        },
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert done.returncode == 1, done.stdout + done.stderr
    assert list(tmp_path.glob(GITLAB["conformance"]["artifacts"]["reports"]["junit"]))
