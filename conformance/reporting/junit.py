# SPDX-License-Identifier: Apache-2.0
"""A certificate as JUnit XML, which CI systems show beside their other tests."""

from collections.abc import Mapping
from typing import Any

from junitparser import Error, Failure, JUnitXml, Properties, Property, Skipped, TestCase, TestSuite

from conformance.rules import Level
from conformance.verdict import Verdict

FILE_NAME = "junit.xml"


def render(certificate: Mapping[str, Any]) -> str:
    """Return the document: a suite for the plugin, a case for each rule.

    A MUST that could not be shown is an error, as the exit status says; a SHOULD that does not
    hold is skipped with its reason, since it never decides.
    """
    plugin, run = certificate["plugin"], certificate["run"]
    suite = TestSuite(plugin["target"])
    facts = {
        "verdict": certificate["verdict"],
        "generation": plugin["generation"],
        "digest": plugin["digest"],
        "vllm": certificate["environment"]["vllm"],
        "evidence": ",".join(run["evidence"]),
        "budget": run["budget"],
        "seed": run["seed"],
    }
    for name, value in facts.items():
        if value is not None:
            suite.add_property(name, str(value))
    if run.get("finished"):
        suite.timestamp = run["finished"].removesuffix("Z")  # the format has no time zones
    for rule in certificate["rules"]:
        suite.add_testcase(_case(rule, plugin["generation"]))
    for row in certificate.get("configurations", ()):
        # A case of its own, beside that of the rule: it says which of them it was.
        rule = {
            "id": row["name"],
            "title": row["about"],
            "level": Level.MUST.value,
            "verdict": row["verdict"],
            "evidence": [],
            "examples": row["requests"],
            "acted": row["acted"],
            "seconds": row["seconds"],
            "message": row["message"],
        }
        suite.add_testcase(_case(rule, plugin["generation"]))
    document = JUnitXml("vllm-plugin-conformance")
    document.add_testsuite(suite)
    text: str = document.tostring().decode("utf-8")
    return text + "\n"


def _case(rule: Mapping[str, Any], generation: str) -> TestCase:
    case = TestCase(f"{rule['id']} {rule['title']}", generation, rule["seconds"])
    properties = {
        "rule": rule["id"],
        "level": rule["level"],
        "verdict": rule["verdict"],
        "evidence": ",".join(rule["evidence"]),
        "examples": rule["examples"],
        "acted": rule["acted"],
    }
    listed = Properties()
    for name, value in properties.items():
        listed.append(Property(name, str(value)))
    case.append(listed)
    # XML has no way to write most control characters.
    message = "".join(c for c in rule["message"] or "" if c.isprintable() or c in "\n\t")
    verdict, must = Verdict(rule["verdict"]), rule["level"] == Level.MUST.value
    if verdict is Verdict.ERROR:
        case.result = [Error(message, "harness")]
    elif verdict is Verdict.FAIL and must:
        case.result = [Failure(message, rule["id"])]
    elif verdict is Verdict.NOT_VERIFIED and must:
        case.result = [Error(message, "not-verified")]
    elif verdict is not Verdict.PASS:
        told = "advice: " if verdict is Verdict.FAIL else ""
        case.result = [Skipped(told + (message or verdict.value))]
    return case
