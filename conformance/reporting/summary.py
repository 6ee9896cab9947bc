# SPDX-License-Identifier: Apache-2.0
"""The closing summary of a run, for a terminal and for a CI step summary."""

import io
import textwrap
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import attrs
from rich.console import Console
from rich.table import Table
from rich.text import Text

from conformance.coverage import reached
from conformance.reporting.certificate import conclusion
from conformance.reporting.terminal import CONCLUSIONS, STYLES, open_table
from conformance.rules import Level
from conformance.running import baseline
from conformance.verdict import Verdict, must_wait
from conformance.watching.comparison import cut


@attrs.frozen
class Reason:
    """A reason that is no failure of the plugin, and the rules that are not judged for it."""

    says: str
    rules: tuple[str, ...]
    verdict: Verdict = Verdict.NOT_VERIFIED  #: or error

    @property
    def named(self) -> str:
        """The rules as a person writes them: ``LB-02, LB-04 to LB-09``, by their numbers."""
        spans: list[list[str]] = []
        for rule in sorted(self.rules, key=_place):
            if spans and _after(spans[-1][-1]) == rule:
                spans[-1].append(rule)
            else:
                spans.append([rule])
        return ", ".join(
            f"{span[0]} to {span[-1]}" if len(span) > 2 else ", ".join(span)  # noqa: PLR2004 - a range
            for span in spans
        )


def _place(rule: str) -> tuple[str, int]:
    """Return the family of an id and its number."""
    family, _, number = rule.rpartition("-")
    return (family, int(number)) if number.isdecimal() else (rule, 0)


def _after(rule: str) -> str:
    """Return the id whose number is the next one, or "" where an id has none."""
    family, _, number = rule.rpartition("-")
    return f"{family}-{int(number) + 1:02}" if number.isdecimal() else ""


def reasons(
    rules: Iterable[Mapping[str, Any]], verdict: Verdict = Verdict.NOT_VERIFIED
) -> list[Reason]:
    """Return the reasons of a certificate's rules that are not verified, each of them once.

    Rules that wait for the same others have that reason, and so have rules of one cause, whatever
    else is said of them. With ``error`` as the verdict they are those for which the harness failed.
    """
    found: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for rule in rules:
        if rule["verdict"] == verdict:
            found.setdefault(_reason(rule), []).append(rule)
    return [
        Reason(_common(members), tuple(rule["id"] for rule in members), verdict)
        for members in found.values()
    ]


def _reason(rule: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what tells the reason of a rule from others; one without a cause is its own."""
    if waits := rule.get("waits_for"):
        return ("waits for", *waits)
    return ("cause", rule["cause"]["id"]) if rule.get("cause") else ("rule", rule["id"])


def _common(members: Sequence[Mapping[str, Any]]) -> str:
    """Return what is said of rules that have one reason: all of it, where there is only one."""
    first, *others = members
    if others:
        waits = first.get("waits_for")
        return str(must_wait(waits)) if waits else str(first["cause"]["says"]).strip()
    return (first["message"] or "no reason was given").strip()


def shared(rules: Iterable[Mapping[str, Any]]) -> list[Reason]:
    """Return the reasons that several rules have, failures of the harness first."""
    rules = [*rules]
    verdicts = (Verdict.ERROR, Verdict.NOT_VERIFIED)
    found = (reason for verdict in verdicts for reason in reasons(rules, verdict))
    return [reason for reason in found if len(reason.rules) > 1]


def _members(several: Iterable[Reason]) -> set[str]:
    """Return the rules that have these reasons."""
    return {rule for reason in several for rule in reason.rules}


#: What precedes the ids of rules that are not judged.
_UNJUDGED = {Verdict.NOT_VERIFIED: "not verified", Verdict.ERROR: "the harness failed on"}

#: Reasons for which lines never ran, of one file.
_MOST_WHYS = 6

#: Lines of the sentence of a failure that stands above in full.
_MOST_LINES = 2

#: Columns before the title: id, verdict, counts, evidence (sim off ser) and time.
_FIXED_WIDTH = 7 + 16 + 11 + 13 + 6 + 2


def table(certificate: Mapping[str, Any], *, width: int = 100, told: Collection[str] = ()) -> Table:
    """Return the rules of a certificate with verdict, counts, evidence and time.

    A rule that holds takes one line, and what a person must act on is spelled out, unless failures
    of its level were ``told`` above: then it is the beginning of its sentence, save for what a
    baseline knows, which was not.  Rules that are not judged for a reason that others have take
    none: :func:`unclear` names them.
    """
    silent = {
        m["rule"] for m in certificate.get("baseline", ()) if m["state"] == baseline.State.KNOWN
    }
    result = open_table("rule", "verdict", "acted/run", "evidence", "time", "title")
    room = max(20, width - _FIXED_WIDTH)
    together = _members(shared(certificate["rules"]))
    for rule in certificate["rules"]:
        if rule["id"] in together:
            continue
        verdict = Verdict(rule["verdict"])
        advice = verdict is Verdict.FAIL and rule["level"] == Level.SHOULD.value
        title = Text(rule["title"])
        if verdict in (Verdict.PASS, Verdict.NOT_APPLICABLE):
            title.truncate(room, overflow="ellipsis")
        elif rule["message"]:
            said = rule["message"].rstrip()
            above = rule["level"] in told and rule["id"] not in silent
            if above and verdict is Verdict.FAIL:
                said = cut(" ".join(said.split()), room * _MOST_LINES)
            title.append("\n" + said, style=STYLES[verdict])
        result.add_row(
            rule["id"],
            Text("fail (advice)", style="yellow")
            if advice
            else Text(verdict.value, style=STYLES[verdict]),
            f"{rule['acted']}/{rule['examples']}" if rule["examples"] else "",
            " ".join(name[:3] for name in rule["evidence"]),
            f"{rule['seconds']:.1f}s",
            title,
        )
    return result


def configurations(certificate: Mapping[str, Any]) -> Table:
    """Return what was shown under each configuration, with counts and time."""
    result = open_table("configuration", "verdict", "acted/run", "time", "about")
    for row in certificate["configurations"]:
        verdict = Verdict(row["verdict"])
        about = Text(row["about"])
        if row["message"]:
            about.append("\n" + row["message"], style=STYLES[verdict])
        result.add_row(
            row["name"],
            Text(verdict.value, style=STYLES[verdict]),
            f"{row['acted']}/{row['requests']}" if row["requests"] else "",
            f"{row['seconds']:.1f}s",
            about,
        )
    return result


def unclear(certificate: Mapping[str, Any], width: int) -> Text:
    """Return the reasons that several rules have for not being judged, each of them once."""
    text = Text()
    for reason in shared(certificate["rules"]):
        text.append(_hanging(f"{_UNJUDGED[reason.verdict]}: {reason.named}", width))
        for line in reason.says.splitlines():
            text.append(_hanging(line, width, "  "), style=STYLES[reason.verdict])
    return text


def _hanging(line: str, width: int, head: str = "") -> str:
    """Return a line below a heading, wrapped so that all of it stands below its head."""
    return (
        textwrap.fill(
            line,
            width,
            initial_indent=head,
            subsequent_indent=" " * max(2, len(head)),
            break_long_words=False,
            break_on_hyphens=False,
        )
        + "\n"
    )


def show(console: Console, certificate: Mapping[str, Any], *, told: Collection[str] = ()) -> None:
    """Print everything below the headline: the rules, reasons, known failures and notes.

    ``told`` are the levels of rules whose failures stand above in full.
    """
    console.print(table(certificate, width=console.width, told=told))
    console.print(unclear(certificate, console.width), end="", soft_wrap=True)
    if certificate.get("configurations"):
        console.print()
        console.print(configurations(certificate))
    console.print(known(certificate), end="", soft_wrap=True)
    console.print(notes(certificate, console.width), end="", soft_wrap=True)
    console.print(lines(certificate), end="", soft_wrap=True)


def known(certificate: Mapping[str, Any]) -> Text:
    """Return what the baseline says about a certificate, a line for each entry."""
    marks = certificate.get("baseline", ())
    text = Text()
    for mark in marks:
        style = "dim" if mark["state"] == baseline.State.KNOWN else "bold red"
        text.append(f"baseline: {baseline.sentence(mark)}\n", style=style)
    return text


def notes(certificate: Mapping[str, Any], width: int) -> Text:
    """Return what else there is to say of a plugin, without a verdict."""
    text = Text(style="dim")
    for note in certificate.get("notes", ()):
        text.append(_hanging(f"{note['about']}:", width))
        for sentence in note["says"]:
            text.append(_hanging(sentence, width, "  - "))
    return text


def lines(certificate: Mapping[str, Any]) -> Text:
    """Return which lines and branches of a plugin never ran, and why."""
    text = Text(style="dim")
    for file in certificate.get("lines", ()):
        text.append(f"{file['file']}: {reached.counts(file)}\n")
        text.append("".join(f"  - {reached.sentence(why)}\n" for why in file["why"][:_MOST_WHYS]))
        if (more := len(file["why"]) - _MOST_WHYS) > 0:
            text.append(f"  - and {more} more, which the page has\n")
    return text


#: What a headline counts, in its order.
_ADVICE = f"{Verdict.FAIL} ({Level.SHOULD})"
_COUNTED = ("pass", "fail", _ADVICE, "not-applicable", "not-verified", "error")


def _counted(rule: Mapping[str, Any]) -> str:
    """Return what a rule is counted as; what a conformant plugin fails is advice."""
    advice = rule["verdict"] == Verdict.FAIL and rule["level"] == Level.SHOULD
    return _ADVICE if advice else str(rule["verdict"])


def headline(certificate: Mapping[str, Any]) -> Text:
    """Return the verdict on one line: target, verdict, counts."""
    verdict = conclusion(certificate)
    counts = Counter(_counted(rule) for rule in certificate["rules"])
    parts = [f"{counts[name]} {name}" for name in _COUNTED if counts[name]]
    text = Text.assemble(
        (certificate["plugin"]["target"], "bold"),
        "  ",
        (verdict.value.upper(), CONCLUSIONS[verdict]),
        "  ",
        ", ".join(parts),
    )
    if certificate["interrupted"]:
        text.append("  (interrupted)", style="yellow")
    return text


def text(
    certificate: Mapping[str, Any],
    *,
    width: int = 100,
    colour: bool = False,
    told: Collection[str] = (),
) -> str:
    """Return headline and table as text; ``told`` as in :func:`show`."""
    stream = io.StringIO()
    console = Console(
        file=stream,
        width=width,
        force_terminal=colour,
        color_system="standard" if colour else None,
        highlight=False,
    )
    console.print(headline(certificate))
    show(console, certificate, told=told)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def markdown(certificate: Mapping[str, Any]) -> str:
    """Return a summary that fits a CI step summary."""
    plugin = certificate["plugin"]
    lines = [
        f"### {plugin['target']}: {certificate['verdict']}",
        "",
        (
            f"{plugin['generation']} · vLLM {certificate['environment']['vllm'] or 'unknown'} · "
            f"{', '.join(certificate['run']['evidence'])} · seed {certificate['run']['seed']}"
        ),
        "",
        "| rule | title | verdict | acted/run | evidence |",
        "|---|---|---|---|---|",
    ]
    several = shared(certificate["rules"])
    together = _members(several)
    for rule in certificate["rules"]:
        if rule["id"] in together:
            continue
        note = ""
        if rule["message"] and rule["verdict"] != Verdict.PASS.value:
            note = "<br>" + rule["message"].strip().replace("|", "\\|").replace("\n", "<br>")
        lines.append(
            f"| {rule['id']} | {rule['title']}{note} | {rule['verdict']} | "
            f"{rule['acted']}/{rule['examples']} | {' '.join(rule['evidence'])} |"
        )
    for reason in several:
        says = reason.says.replace("\n", "<br>")
        how = _UNJUDGED[reason.verdict].capitalize()
        lines += ["", f"{how}: {reason.named}: {says}"]
    if rows := certificate.get("configurations"):
        lines += ["", "| configuration | about | verdict | acted/run |", "|---|---|---|---|"]
        for row in rows:
            says = (row["message"] or "").replace("|", "\\|").replace("\n", "<br>")
            about = row["about"] + (f"<br>{says}" if says else "")
            lines.append(
                f"| {row['name']} | {about} | {row['verdict']} | {row['acted']}/{row['requests']} |"
            )
    if marks := certificate.get("baseline"):
        lines += ["", *(f"- baseline: {baseline.sentence(mark)}" for mark in marks)]
    if notes := certificate.get("notes"):
        said = (f"- {note['about']}: {sentence}" for note in notes for sentence in note["says"])
        lines += ["", *said]
    return "\n".join(lines) + "\n"
