# SPDX-License-Identifier: Apache-2.0
"""What many seeds showed of the galleries: kept as data, drawn as a page.

The nightly lane writes one file for each plugin, and this program collects them, generation by
generation, into ``reports/NAME-survey.json`` and draws ``docs/NAME-survey.md``.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from statistics import median
from typing import Any

import attrs

ROOT = Path(__file__).parents[1]

#: Seeds of the two surveys.
KILL_SEEDS = int(os.environ.get("SURVEY_KILL_SEEDS", "20"))
QUIET_SEEDS = os.environ.get("SURVEY_QUIET_SEEDS", "1-50")  # first and last

COMMAND = "./run nightly"


@attrs.frozen
class Survey:
    """The survey of one generation, and where it lies."""

    name: str
    title: str

    @property
    def fresh(self) -> Path:
        """The folder of the records that were not collected yet."""
        return ROOT / "reports" / "local" / "survey" / self.name

    @property
    def data(self) -> Path:
        """The records of all plugins."""
        return ROOT / "reports" / f"{self.name}-survey.json"

    @property
    def page(self) -> Path:
        """What is drawn from them."""
        return ROOT / "docs" / f"{self.name}-survey.md"


BATCH = Survey("logits-batch", "Batch logits processors")
SLOT = Survey("logits-slot", "Slot logits processors")
IO_DATA = Survey("io-data", "IO processors")
IO_REQUEST = Survey("io-request", "IO processors with `parse_request`")
HOOK = Survey("hook-rfc", "Classifier hooks")
PROCESSOR = Survey("mm-processor", "Multi-modal processors")
MODALITY = Survey("mm-modality", "Plugins of one modality")
TOOL_PARSER = Survey("parser-tool", "Tool parsers")
REASONING_PARSER = Survey("parser-reasoning", "Reasoning parsers")
SURVEYS = (
    BATCH,
    SLOT,
    IO_DATA,
    IO_REQUEST,
    HOOK,
    PROCESSOR,
    MODALITY,
    TOOL_PARSER,
    REASONING_PARSER,
)


def quiet_seeds() -> range:
    """Return the seeds that correct plugins are judged with; parts add up over several runs."""
    first, _, last = QUIET_SEEDS.partition("-")
    return range(int(first), int(last or first) + 1)


def keep(survey: Survey, kind: str, name: str, record: dict[str, Any]) -> None:
    """Write the record of one plugin; ``kind`` is ``kills``, ``bare`` or ``quiet``."""
    folder = survey.fresh / kind
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def collect(survey: Survey) -> dict[str, Any]:
    """Return the records of a generation; those of an earlier run stay where none is fresh.

    Correct plugins have a record for each part of the seeds, and what clients can kill one of the
    seeds without a profile.
    """
    data: dict[str, Any] = {"kills": {}, "bare": {}, "quiet": {}}
    if survey.data.exists():
        data |= json.loads(survey.data.read_text(encoding="utf-8"))
    for kind in data:
        for path in sorted((survey.fresh / kind).glob("*.json")):
            record = json.loads(path.read_text(encoding="utf-8"))
            if kind == "quiet":
                name, _, part = path.stem.rpartition(" ")
                data[kind].setdefault(name, {})[part] = record
            else:
                data[kind][path.stem] = record
        data[kind] = dict(sorted(data[kind].items()))
    return data


def page(survey: Survey, data: dict[str, Any]) -> str:
    """Return the page that shows the records of a generation, as Markdown."""
    kills, quiet = data["kills"], data["quiet"]
    seeds = sum(record["seeds"] for record in kills.values())
    killed = sum(record["killed"] for record in kills.values())
    firsts = [first for record in kills.values() for first in record["first"]]
    runs = sum(total(parts, "seeds") for parts in quiet.values())
    alarms = sum(total(parts, "alarms") for parts in quiet.values())
    bare = data.get("bare", {})
    unled = sum(record["killed"] for record in bare.values())
    told = f"""
{len(bare)} of the defective plugins are of those that a client's value can end or stall,
and were judged again without a profile:
{unled} of {sum(record["seeds"] for record in bare.values())} runs found the fault by the same rule.
"""
    head = f"""\
# {survey.title}: what the suite catches

Drawn from `reports/{survey.data.name}`; made with `{COMMAND}`.
"""
    caught = f"""
{len(kills)} defective plugins, judged at `standard` budget with several seeds each:
{killed} of {seeds} runs found the fault by the rule that is about it,
the median one after {median(firsts or [0]):g} examples.
{told if bare else ""}"""
    passed = f"""
{len(quiet)} correct plugins, judged by every rule at `deep` budget with several seeds each:
{alarms} false alarms in {runs} runs.
"""
    defects = """
## Defect by rule

`first` is the number of examples to the first failure, median and most over the seeds;
`also` names the other rules that fail with the default seed.

| defect | kind | rule | killed | first | also |
|---|---|---|---|---|---|
"""
    correct = """
## Correct plugins

| plugin | seeds | false alarms | examples |
|---|---|---|---|
"""
    for name, record in sorted(kills.items(), key=lambda item: (item[1]["rule"], item[0])):
        first = record["first"]
        shown = f"{median(first):g}, at most {max(first)}" if first else ""
        defects += (
            f"| `{name}` | {record['kind']} | {record['rule']} | "
            f"{record['killed']}/{record['seeds']} | {shown} | {' '.join(record['also'])} |\n"
        )
    for name, parts in quiet.items():
        correct += (
            f"| `{name}` | {total(parts, 'seeds')} | {total(parts, 'alarms')} | "
            f"{total(parts, 'examples')} |\n"
        )
    # Of some generations only one kind was judged so far: it takes hours.
    some = ((kills, caught), (quiet, passed), (kills, defects), (quiet, correct))
    return head + "".join(text for known, text in some if known)


def total(parts: dict[str, dict[str, int]], what: str) -> int:
    """Return the sum over the parts of a correct plugin's record."""
    return sum(part[what] for part in parts.values())


def main() -> None:
    """Collect what is there and draw the pages."""
    for survey in SURVEYS:
        if not (survey.data.exists() or survey.fresh.exists()):
            continue  # nobody has made it yet
        data = collect(survey)
        survey.data.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        survey.page.write_text(page(survey, data), encoding="utf-8")


if __name__ == "__main__":
    main()
