# SPDX-License-Identifier: Apache-2.0
"""The report of one plugin as a page: one file, that opens from disk and needs no network."""

from __future__ import annotations

import functools
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import jinja2
from markupsafe import Markup, escape

from conformance.coverage.reached import counts, sentence
from conformance.generations import named
from conformance.interface import Generation
from conformance.reporting import badge, plots, steps, templates
from conformance.reporting.summary import reasons
from conformance.rules import Level, Rule
from conformance.running import baseline
from conformance.verdict import Verdict

FILE_NAME = "index.html"

#: What a reader sees before the name of a verdict; colours alone tell some people nothing.
SIGNS = {
    "conformant": "✓",
    "non-conformant": "✗",
    "incomplete": "?",
    "error": "!",
    Verdict.PASS.value: "✓",
    Verdict.FAIL.value: "✗",
    Verdict.NOT_APPLICABLE.value: "-",
    Verdict.NOT_VERIFIED.value: "?",
    Verdict.ERROR.value: "!",
}

SAYS = {
    "conformant": "Every MUST that applies to this plugin was shown to hold.",
    "non-conformant": "At least one MUST does not hold.",
    "incomplete": "No MUST is known to be broken, but not all that apply could be shown.",
    "error": "The harness itself failed; nothing is said about the plugin.",
}

#: The verdict of a rule that has the colour of a verdict of a plugin.
_COLOURS = {
    "conformant": Verdict.PASS.value,
    "non-conformant": Verdict.FAIL.value,
    "incomplete": Verdict.NOT_VERIFIED.value,
    "error": Verdict.ERROR.value,
}

#: How facts of a certificate are called.
FACTS = {
    "vllm": "vLLM",
    "host_build": "its build",
    "host_engines": "its engines",
    "torch": "PyTorch",
    "python": "Python",
    "platform": "platform",
    "device": "device",
    "runner": "model runner",
    "model": "model",
}


@attrs.frozen
class Entry:
    """One rule of a certificate, with what the catalogue knows of it."""

    id: str
    title: str
    level: str
    verdict: str
    evidence: Sequence[str]
    examples: int
    acted: int
    seconds: float
    message: str
    rule: Rule | None  #: None where this release of the harness no longer has it
    steps: steps.Steps | None = None
    replay: str = ""
    program: str = ""

    @property
    def section(self) -> str:
        """The heading it stands under."""
        return self.rule.section if self.rule else "Rules of another release"

    @property
    def advice(self) -> bool:
        """Whether it is broken, and only a SHOULD."""
        return self.verdict == Verdict.FAIL.value and self.level == Level.SHOULD.value


def render(
    certificate: Mapping[str, Any],
    programs: Mapping[str, str],
    performance: Mapping[str, Any] | None = None,
) -> str:
    """Return the page of a certificate."""
    plugin = certificate["plugin"]
    generation = named(plugin["generation"])
    entries = [_entry(rule, generation, programs) for rule in certificate["rules"]]
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(entry.section, []).append(entry)
    return template("report.html.j2").render(
        certificate=certificate,
        plugin=plugin,
        title=generation.title,
        verdict=certificate["verdict"],
        says=SAYS[certificate["verdict"]],
        signs=SIGNS,
        counts=_counts(entries),
        broken=[entry for entry in entries if entry.verdict == "fail" and not entry.advice],
        advice=[entry for entry in entries if entry.advice],
        faults=[entry for entry in entries if entry.verdict == "error"],
        unclear=[
            (reason.says, [entry for entry in entries if entry.id in reason.rules])
            for reason in reasons(certificate["rules"])
        ],
        groups=groups,
        not_asked=_not_asked(certificate, generation),
        known=[baseline.sentence(mark) for mark in certificate.get("baseline", ())],
        performance=performance,
        plots=plots.figures(performance) if performance else [],
        facts=_facts(certificate),
        command=command(certificate),
        profile=json.dumps(certificate["profile"], indent=2, ensure_ascii=False)
        if certificate["profile"]
        else "",
        badge=Markup(badge.svg(certificate)),  # noqa: S704 - drawn here, and escaped there
        badge_text=f"{badge.label(certificate)}: {badge.message(certificate)}",
    )


def overview(certificates: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a page that lists certificates, by the path of the page of each."""
    rows = [
        {
            "page": path,
            "target": document["plugin"]["target"],
            "generation": document["plugin"]["generation"],
            "verdict": document["verdict"],
            "vllm": document["environment"]["vllm"] or "unknown",
            "evidence": ", ".join(document["run"]["evidence"]),
            "musts": badge.musts(document),
        }
        for path, document in certificates.items()
    ]
    verdicts = [row["verdict"] for row in rows]
    return template("overview.html.j2").render(
        rows=rows,
        counts={name: verdicts.count(name) for name in SAYS if name in verdicts},
        signs=SIGNS,
        names=_COLOURS,
    )


def command(certificate: Mapping[str, Any]) -> str:
    """Return the command that makes the certificate again."""
    run = certificate["run"]
    words = ["vllm-conformance", "certify", certificate["plugin"]["target"]]
    words += ["--evidence", ",".join(run["evidence"])]
    words += ["--budget", run["budget"], "--conformance-seed", str(run["seed"])]
    if rows := certificate.get("configurations"):
        words += ["--configuration", ",".join(row["name"] for row in rows)]
    if run["server_url"]:
        words += ["--server-url", run["server_url"]]
    return shlex.join(words)


def _entry(rule: Mapping[str, Any], generation: Generation, programs: Mapping[str, str]) -> Entry:
    known = next((each for each in generation.rules if each.id == rule["id"]), None)
    table = steps.of(rule.get("counterexample"))
    message = rule["message"] or ""
    if table and table.detail:
        message += f"\n{table.detail}"
    return Entry(
        id=rule["id"],
        title=rule["title"],
        level=rule["level"],
        verdict=rule["verdict"],
        evidence=rule["evidence"],
        examples=rule["examples"],
        acted=rule["acted"],
        seconds=rule["seconds"],
        message=message,
        rule=known,
        steps=table,
        replay=f"vllm-conformance replay cases/{rule['case']}.json" if rule["case"] else "",
        program=programs.get(rule["id"], ""),
    )


def _counts(entries: Sequence[Entry]) -> dict[str, int]:
    names = [entry.verdict for entry in entries]
    return {name.value: names.count(name.value) for name in Verdict if name.value in names}


def _not_asked(certificate: Mapping[str, Any], generation: Generation) -> list[str]:
    """Say which rules need evidence that was not asked for."""
    found = []
    for rule_id in certificate["not_asked"]:
        rule = next((each for each in generation.rules if each.id == rule_id), None)
        if rule is not None:
            needs = " or ".join(evidence.value for evidence in rule.evidence)
            if rule_id == generation.configured:
                needs = "engines of the configurations that --configuration names"
            found.append(f"{rule.id} {rule.title}: shown by {needs}")
    return found


def _facts(certificate: Mapping[str, Any]) -> dict[str, str]:
    """Return what there is to know of the run."""
    plugin, run = certificate["plugin"], certificate["run"]
    facts = {
        "plugin": plugin["target"],
        "version": plugin["version"],
        "digest of its source": plugin["digest"],
        **{
            FACTS.get(key, key.replace("_", ", ")): value
            for key, value in certificate["environment"].items()
        },
        "evidence": ", ".join(run["evidence"]),
        "budget": run["budget"],
        "seed": str(run["seed"]),
        "server": run["server_url"],
        "date": run.get("finished"),
        "took": f"{run['seconds']:.1f} s" if run["seconds"] is not None else None,
        "harness": f"{certificate['harness']['version']}, rules {certificate['harness']['rules']}",
    }
    return {name: value for name, value in facts.items() if value}


@functools.cache
def template(name: str) -> jinja2.Template:
    """Return a template of pages; to read it takes longer than to draw one."""
    return templates.template(
        name, escape_html=True, prose=_prose, breakable=_breakable, reason=sentence, counts=counts
    )


def _prose(text: str) -> Markup:
    """Return a sentence with what stands between backticks as code, and its line breaks."""
    parts = [
        Markup("<code>{}</code>").format(part) if index % 2 else escape(part)
        for index, part in enumerate(re.split(r"`([^`\n]*)`", text.strip()))
    ]
    return Markup("").join(parts).replace("\n", Markup("<br>"))


def _breakable(name: str) -> Markup:
    """Return a path or dotted name that a line may end in behind each part."""
    return Markup("<wbr>").join(re.split(r"(?<=[/:._@])", name))
