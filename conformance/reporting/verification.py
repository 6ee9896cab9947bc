# SPDX-License-Identifier: Apache-2.0
"""Does a certificate say what its rule results say, about the source that is here?

Nothing of the plugin is imported or run.
"""

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

import attrs

from conformance import RULE_SET
from conformance.generations import all_generations
from conformance.interface import Generation
from conformance.plugin.files import digest_of
from conformance.reporting import attestation, badge, certificate
from conformance.rules import Evidence, Level, by_id
from conformance.verdict import RuleVerdict, Verdict, decide


class State(StrEnum):
    """What came of one check."""

    HOLDS = "holds"
    WRONG = "wrong"
    UNKNOWN = "unknown"  #: there is nothing here to compare with


@attrs.frozen
class Check:
    """One thing that was checked."""

    about: str
    state: State
    says: str


def of_document(document: Mapping[str, Any]) -> list[Check]:
    """Check what a certificate says against itself and the catalogue."""
    return [_verdict(document), _rules(document), _counts(document)]


def of_file(path: Path, *, source: Path | None = None) -> list[Check]:
    """Check a certificate, what was drawn from it, and the source that it is about.

    Args:
        path: the certificate; what lies beside it is compared with it.
        source: the plugin's source file; looked for where the target says if None.

    Raises:
        UsageError: the file cannot be read, or its schema refuses it.

    """
    document = certificate.read(path)
    checks = [Check("schema", State.HOLDS, f"schema {document['schema']}")]
    checks += of_document(document)
    checks.append(_source(document, source))
    checks += _drawn(document, path)
    return checks


def wrong(checks: list[Check]) -> list[Check]:
    """Return the checks that do not hold."""
    return [check for check in checks if check.state is State.WRONG]


def _verdict(document: Mapping[str, Any]) -> Check:
    decided = decide(
        RuleVerdict(
            rule=rule["id"],
            level=Level(rule["level"]),
            verdict=Verdict(rule["verdict"]),
            evidence=tuple(map(Evidence, rule["evidence"])),
            examples=rule["examples"],
            acted=rule["acted"],
            seconds=rule["seconds"],
            message=rule["message"],
            counterexample=None,
        )
        for rule in document["rules"]
    ).value
    if decided != document["verdict"]:
        return Check(
            "verdict", State.WRONG, f"it says {document['verdict']}, its rules say {decided}"
        )
    return Check("verdict", State.HOLDS, f"{decided}, as its {len(document['rules'])} rules say")


def _rules(document: Mapping[str, Any]) -> Check:
    """Check that the rules are those of the catalogue, none left out and none softened."""
    about = "rules"
    if document["harness"]["rules"] != RULE_SET:
        return Check(
            about,
            State.UNKNOWN,
            f"rule set {document['harness']['rules']}; this release of the harness has {RULE_SET}",
        )
    name = document["plugin"]["generation"]
    generation = next((each for each in all_generations() if each.name == name), None)
    if generation is None:
        return Check(about, State.WRONG, f"there is no generation {name}")
    if wrong := next(_misfits(document, generation), None):
        return Check(about, State.WRONG, wrong)
    return Check(about, State.HOLDS, f"those of {name}, rule set {RULE_SET}")


def _misfits(document: Mapping[str, Any], generation: Generation) -> Iterator[str]:
    """Say where the rules of a certificate are not those of the catalogue."""
    asked = {
        rule.id
        for rule in generation.rules
        if {evidence.value for evidence in rule.evidence} & set(document["run"]["evidence"])
        and rule.id != generation.configured
    }
    if generation.configured and document.get("configurations"):
        asked.add(generation.configured)
    listed = [rule["id"] for rule in document["rules"]]
    if missing := sorted(asked - set(listed)):
        yield f"{', '.join(missing)} left out"
    if strange := sorted(set(listed) - asked):
        yield f"{', '.join(strange)} not among those asked for"
    if len(listed) != len(set(listed)):
        yield "a rule is listed twice"
    known = by_id(generation.rules)
    for rule in document["rules"]:
        if rule["id"] in known and rule["level"] != (level := known[rule["id"]].level.value):
            yield f"{rule['id']} is a {level}, no {rule['level']}"


def _counts(document: Mapping[str, Any]) -> Check:
    allowed = set(document["run"]["evidence"])
    if document.get("configurations"):
        allowed.add(Evidence.OFFLINE.value)  # each of them is an engine
    for rule in document["rules"]:
        if rule["acted"] > rule["examples"]:
            says = f"{rule['id']} acted in {rule['acted']} of {rule['examples']} examples"
            return Check("counts", State.WRONG, says)
        if stray := set(rule["evidence"]) - allowed:
            says = f"{rule['id']} has evidence that was not asked for: {', '.join(sorted(stray))}"
            return Check("counts", State.WRONG, says)
    return Check("counts", State.HOLDS, "examples and evidence fit the run")


def _source(document: Mapping[str, Any], source: Path | None) -> Check:
    about, plugin = "source", document["plugin"]
    if plugin["digest"] is None:
        return Check(about, State.UNKNOWN, "the certificate has no digest")
    found = source or next((path for path in _places(plugin) if path.is_file()), None)
    if found is None:
        where = plugin.get("source") or plugin["target"]
        return Check(about, State.UNKNOWN, f"{where} is not here; name it with --source")
    digest = digest_of(str(found))
    if digest is None:
        return Check(about, State.WRONG, f"there is no file {found}")
    if digest != plugin["digest"]:
        return Check(about, State.WRONG, f"{found} is another file than the one that was certified")
    return Check(about, State.HOLDS, f"{found} is what was certified")


def _places(plugin: Mapping[str, Any]) -> Iterator[Path]:
    """Return where the source may lie: where the target says, then where modules are found."""
    named, _, _ = plugin["target"].partition(":")
    if named.endswith(".py"):
        yield Path(named)
    elif source := plugin.get("source"):
        yield from (Path(folder or ".", source) for folder in ["", *sys.path])


def _drawn(document: Mapping[str, Any], path: Path) -> Iterator[Check]:
    """Check what lies beside a certificate and speaks for it."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    expected = {
        "badge.json": badge.endpoint(document),
        attestation.FILE_NAME: attestation.statement(document, digest),
    }
    for name, content in expected.items():
        beside = path.with_name(name)
        if beside.is_file():
            try:
                same = json.loads(beside.read_text(encoding="utf-8")) == content
            except ValueError:
                same = False
            yield Check(name, *_same(same=same))
    picture = path.with_name("badge.svg")
    if picture.is_file():
        same = picture.read_text(encoding="utf-8") == badge.svg(document)
        yield Check(picture.name, *_same(same=same))


def _same(*, same: bool) -> tuple[State, str]:
    if same:
        return State.HOLDS, "drawn from this certificate"
    return State.WRONG, "not what this certificate says"
