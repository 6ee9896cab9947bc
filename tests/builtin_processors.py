# SPDX-License-Identifier: Apache-2.0
"""Certifies multi-modal processors of the installed vLLM, and draws the table.

    python tests/builtin_processors.py [--draw | --write FAMILY FOLDER]

``--draw`` only draws the page again, and ``--write`` writes the tiny model of a family.
Models are made here, without a download (``tests/families``).
What was found is kept in ``reports/builtin-processors.json``;
what a person read of it in vLLM's source is in ``builtin-processors.toml``.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

import torchvision_site
from families import FAMILIES

from conformance.engine.multimodal_models import MODELS
from conformance.settings import folder_name

ROOT = Path(__file__).parents[1]
DATA = ROOT / "reports" / "builtin-processors.json"
NOTES = DATA.with_suffix(".toml")
PAGE = ROOT / "docs" / "builtin-processors.md"
FRESH = ROOT / "reports" / "local" / "builtin-processors"

HEAD = """\
# vLLM's own multi-modal processors

{judged} families of models that vLLM {vllm} serves,
judged in the simulator in {minutes:.1f} minutes on two cores;
`python tests/builtin_processors.py` makes it again.
Configurations, processors and tokenizers are made here and have the proportions of what is
published; weights are random, and nothing is downloaded.

{found} of them break a rule that is a MUST.
Each failure was read in vLLM's source before it was written down here;
a *program* shows it with vLLM alone.
A thread is named where one is about the same thing; *new* means that a search found none.
Rules that wait for one that fails are not judged: a family may have more faults than this shows.

"""


def written(folder: Path) -> dict[str, Path]:
    """Write the models of all families whose packages are there; return their folders."""
    found = {name.removeprefix("tiny-"): model.folder() for name, model in MODELS.items()}
    for name, family in FAMILIES.items():
        if not missing(family.requires):
            found[name] = family.write(folder / name)
    return found


def missing(packages: tuple[str, ...]) -> list[str]:
    """Return those packages that are not here; torchvision may be in a folder of its own."""
    return [
        name
        for name in packages
        if name != "torchvision" and importlib.util.find_spec(name) is None
    ]


def certify(targets: list[str]) -> float:
    """Certify all of them in one run; return how many seconds that took.

    Raises:
        NoTorchvision: there is no torchvision, which most of them need.

    """
    path = [*torchvision_site.python_path(), *filter(None, [os.environ.get("PYTHONPATH")])]
    began = time.monotonic()
    command = [sys.executable, "-m", "conformance.cli", "certify", *targets, "--quiet"]
    subprocess.run(
        [*command, "--conformance-report", str(FRESH)],
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path), "HF_HUB_OFFLINE": "1"},
    )
    return time.monotonic() - began


def collected(folders: dict[str, Path], seconds: float) -> dict[str, Any]:
    """Return what the certificates say."""
    families = {name: _family(folder) for name, folder in sorted(folders.items())}
    first = FRESH / folder_name(str(next(iter(folders.values()))))
    document = json.loads((first / "certificate.json").read_text(encoding="utf-8"))
    vllm = document["environment"]["vllm"]
    return {"vllm": vllm, "seconds": round(seconds), "families": families}


def _family(folder: Path) -> dict[str, Any]:
    certificate = FRESH / folder_name(str(folder)) / "certificate.json"
    document = json.loads(certificate.read_text(encoding="utf-8"))
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    rules = document["rules"]
    return {
        "class": config["architectures"][0],
        "verdict": document["verdict"],
        "passing": sum(rule["verdict"] == "pass" for rule in rules),
        "modalities": sorted(document["profile"]["items"]),
        "failing": [
            {key: rule[key] for key in ("id", "level", "message")}
            for rule in rules
            if rule["verdict"] == "fail"
        ],
    }


def page(data: dict[str, Any], notes: dict[str, Any]) -> str:
    """Return the page that shows what was found."""
    families = data["families"]
    broken = {name: family for name, family in families.items() if family["failing"]}
    musts = [
        name
        for name, family in broken.items()
        if any(rule["level"] == "MUST" for rule in family["failing"])
    ]
    lines = [
        HEAD.format(
            judged=len(families),
            vllm=data["vllm"],
            minutes=data["seconds"] / 60,
            found=len(musts),
        ),
        "| family | fails | what vLLM does | program | thread |\n|---|---|---|---|---|\n",
    ]
    for name, family in sorted(broken.items(), key=lambda each: (each[0] not in musts, each[0])):
        read = notes["read"][name]
        lines += [_row(name, rule, read[rule["id"]]) for rule in family["failing"]]
    lines.append("\nThese pass every rule that applies to them:\n\n")
    lines += [
        f"- `{name}`: `{family['class']}`, {' and '.join(family['modalities'])}, "
        f"{family['passing']} rules\n"
        for name, family in families.items()
        if name not in broken
    ]
    lines.append("\nThese could not be judged here:\n\n")
    lines += [f"- `{name}`: {why}\n" for name, why in sorted(notes["not_judged"].items())]
    return "".join(lines)


def _row(name: str, rule: dict[str, Any], note: dict[str, Any]) -> str:
    advice = " (advice)" if rule["level"] == "SHOULD" else ""
    link = f"[{rule['id']}](rules/mm-processor.md#{rule['id'].lower()}){advice}"
    shown = f"[program](findings/{note['program']})" if "program" in note else ""
    threads = ", ".join(
        f"[{number}](https://github.com/vllm-project/vllm/issues/{number})"
        for number in note.get("threads", ())
    )
    return f"| `{name}` | {link} | {note['does']} | {shown} | {threads or 'new'} |\n"


def main(words: list[str]) -> None:
    """Certify all families, unless the page is only to be drawn, and draw it."""
    if words[:1] == ["--write"]:
        _, name, folder = words
        FAMILIES[name].write(Path(folder))
        return
    if "--draw" not in words:
        with tempfile.TemporaryDirectory(prefix="vllm-conformance-families-") as place:
            folders = written(Path(place))
            seconds = certify([str(folder) for folder in folders.values()])
            data = collected(folders, seconds)
        DATA.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    data = json.loads(DATA.read_text(encoding="utf-8"))
    notes = tomllib.loads(NOTES.read_text(encoding="utf-8"))
    PAGE.write_text(page(data, notes), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
