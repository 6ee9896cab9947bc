# SPDX-License-Identifier: Apache-2.0
"""Certifies published plugins as they come from PyPI, and draws the table of them.

    python tests/published.py [WORD ...]

Those of ``reports/published/plugins.toml`` whose target or requirement has one of the words, or
all, are certified, each in an environment that ``matrix`` makes. ``--draw`` only draws the
table again.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path
from typing import Any

from conformance.engine.environment import cache_directory
from conformance.matrix import environments
from conformance.matrix.indexes import configured, uv_settings
from conformance.matrix.processes import Processes
from conformance.matrix.releases import CPU, Release
from conformance.reporting.badge import musts
from conformance.runner import folder_name

FOLDER = Path(__file__).parents[1] / "reports" / "published"

#: What is kept of a report: the rest is drawn from it, or is of this machine.
KEPT = ("certificate.json", "badge.json", "badge.svg", "summary.md", "cases")

HEAD = """\
# Published plugins

Plugins from PyPI, certified as they come, with the vLLM that the table names, on a CPU.
Made with `python tests/published.py`, from [`plugins.toml`](plugins.toml):
what was installed, which target, with which profile.
Profiles are written from the plugins' documentation; a better one may show more.

A plugin that is non-conformant does not have to fail its users:
[what a certificate does not say](../../docs/how-it-decides.md).
Who finds a verdict wrong, please say so:
a rule that fails a correct plugin is a defect of this project.

| plugin | generation | vLLM | evidence | verdict | MUSTs | failing |
|---|---|---|---|---|---|---|
"""


def plugins() -> list[dict[str, Any]]:
    """Return the entries of the list, each with its release of vLLM and its evidence."""
    document = tomllib.loads((FOLDER / "plugins.toml").read_text(encoding="utf-8"))
    usual = {"vllm": document["vllm"], "evidence": document["evidence"]}
    return [{**usual, **entry} for entry in document["plugin"]]


def certify(entry: dict[str, Any]) -> None:
    """Make the environment, certify in it, and keep the certificate."""
    release = Release(entry["vllm"])
    wanted = environments.recipe(release, CPU, [entry["requirement"]])
    python = environments.make(
        wanted,
        cache_directory() / "environments" / wanted.key,
        Processes(),
        variables=environments.variables(uv_settings(configured())),
        fresh=False,
        say=lambda sentence: _say(f"{entry['requirement']}: {sentence}"),
    )
    command = [python, "-m", "conformance.cli", "certify", entry["target"], "--quiet"]
    command += [f"--evidence={entry['evidence']}", f"--plugin-profile={entry['profile']}"]
    command += ["--conformance-report", FOLDER]
    variables = environments.variables(entry.get("environment", {}))
    subprocess.run(command, cwd=FOLDER / "profiles", env=variables, check=False)
    for path in (FOLDER / folder_name(entry["target"])).iterdir():
        if path.name not in KEPT:
            path.unlink()
    _forget_machine(FOLDER / folder_name(entry["target"]) / "cases")


def _forget_machine(cases: Path) -> None:
    """Take out of counterexamples where environments and models lie on this machine."""
    for path in cases.glob("*"):
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace(str(cache_directory()), "CACHE"), encoding="utf-8")


def table() -> str:
    """Return the table of all certificates, with what was made of them."""
    rows, notes = [], []
    for entry in plugins():
        folder = folder_name(entry["target"])
        path = FOLDER / folder / "certificate.json"
        if not path.is_file():
            continue  # not certified yet
        document = json.loads(path.read_text(encoding="utf-8"))
        failing = [
            rule["id"] + (" (advice)" if rule["level"] == "SHOULD" else "")
            for rule in document["rules"]
            if rule["verdict"] == "fail"
        ]
        name, about = entry["requirement"].replace("==", " "), entry["says"].strip()
        cells = (
            f"[{name}]({folder}/summary.md)<br>`{entry['target']}`",
            document["plugin"]["generation"],
            document["environment"]["vllm"] or entry["vllm"],
            ", ".join(document["run"]["evidence"]),
            document["verdict"],
            musts(document),
            ", ".join(failing),
        )
        rows.append(f"| {' | '.join(cells)} |\n")
        if about:
            notes.append(f"{name}, `{entry['target']}`:\n{about}")
    listed = "".join(f"- {textwrap.indent(note, '  ').strip()}\n" for note in notes)
    return f"{HEAD}{''.join(rows)}\n## What is behind it\n\n{listed}"


def main(words: list[str]) -> None:
    """Certify what the words choose, and draw the table."""
    for entry in plugins():
        named = f"{entry['requirement']} {entry['target']}"
        if "--draw" not in words and (not words or any(word in named for word in words)):
            certify(entry)
    (FOLDER / "README.md").write_text(table(), encoding="utf-8")


def _say(sentence: str) -> None:
    sys.stderr.write(f"{sentence}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
