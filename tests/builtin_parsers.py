# SPDX-License-Identifier: Apache-2.0
"""Certifies every tool parser and reasoning parser of the installed vLLM, and draws the table.

    python tests/builtin_parsers.py [--read | --draw]

``--read`` reads the certificates of the last run again, ``--draw`` only draws the page.  What was
found is kept in ``reports/builtin-parsers.json``, beside it the programs of all failures; what
people know of them is in ``builtin-parsers.toml``.
"""

from __future__ import annotations

import json
import logging
import re
import resource
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import parser_programs

from conformance.parser.formats import KNOWN
from conformance.settings import folder_name

ROOT = Path(__file__).parents[1]
DATA = ROOT / "reports" / "builtin-parsers.json"
NOTES = DATA.with_suffix(".toml")
PROGRAMS = ROOT / "reports" / "builtin-parsers"
PAGE = ROOT / "docs" / "builtin-parsers.md"
FRESH = ROOT / "reports" / "local" / "builtin-parsers"

#: Characters of a delta that the table shows, and of a sentence.
SHOWN, TOLD = 90, 180

#: Deltas that it shows, rather than their number.
MOST = 4

#: Cores of the machine that the page speaks of.
CORES = 2

#: How long the run took, of all processes; written where the certificates are.
TIMES = FRESH / "times.json"

HEAD = """\
# vLLM's own parsers

Every tool parser and reasoning parser that vLLM {vllm} registers, judged in the simulator
at budget quick in {minutes:.1f} minutes on two cores{company};
`python tests/builtin_parsers.py` makes it again.

{found} of the {judged} names that could be judged break a MUST, most of them since
what a client gets depends on how the answer is cut, or on whether it is streamed;
{advised} more break nothing but a SHOULD, which is advice.
A parser counts only where its format was checked against the source that the table names:
a file or a test of vLLM, a page of its documentation, or a template.

*Shown by* are the deltas of the smallest cut that was found, one code for each,
or what was counted where no cut matters.
The rule links to what it demands, and *program* to a short one that needs vLLM alone
and ends with what it printed.
Rules that wait for one that fails are not judged: a parser may have more faults than this shows.
A thread is named where one is about the same thing; *new* means that a search found none.

RP-17 has one cause nearly everywhere:
behind the end of reasoning, `DelegatingParser.parse_delta` sends on what comes as it is,
while `parse` has all of the answer read by the parser's engine,
to which a second block is reasoning again, or a second marker nothing at all.

TP-19 and RP-19 have a cause in the host:
where a request has stop strings, its detokenizer holds the text of the last letters back,
and not their tokens, so what is known by its token is not in the text yet.

"""


def registered() -> list[str]:
    """Return the targets of all parsers that vLLM registers."""
    from conformance.parser.roles import manager

    roles = {"tool": "tool-parser", "reasoning": "reasoning-parser"}
    return [f"{form}:{name}" for role, form in roles.items() for name in manager(role).lazy_parsers]


def certify(targets: list[str]) -> None:
    """Certify all of them in one run, and note how long that took."""
    began = time.monotonic()
    command = [sys.executable, "-m", "conformance.cli", "certify", *targets, "--budget=quick"]
    subprocess.run([*command, "--quiet", "--conformance-report", FRESH], check=False)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    computed = round(used.ru_utime + used.ru_stime)
    times = {"seconds": round(time.monotonic() - began), "processor": computed}
    TIMES.write_text(json.dumps(times), encoding="utf-8")


def collected(targets: list[str]) -> dict[str, Any]:
    """Return what the certificates say, and keep the programs beside it."""
    PROGRAMS.mkdir(exist_ok=True)
    for old in PROGRAMS.glob("*.py"):
        old.unlink()
    logging.disable()  # what parsers tell of answers that they stumble over
    parsers = {target: _parser(target, FRESH / folder_name(target)) for target in targets}
    certificate = json.loads(
        (FRESH / folder_name(targets[0]) / "certificate.json").read_text(encoding="utf-8")
    )
    times = json.loads(TIMES.read_text(encoding="utf-8"))
    vllm = certificate["environment"]["vllm"]
    return {"vllm": vllm, **times, "parsers": parsers}


def _parser(target: str, folder: Path) -> dict[str, Any]:
    document = json.loads((folder / "certificate.json").read_text(encoding="utf-8"))
    failing: list[dict[str, Any]] = []
    for rule in document["rules"]:
        if rule["verdict"] != "fail":
            continue
        entry = {key: rule[key] for key in ("id", "level", "message")}
        case = json.loads((folder / "cases" / f"{rule['id']}.json").read_text(encoding="utf-8"))
        if program := case["counterexample"].get("program"):
            entry["deltas"] = program["deltas"]
            source = parser_programs.short(case)
            if source is None:
                raise ValueError(f"no short program shows that {target} breaks {rule['id']}")
            entry["program"] = f"{target.replace(':', '-')}-{rule['id']}.py"
            (PROGRAMS / str(entry["program"])).write_text(source, encoding="utf-8")
        failing.append(entry)
    waits = [rule["message"] for rule in document["rules"] if rule["verdict"] == "not-verified"]
    return {
        "generation": document["plugin"]["generation"],
        "verdict": document["verdict"],
        "format": (document["profile"] or {}).get("format"),
        "failing": failing,
        "why": waits[0] if waits and not failing else None,
    }


def page(data: dict[str, Any], notes: dict[str, Any]) -> str:
    """Return the page that shows what was found."""
    judged = [name for name, each in data["parsers"].items() if _source(name, each)]
    found = [name for name in judged if data["parsers"][name]["failing"]]
    broken = [name for name in found if _levels(data["parsers"][name]) & {"MUST"}]
    lines = [
        HEAD.format(
            vllm=data["vllm"],
            minutes=data["seconds"] / 60,
            company=_company(data),
            found=len(broken),
            advised=len(found) - len(broken),
            judged=len(judged),
        )
    ]
    for title, form in (("Tool parsers", "tool-parser"), ("Reasoning parsers", "reasoning-parser")):
        names = [name for name in data["parsers"] if name.startswith(f"{form}:")]
        lines.append(f"## {title}\n\n")
        lines.append("| parser | fails | shown by | thread | format, and where it was checked |\n")
        lines.append("|---|---|---|---|---|\n")
        lines += [
            _row(name, data["parsers"][name], failure, notes)
            for name in names
            if name in found
            for failure in data["parsers"][name]["failing"]
        ]
        lines.append("\nThese pass every rule:\n\n")
        lines += [
            f"- `{_short(name)}`: `{data['parsers'][name]['format']}`, "
            f"{_source(name, data['parsers'][name])}\n"
            for name in names
            if name in judged and name not in found
        ]
        lines.append("\nThese are not judged:\n\n")
        lines += [
            f"- `{_short(name)}`: {_why(name, data['parsers'][name], notes)}\n"
            for name in names
            if name not in judged
        ]
        lines.append("\n")
    return "".join(lines).rstrip("\n") + "\n"


def _company(data: dict[str, Any]) -> str:
    """Say how much of its time the run had the machine's cores to itself."""
    if data["processor"] is None:
        return ", which other work used as well"
    return f", of which it computed for {data['processor'] / 60 / CORES:.1f}"


def _levels(parser: dict[str, Any]) -> set[str]:
    return {failure["level"] for failure in parser["failing"]}


def _source(name: str, parser: dict[str, Any]) -> str | None:
    """Return where the format of a parser was checked; None for one that is not judged."""
    role = parser["generation"].removeprefix("parser/")
    form = next((each for each in KNOWN[role] if each.name == parser["format"]), None)
    return form.source if form is not None and _short(name) in form.parsers else None


def _short(name: str) -> str:
    return name.partition(":")[2]


def _why(name: str, parser: dict[str, Any], notes: dict[str, Any]) -> str:
    why = str(notes["not_judged"].get(name) or parser["why"])
    return re.sub(r"(?s); give answers of the model.*", "", why)


def _row(name: str, parser: dict[str, Any], failure: dict[str, Any], notes: dict[str, Any]) -> str:
    rule = failure["id"]
    page_of = parser["generation"].replace("/", "-")
    told = f"[{rule}](rules/{page_of}.md#{rule.lower()})"
    told += " (advice)" if failure["level"] == "SHOULD" else ""
    if "program" in failure:
        told += f" [program](../reports/builtin-parsers/{failure['program']})"
    shown = _shown(failure)
    threads = notes["threads"].get(f"{name} {rule}", notes["rules"].get(rule, ()))
    linked = ", ".join(
        f"[{number}](https://github.com/vllm-project/vllm/issues/{number})" for number in threads
    )
    cells = f"`{_short(name)}`", told, shown, linked or "new", _format(name, parser)
    return f"| {' | '.join(cells)} |\n"


def _shown(failure: dict[str, Any]) -> str:
    """Return the deltas, where these are few, or what was said."""
    deltas = [_code(text) for text in failure.get("deltas", ())]
    if 0 < len(deltas) <= MOST:
        return " ".join(deltas)
    return f"{len(deltas)} deltas" if deltas else _code(failure["message"], TOLD)


def _format(name: str, parser: dict[str, Any]) -> str:
    return f"`{parser['format']}`: {_source(name, parser)}"


def _code(text: str, most: int = SHOWN) -> str:
    """Return a delta as code in a table, without its middle if it is long."""
    if len(text) > most:
        text = f"{text[: most // 2]} ... {text[-most // 2 :]}"
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "&#124;")
    shown = escaped.replace("\n", "\\n")
    return f"<code>{shown}</code>"


def main(words: list[str]) -> None:
    """Certify all parsers, unless the page is only to be drawn, and draw it."""
    if "--draw" not in words:
        targets = registered()
        if "--read" not in words:
            certify(targets)
        data = collected(targets)
        DATA.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    data = json.loads(DATA.read_text(encoding="utf-8"))
    notes = tomllib.loads(NOTES.read_text(encoding="utf-8"))
    PAGE.write_text(page(data, notes), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
