# SPDX-License-Identifier: Apache-2.0
"""Certify changed plugins, one change at a time, and keep what noticed each.

vLLM is imported once: each changed plugin is tried in a process of its own, forked from there, by
the rules of its generation in the simulator, and dropped with the first MUST that it breaks.
"""

import hashlib
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

import attrs

from conformance.generations import named
from conformance.mutation.copies import changed, root_of
from conformance.mutation.edits import Edit, edits, sample
from conformance.plugin import profile
from conformance.plugin.target import Plugin
from conformance.rules import Evidence, Level
from conformance.running.runner import Certification
from conformance.running.trials import Check
from conformance.settings import Settings, UsageError
from conformance.verdict import Conclusion, RuleResult, RuleVerdict, Verdict, combine, decide

#: Seconds that a rule may take with a changed plugin; what takes longer has been noticed.
LIMIT = 60.0

#: Rules that take so many seconds are asked after the others.
SLOW = 1.0

#: A file that cannot be imported: what is certified must notice that, or it reads another file.
_BROKEN = "raise ImportError('this file was changed')\n"

_DIGITS = 12  #: of the digests of differences


class Outcome(StrEnum):
    """What became of a changed plugin."""

    REJECTED = "rejected"  #: a MUST fails: it is not conformant
    UNSHOWN = "unshown"  #: a MUST that passed cannot be shown any more: incomplete
    ADVISED = "advised"  #: only a SHOULD fails
    SURVIVED = "survived"  #: it got the same certificate
    UNLOADED = "unloaded"  #: it cannot be imported, which nobody needs a rule to see


_WORST_FIRST = tuple(Outcome)

#: What counts as noticed.
NOTICED = (Outcome.REJECTED, Outcome.UNSHOWN, Outcome.ADVISED)


@attrs.frozen
class Subject:
    """A file, and the plugins that are tried with it changed."""

    file: Path
    plugins: tuple[Plugin, ...]
    profile: str | None  #: as ``--plugin-profile`` has it

    @property
    def name(self) -> str:
        """The path of the file from where it is imported."""
        return self.file.relative_to(root_of(self.plugins[0])).as_posix()

    @property
    def generation(self) -> str:
        """The generation of the plugins, the first one's if there are several."""
        return self.plugins[0].generation


@attrs.frozen
class Mutant:
    """One change, and what became of it."""

    file: str
    generation: str
    edit: Edit
    outcome: Outcome
    rule: str | None = None  #: that noticed it first
    #: Whether nothing but the author's ``expected`` noticed it.
    by_meaning: bool = False
    ran: bool = True  #: whether the line ran when the plugin was certified as it is

    @property
    def digest(self) -> str:
        """What tells the change from any other, whatever stands elsewhere in the file."""
        lines = [line for line in self.edit.diff.splitlines() if line[:2] not in ("@@", "--", "++")]
        return hashlib.sha256("\n".join([self.file, *lines]).encode()).hexdigest()[:_DIGITS]

    def document(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "file": self.file,
            "line": self.edit.line,
            "operator": self.edit.operator,
            "outcome": self.outcome.value,
            "rule": self.rule,
            "by_meaning": self.by_meaning,
            "ran": self.ran,
            "digest": self.digest,
            "diff": self.edit.diff,
        }


def subjects(
    plugins: Sequence[Plugin], settings: Settings, others: Sequence[Path]
) -> list[Subject]:
    """Return the files to change: those of the plugins, or others that they import.

    Raises:
        UsageError: a plugin has no file, or an other file is not imported from the same folder.

    """
    files: dict[Path, list[Plugin]] = {}
    for plugin in plugins:
        if plugin.path is None:
            raise UsageError(f"{plugin.target} has no source file to change.")
        for file in others or (Path(plugin.path),):
            file = (settings.directory / file).resolve()  # noqa: PLW2901 - the same file
            if not (file.is_file() and file.is_relative_to(root_of(plugin))):
                raise UsageError(
                    f"--source {file} is no file below {root_of(plugin)}, from where "
                    f"{plugin.target} is imported."
                )
            files.setdefault(file, []).append(plugin)
    return [Subject(file, tuple(of), _profile(of[0], settings)) for file, of in files.items()]


def _profile(plugin: Plugin, settings: Settings) -> str | None:
    """Name the profile of a plugin, which stays where it is."""
    if settings.profile is not None:
        return settings.profile
    found = profile.find(plugin.path)
    return str(found.folder / found.origin) if found else None


@attrs.define
class Session:
    """One run: a certification with everything in it that is tried."""

    certification: Certification
    folder: Path  #: for changed files
    unopened: dict[str, str]  #: the certification's
    #: The rules that are asked of each plugin, in their order, by its target.
    _order: dict[str, list[str]] = attrs.field(init=False, factory=dict)
    #: The lines of each file that never ran for any of its plugins, by its name.
    _never: dict[str, set[int]] = attrs.field(init=False, factory=dict)

    def sound(self, subject: Subject) -> None:
        """Make sure that a subject's plugins are conformant as they are, and are what is changed.

        Raises:
            Unsound: a plugin is not conformant as it is.
            UsageError: the file that is changed is not the one that is certified.

        """
        same = self._made(subject, subject.file.read_text(encoding="utf-8"), "same")
        for plugin, copy in zip(subject.plugins, same, strict=True):
            generation = named(plugin.generation)
            checks = _checks(copy, _rules(plugin))
            self.certification.select(checks)
            found = [self._run(check) for check in checks]
            verdicts = [
                combine(rule.id, rule.level, [one for one in found if one.rule == rule.id])
                for rule in generation.rules
                if rule.id in _rules(plugin)
            ]
            self._learn(subject, copy)
            if (said := decide(verdicts)) is not Conclusion.CONFORMANT:
                raise Unsound(
                    f"{plugin.target} is {said} as it is ({_first(verdicts)}): certify it first; "
                    "what is noticed of a change to it would mean nothing."
                )
            seconds = {result.rule: result.seconds for result in found}
            # What it does not claim as it is, it may claim with a change.
            kept = (Verdict.PASS, Verdict.NOT_APPLICABLE)
            asked = [result.rule for result in found if result.verdict in kept]
            self._order[plugin.target] = sorted(
                asked,
                key=lambda rule: (rule == generation.meaning_rule, seconds[rule] >= SLOW),
            )
        broken = self._made(subject, _BROKEN, "broken")[0]
        (result,) = [self._run(check) for check in _checks(broken, [_rules(broken)[0]])]
        self.certification.drop(broken)
        if result.verdict is Verdict.PASS:
            raise UsageError(
                f"{subject.name} cannot be changed: {subject.plugins[0].target} is the same "
                "without it."
            )

    def _learn(self, subject: Subject, copy: Plugin) -> None:
        """Keep which lines of a file never ran."""
        for file in self.certification.contexts.get(copy.target, {}).get("lines", ()):
            if file["file"] == subject.name:
                never = {row["line"] for row in file["source"] if row["never"]}
                self._never[subject.name] = self._never.get(subject.name, never) & never

    def mutants(self, subject: Subject, chosen: Sequence[Edit]) -> Iterator[Mutant]:
        """Try changes of a subject, and yield each with what became of it."""
        made = [self._made(subject, edit.source, str(n)) for n, edit in enumerate(chosen)]
        orders = [self._order[plugin.target] for plugin in subject.plugins]
        checks = [
            [_checks(plugin, order) for plugin, order in zip(plugins, orders, strict=True)]
            for plugins in made
        ]
        self.certification.select([check for of in checks for one in of for check in one])
        for edit, plugins, asked in zip(chosen, made, checks, strict=True):
            notes = [self._tried(plugin, one) for plugin, one in zip(plugins, asked, strict=True)]
            ran = edit.line not in self._never.get(subject.name, ())
            yield min(
                (
                    Mutant(subject.name, subject.generation, edit, outcome, rule, by_meaning, ran)
                    for outcome, rule, by_meaning in notes
                ),
                key=lambda each: (_WORST_FIRST.index(each.outcome), each.by_meaning),
            )
            shutil.rmtree(plugins[0].root or "", ignore_errors=True)

    def _tried(self, plugin: Plugin, checks: Sequence[Check]) -> tuple[Outcome, str | None, bool]:
        """Ask about one changed plugin until it is rejected."""
        generation = named(plugin.generation)
        outcome, by = Outcome.SURVIVED, None
        for check in checks:
            result = self._run(check)
            if plugin.target in self.unopened:
                outcome, by = Outcome.UNLOADED, None
                break
            said = _said(result, generation.rule(check.rule).level)
            if said in _WORST_FIRST[: _WORST_FIRST.index(outcome)]:
                outcome, by = said, check.rule
            if outcome is Outcome.REJECTED:
                break
        self.certification.drop(plugin)
        return outcome, by, by is not None and by == generation.meaning_rule

    def _run(self, check: Check) -> RuleResult:
        return self.certification.run(check)

    def _made(self, subject: Subject, text: str, number: str) -> tuple[Plugin, ...]:
        """Return the plugins of a subject with another text in its file."""
        stem = subject.name.replace("/", "-").removesuffix(".py")
        folder = self.folder / f"{stem}-{number}"
        return tuple(
            changed(plugin, subject.file, text, folder, number, first=plugin is subject.plugins[0])
            for plugin in subject.plugins
        )


class Unsound(Exception):
    """A plugin is not conformant as it is: one sentence."""


def _said(result: RuleResult, level: Level) -> Outcome:
    """Return what one rule makes of a changed plugin."""
    if result.verdict is Verdict.FAIL:
        return Outcome.REJECTED if level is Level.MUST else Outcome.ADVISED
    unknown = result.verdict in (Verdict.NOT_VERIFIED, Verdict.ERROR)
    return Outcome.UNSHOWN if unknown and level is Level.MUST else Outcome.SURVIVED


def _first(verdicts: Sequence[RuleVerdict]) -> str:
    """Name a rule that keeps a plugin from being conformant."""
    kept = (Verdict.PASS, Verdict.NOT_APPLICABLE)
    worst = next(each for each in verdicts if each.verdict not in kept)
    return f"{worst.rule} {worst.verdict}"


def _rules(plugin: Plugin) -> list[str]:
    return [
        rule.id for rule in named(plugin.generation).rules if Evidence.SIMULATOR in rule.evidence
    ]


def _checks(plugin: Plugin, rules: Sequence[str]) -> list[Check]:
    return [Check(plugin, rule, Evidence.SIMULATOR) for rule in rules]


def chosen(subject: Subject, most: int, seed: int) -> tuple[list[Edit], int]:
    """Return the changes of a subject that are tried, and how many there are.

    Raises:
        UsageError: the file is no Python.

    """
    try:
        found = edits(subject.file.read_text(encoding="utf-8"), subject.name)
    except (SyntaxError, UnicodeDecodeError) as error:
        raise UsageError(f"{subject.file} is no Python: {error}.") from None
    return sample(found, most, seed), len(found)


def tally(mutants: Sequence[Mutant]) -> dict[str, Any]:
    """Count what became of changes, as JSON has it."""
    counted = [each for each in mutants if each.outcome is not Outcome.UNLOADED]
    noticed = [each for each in counted if each.outcome in NOTICED]
    return {
        "mutants": len(counted),
        "unloaded": len(mutants) - len(counted),
        "noticed": len(noticed),
        "noticed_without_expected": sum(not each.by_meaning for each in noticed),
        "outcomes": dict(Counter(each.outcome.value for each in mutants)),
        "rules": dict(Counter(each.rule for each in noticed).most_common()),
    }


def run(
    certification: Certification,
    folder: Path,
    *,
    sources: Sequence[Path],
    most: int,
    tell: Callable[[Subject, Sequence[Mutant], int], None],
) -> Iterator[tuple[Subject, list[Mutant], int]]:
    """Try changes of every file; yield each with its mutants and how many changes there are."""
    assert certification.unopened is not None
    session = Session(certification, folder, certification.unopened)
    settings = certification.settings
    for subject in subjects(certification.plugins, settings, sources):
        certification.settings = attrs.evolve(settings, profile=subject.profile)
        session.sound(subject)
        tried, there = chosen(subject, most, settings.seed)
        found: list[Mutant] = []
        for mutant in session.mutants(subject, tried):
            found.append(mutant)
            tell(subject, found, len(tried))
        yield subject, found, there
