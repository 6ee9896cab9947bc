# SPDX-License-Identifier: Apache-2.0
"""The rule reference: a page for each generation, and one rule in the terminal.

Both are drawn from the catalogue, ``requirements.toml`` and the gallery of defective plugins.
``python -m conformance.reporting.reference docs/rules`` writes the pages.
"""

import ast
import re
import textwrap
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import attrs
import click

import conformance
from conformance.generations import all_generations
from conformance.interface import Generation
from conformance.reporting import requirements, templates
from conformance.reporting.requirements import Entry, Fate, Passage, Requirements
from conformance.rules import Level, Rule

T = TypeVar("T")

COMMAND = "python -m conformance.reporting.reference docs/rules"

#: The repository, or where the package is installed: then there are no fixtures.
ROOT = Path(conformance.__file__).parents[1]

#: Columns that a paragraph has at most; longer lines are hard to read.
WIDEST = 100

_HEADING = 11

#: Defective plugins that a terminal is given of one rule; its page has all.
_MOST_DEFECTIVE = 10


@attrs.frozen
class Specimen:
    """A defective plugin of the gallery."""

    path: str  #: from the root of the repository
    name: str  #: of its class
    rule: str  #: id of the rule that it fails by
    fault: str
    resembles: str | None  #: a real defect of the same kind


def gallery(generation: Generation) -> list[Specimen]:
    """Read the defective plugins of a generation; none where the repository is not at hand."""
    names = [_folder(generation), *(["configurations"] if generation.configured else [])]
    folders = [ROOT / "fixtures" / "defective" / name for name in names]
    return [
        Specimen(
            path=(folder / entry["file"]).relative_to(ROOT).as_posix(),
            name=entry["class"],
            rule=entry["rule"],
            fault=_fault(folder / entry["file"]),
            resembles=entry.get("resembles"),
        )
        for folder in folders
        if folder.is_dir()
        for entry in tomllib.loads((folder / "index.toml").read_text(encoding="utf-8"))["plugin"]
        if generation.configured in (None, entry["rule"]) or folder == folders[0]
    ]


def link(defect: str) -> str:
    """Return the address of a defect: of ``owner/repository#issue`` or ``@commit``."""
    repository, mark, name = re.split("([#@])", defect)
    kind = "issues" if mark == "#" else "commit"
    return f"https://github.com/{repository}/{kind}/{name}"


def by_section(rules: Iterable[Rule]) -> dict[str, list[Rule]]:
    """Return the rules under their sections, in the order in which they come."""
    return _grouped(rules, lambda rule: rule.section)


def resembled(rule: Rule, specimens: Iterable[Specimen]) -> list[str]:
    """Return the real defects that a rule would have caught, each once."""
    others = [one.resembles for one in specimens if one.rule == rule.id and one.resembles]
    return list(dict.fromkeys((*rule.resembles, *others)))


def page(generation: Generation) -> str:
    """Return the reference page of a generation, as Markdown.

    Raises:
        ValueError: the source document and ``requirements.toml`` do not fit.

    """
    specimens = gallery(generation)
    demanded = requirements.load(generation)
    covered = _coverage(demanded) if demanded else []
    levels = Counter(rule.level for rule in generation.rules)
    page = templates.template("rules.md.j2", cell=_cell, link=link, prose=_prose, quoted=_quoted)
    return page.render(
        command=COMMAND,
        counts=", ".join(f"{levels[level]} {level}" for level in Level),
        coverage=_grouped(covered, lambda pair: pair[0].section),
        fates=Counter(entry.fate.value for _, entry in covered),
        generation=generation,
        requirements=demanded,
        resembled={rule.id: resembled(rule, specimens) for rule in generation.rules},
        sections=by_section(generation.rules),
        specimens=_grouped(specimens, lambda specimen: specimen.rule),
        untestable=[pair for pair in covered if pair[1].fate is Fate.UNTESTABLE],
    )


def file_name(generation: Generation) -> str:
    """Return the name of a generation's page."""
    return generation.name.replace("/", "-") + ".md"


def text(
    rule: Rule, generation: Generation, specimens: Sequence[Specimen], *, width: int = WIDEST
) -> str:
    """Return all there is to know about a rule as plain text, lines of ``width`` at most."""
    width = min(width, WIDEST)
    title = f"{rule.id} {rule.title}"
    lines = [textwrap.fill(title, width), "", textwrap.fill(rule.statement, width), ""]

    def say(heading: str, words: str) -> None:
        lines.append(
            textwrap.fill(
                words,
                width,
                initial_indent=heading.ljust(_HEADING),
                subsequent_indent=" " * _HEADING,
                # An address or a symbol that is cut cannot be followed or searched for.
                break_long_words=False,
                break_on_hyphens=False,
            )
        )

    say("level", rule.level)
    say("interface", generation.name)
    say("section", rule.section)
    say("evidence", ", ".join(rule.evidence))
    for source in (*rule.reasons, *rule.further):
        since = f" (since vLLM {source.since})" if source.since else ""
        says = source.says if ".py:" in source.where else f'"{source.says}"'
        said = f"{source.where}: {says}{since}"
        if source.reason:
            say("reason", f"{source.reason}: {said}")
        else:
            say("source", said)
    say("check", rule.hint)
    for defect in resembled(rule, specimens):
        say("resembles", link(defect))
    defective = [specimen for specimen in specimens if specimen.rule == rule.id]
    for specimen in defective[:_MOST_DEFECTIVE]:
        say("defective", f"{specimen.path}: {specimen.fault}")
    if (more := len(defective) - _MOST_DEFECTIVE) > 0:
        say("", f"and {more} more: see docs/rules/{file_name(generation)}")
    return "\n".join(lines)


def _folder(generation: Generation) -> str:
    return generation.name.replace("/", "_")


def _fault(path: Path) -> str:
    """Return what is wrong with a defective plugin: its docstring, after the rule."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    fault = docstring.partition("\n\n")[0].partition(": ")[2]
    return " ".join(fault.split())


def _coverage(demanded: Requirements) -> list[tuple[Passage, Entry]]:
    document = ROOT / "fixtures" / "documents" / demanded.file
    passages = requirements.take_apart(document.read_text(encoding="utf-8"))
    return requirements.account(passages, demanded.entries)


def _grouped(things: Iterable[T], key: Callable[[T], str]) -> dict[str, list[T]]:
    groups: dict[str, list[T]] = {}
    for thing in things:
        groups.setdefault(key(thing), []).append(thing)
    return groups


def _prose(words: str) -> str:
    """Escape what Markdown would take for markup, but for code."""
    marks = {"<": "&lt;", "__": r"\_\_", "*": r"\*"}
    return re.sub(r"`[^`]*`|<|__|\*", lambda match: marks.get(match[0], match[0]), words)


def _quoted(passage: Passage) -> str:
    """Return a passage of the document with links that lead nowhere from here taken out."""
    if passage.code and passage.text == " ".join(passage.code.split()):
        return f"`{passage.text}`"
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", passage.text)


def _cell(words: str) -> str:
    return words.replace("|", r"\|")


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
def main(folder: Path) -> None:
    """Write the reference pages into FOLDER."""
    folder.mkdir(parents=True, exist_ok=True)
    for generation in all_generations():
        (folder / file_name(generation)).write_text(page(generation), encoding="utf-8")
        click.echo(folder / file_name(generation))


if __name__ == "__main__":
    main()
