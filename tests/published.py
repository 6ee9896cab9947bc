# SPDX-License-Identifier: Apache-2.0
"""Certifies public plugins as they come from PyPI or a repository, and draws the table of them.

    python tests/published.py [WORD ...]

Those of ``reports/published/plugins.toml`` whose target, release or origin has one of the words, or
all, are certified: each is put into a folder of its own, which stands on ``PYTHONPATH`` beside an
environment that ``matrix`` makes for the release of vLLM. ``--draw`` only draws the table again.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path
from typing import Any

from conformance.engine.environment import cache_directory
from conformance.matrix import environments
from conformance.matrix.environments import CPU, Release
from conformance.matrix.indexes import configured, uv_settings
from conformance.matrix.processes import Processes
from conformance.reporting.badge import musts
from conformance.settings import folder_name
from docs.registry import PUBLISHED as FOLDER
from docs.registry import entries, origin

#: What is kept of a report: the rest is drawn from it, or is of this machine.
KEPT = ("certificate.json", "badge.json", "badge.svg", "summary.md", "cases")

HEAD = """\
# Published plugins

Plugins from PyPI and from public repositories, certified as they come,
with the vLLM that the table names, on a CPU.
Made with `python tests/published.py`, from [`plugins.toml`](plugins.toml):
what was installed, or which commit, which target, with which profile.
Profiles are written from the plugins' documentation; a better one may show more.

A plugin that is non-conformant does not have to fail its users:
[what a certificate does not say](../../docs/how-it-decides.md).
Who finds a verdict wrong, please say so:
a rule that fails a correct plugin is a defect of this project.

| plugin | verdict | MUSTs | failing | generation | vLLM | evidence |
|---|---|---|---|---|---|---|
"""


def folder(entry: dict[str, Any]) -> Path:
    """Return where the certificate of an entry is kept: by the release of vLLM, and the target."""
    return FOLDER / f"vllm-{entry['vllm']}" / folder_name(entry["target"])


def certify(entry: dict[str, Any]) -> None:
    """Make the environment, certify in it, and keep the certificate."""
    wanted = environments.recipe(Release(entry["vllm"]), CPU, [])
    indexes = environments.variables(uv_settings(configured()))
    python = environments.make(
        wanted,
        cache_directory() / "environments" / wanted.key,
        Processes(),
        variables=indexes,
        fresh=False,
        say=lambda sentence: _say(f"vLLM {entry['vllm']}: {sentence}"),
    )
    command = [python, "-m", "conformance.cli", "certify", entry["target"], "--quiet"]
    command += [f"--evidence={entry['evidence']}", f"--plugin-profile={entry['profile']}"]
    command += ["--conformance-report", folder(entry).parent]
    found = obtained(entry, indexes) / entry.get("path", ".")
    variables = environments.variables(entry.get("environment", {}) | {"PYTHONPATH": str(found)})
    subprocess.run(command, cwd=FOLDER / "profiles", env=variables, check=False)
    for path in folder(entry).iterdir():
        if path.name not in KEPT:
            path.unlink()
    _forget_machine(folder(entry), found)


def obtained(entry: dict[str, Any], variables: dict[str, str]) -> Path:
    """Return a folder with the plugin and what it needs, and nothing else; made if not there.

    Nothing of what a plugin declares is installed by itself: it often names a vLLM.
    """
    needs = entry.get("needs", [])
    told = " ".join([origin(entry), *needs])
    place = cache_directory() / "published" / folder_name(told)
    if place.is_dir():
        return place
    made = place.with_suffix(".part")
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(parents=True)
    if "repository" in entry:
        git = ["git", "-C", str(made)]
        address = f"https://github.com/{entry['repository']}"
        subprocess.run([*git, "init", "--quiet"], check=True)
        subprocess.run([*git, "fetch", "--depth=1", address, entry["commit"]], check=True)
        subprocess.run([*git, "checkout", "--quiet", "FETCH_HEAD"], check=True)
    else:
        needs = [entry["requirement"], *needs]
    if needs:
        install = [environments.find_uv(), "pip", "install", "--quiet", "--no-deps"]
        subprocess.run([*install, "--target", made, *needs], check=True, env=variables)
    return made.rename(place)


def _forget_machine(kept: Path, found: Path) -> None:
    """Take out of what is kept where plugins, environments and models lie on this machine."""
    for path in (kept / "certificate.json", *kept.glob("cases/*")):
        text = path.read_text(encoding="utf-8")
        for place, word in ((found, "PLUGIN"), (cache_directory(), "CACHE"), (FOLDER, "PUBLISHED")):
            text = text.replace(str(place), word)
        path.write_text(text, encoding="utf-8")


def table() -> str:
    """Return the table of all certificates, with what was made of them."""
    rows, notes = [], []
    for entry in entries():
        path = folder(entry) / "certificate.json"
        if not path.is_file():
            continue  # not certified yet
        document = json.loads(path.read_text(encoding="utf-8"))
        failing = [
            rule["id"] + (" (advice)" if rule["level"] == "SHOULD" else "")
            for rule in document["rules"]
            if rule["verdict"] == "fail"
        ]
        what, about = origin(entry).replace("==", " "), entry["says"].strip()
        summary = (path.parent / "summary.md").relative_to(FOLDER)
        cells = (
            f"[{what}]({summary})<br>`{entry['target']}`",
            document["verdict"],
            musts(document),
            ", ".join(failing),
            document["plugin"]["generation"],
            document["environment"]["vllm"] or entry["vllm"],
            ", ".join(document["run"]["evidence"]),
        )
        rows.append(f"| {' | '.join(cells)} |\n")
        if about:
            notes.append(f"{what}, `{entry['target']}`, vLLM {entry['vllm']}:\n{about}")
    listed = "".join(f"- {textwrap.indent(note, '  ').strip()}\n" for note in notes)
    read = tomllib.loads((FOLDER / "plugins.toml").read_text(encoding="utf-8"))["read"]
    parts = (
        HEAD + "".join(rows),
        f"## What is behind it\n\n{listed}",
        f"## What was read\n\n{read}",
    )
    return "\n".join(parts)


def main(words: list[str]) -> int:
    """Certify what the words choose, and draw the table; return the exit status."""
    missing = 0
    for entry in entries():
        named = f"{origin(entry)} {entry['target']} vllm-{entry['vllm']}"
        if "--draw" not in words and (not words or any(word in named for word in words)):
            try:
                certify(entry)
            except subprocess.CalledProcessError as error:
                missing += 1
                _say(f"{named} cannot be had, and keeps its certificate: {error}")
    (FOLDER / "README.md").write_text(table(), encoding="utf-8")
    return 1 if missing else 0


def _say(sentence: str) -> None:
    sys.stderr.write(f"{sentence}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
