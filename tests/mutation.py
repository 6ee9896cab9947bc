# SPDX-License-Identifier: Apache-2.0
"""Changes the reference plugins in small ways, and draws what was not noticed.

    python tests/mutation.py [--draw] [FILE ...]

``--draw`` only draws the page again, and files that are named are measured without the others.
What was found is kept in ``reports/mutation.json``; why a change was not noticed, as a person read
it, is in ``mutation.toml``, by the digest of the change.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DATA = ROOT / "reports" / "mutation.json"
REASONS = DATA.with_suffix(".toml")
PAGE = DATA.with_suffix(".md")

_HOOKS = "reference_plugins/classifier_hook/hooks"
_VLM = "reference_plugins/tiny_vlm"

#: How many changes of each file one command tries, and its targets.
RUNS = (
    (30, [
        f"{_HOOKS}/annotator.py",
        f"{_HOOKS}/blocker.py",
        *(f"reference_plugins/io_processor/{name}" for name in (
            "long_document.py", "image_filter.py", "labels.py@io/data",
        )),
    ]),
    (20, [
        f"{_VLM}/model.py",
        *(f"--source={_VLM}/{name}.py" for name in ("processing", "model", "images")),
    ]),
    (12, [
        "reference_plugins/logits_batch/token_bias.py",
        *(f"reference_plugins/logits_slot/{name}.py" for name in (
            "target_token", "no_repeat_ngram",
        )),
        *(f"reference_plugins/logits_batch/{name}.py" for name in (
            "no_repeat_ngram", "thinking_budget", "target_token", "probability_floor",
            "request_level",
        )),
        "reference_plugins/logits_slot/dual_target_token.py",
        "reference_plugins/parser/thinking.py",
        *(f"reference_plugins/modality/{name}" for name in (
            "images.py:ImagePlugin", "point_clouds.py:PointCloudPlugin",
            "audio.py:AudioPlugin", "video.py:VideoPlugin",
        )),
    ]),
    (20, ["reference_plugins/parser/tagged_calls.py"]),
)  # fmt: skip

#: What a person may have found of a change that was not noticed.
KINDS = {
    "equivalent": "nobody can see a difference",
    "cost": "the answer is the same, and only time or memory may be other",
    "choice": "another limit or name of the author's own, as right as the one that it replaces",
    "host": "only another release of vLLM, another model or several devices would show it",
    "meaning": "only its author can name it, and `expected` of the profile does not",
    "unseen": "an example, a rule or a history is missing",
}

#: Those of them that matter.
MATTER = ("meaning", "unseen")

HEAD = """\
# Changes to the reference plugins that their certificates notice

{mutants} small changes, one at a time, each certified with the quick budget in the simulator:
{minutes:.0f} minutes of two cores that had other work; `python tests/mutation.py` makes this again.
What the numbers mean stands in [docs/mutation.md](../docs/mutation.md).
Changes with which a file cannot be imported are not counted ({unloaded}).

"""


def measure(only: Sequence[str] = ()) -> None:
    """Change every reference, or some, and keep what was found."""
    files: list[Any] = []
    seconds, seed = 0.0, 0
    if only:
        known = json.loads(DATA.read_text(encoding="utf-8"))
        files = [file for file in known["files"] if file["file"] not in only]
        seconds = known["seconds"]
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "found.json"
        for most, of in RUNS:
            arguments = _chosen(of, only) if only else of
            if not arguments:
                continue
            command = [*arguments, "--mutants", str(most), "--json", str(found)]
            program = [sys.executable, "-m", "conformance.cli", "mutate"]
            subprocess.run([*program, *command], cwd=ROOT, check=True)
            document = json.loads(found.read_text(encoding="utf-8"))
            files += document["files"]
            seconds += 0 if only else document["seconds"]
            seed = document["seed"]
    keep(files, seed, seconds)


def _chosen(arguments: Sequence[str], only: Sequence[str]) -> list[str]:
    """Return the arguments of a run about some files, with the plugin that imports them."""
    found = [each for each in arguments if _file(each) in only]
    beside = [each for each in arguments[:1] if arguments[1:] and arguments[1].startswith("--")]
    return [*dict.fromkeys((*(beside if found else ()), *found))]


def _file(argument: str) -> str:
    """Return the file that an argument of a run names."""
    return argument.removeprefix("--source=").partition("@")[0].partition(":")[0]


def named() -> set[str]:
    """Return the files that the lane changes."""
    return {_file(part) for _, of in RUNS for part in of}


def keep(files: list[dict[str, Any]], seed: int, seconds: float) -> None:
    """Write what was found: every change, and the difference of those that were not noticed."""
    for file in files:
        for change in file["changed"]:
            if change["outcome"] != "survived":
                change.pop("diff", None)
    document = {"schema": 1, "seed": seed, "seconds": round(seconds), "files": files}
    DATA.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def survivors(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the changes that nothing noticed."""
    changes = (change for file in document["files"] for change in file["changed"])
    return [change for change in changes if change["outcome"] == "survived"]


def reasons() -> dict[str, dict[str, str]]:
    """Return why changes were not noticed, by their digests."""
    found: dict[str, dict[str, str]] = tomllib.loads(REASONS.read_text(encoding="utf-8"))
    return found


def page() -> str:
    """Return the page that is drawn of what was found."""
    document, why = json.loads(DATA.read_text(encoding="utf-8")), reasons()
    files = document["files"]
    text = HEAD.format(
        mutants=sum(file["mutants"] for file in files),
        unloaded=sum(file["unloaded"] for file in files),
        minutes=document["seconds"] / 60,
    )
    text += (
        "| generation | changes | noticed | without `expected` | nothing to notice "
        "| meaning | unseen | noticed of what matters |\n|---|---|---|---|---|---|---|---|\n"
    )
    generations = sorted({file["generation"] for file in files})
    for name in [*generations, None]:
        of = [file for file in files if name in (None, file["generation"])]
        missed = [why[change["digest"]]["kind"] for change in survivors({"files": of})]
        matter = sum(kind in MATTER for kind in missed)
        count, noticed, without = (
            sum(file[key] for file in of)
            for key in ("mutants", "noticed", "noticed_without_expected")
        )
        text += (
            f"| {name or 'all'} | {count} | {noticed} | {without} | {len(missed) - matter} "
            f"| {missed.count('meaning')} | {missed.count('unseen')} "
            f"| {100 * noticed / (noticed + matter):.0f} % |\n"
        )
    if left := sorted(named() - {file["file"] for file in files}):
        text += f"\nNot measured yet: {', '.join(f'`{name}`' for name in left)}.\n"
    text += "\n## Not noticed\n\n"
    for kind, says in KINDS.items():
        text += f"### {kind}: {says}\n\n"
        for change in survivors(document):
            reason = why[change["digest"]]
            if reason["kind"] != kind:
                continue
            text += f"`{change['file']}:{change['line']}`, {change['operator']}: {reason['why']}\n"
            lines = [line for line in change["diff"].splitlines()[3:] if line[0] in "+-"]
            text += "\n```diff\n" + "\n".join(lines) + "\n```\n\n"
    return text.rstrip() + "\n"


def main() -> None:
    """Measure, unless only the page is asked for, and draw it."""
    if "--draw" not in sys.argv[1:]:
        measure(sys.argv[1:])
    if missing := {one["digest"] for one in survivors(json.loads(DATA.read_text()))} - {*reasons()}:
        sys.exit(f"{REASONS.name} has no reason for {', '.join(sorted(missing))}")
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
