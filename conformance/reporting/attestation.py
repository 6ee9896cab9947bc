# SPDX-License-Identifier: Apache-2.0
"""The in-toto statement of a certificate: who consumes attestations can demand a conformant plugin.

The statement is not signed here. Any tool that signs in-toto statements does it, for example
``cosign attest-blob --statement test-result.intoto.json``.
"""

from collections.abc import Mapping
from typing import Any

from conformance.reporting.certificate import FILE_NAME as CERTIFICATE
from conformance.reporting.certificate import conclusion
from conformance.rules import Level
from conformance.verdict import Conclusion, Verdict

FILE_NAME = "test-result.intoto.json"
STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://in-toto.io/attestation/test-result/v0.1"


def statement(certificate: Mapping[str, Any], digest: str) -> dict[str, Any] | None:
    """Return the statement about a plugin, or None where nothing was decided about it.

    An incomplete certificate has none: all three results of the predicate would say more than is
    known. Neither has a plugin whose source could not be found.
    """
    plugin = certificate["plugin"]
    broken = _named(certificate, Level.MUST)
    advice = _named(certificate, Level.SHOULD)
    verdict = conclusion(certificate)
    if plugin["digest"] is None or verdict in (Conclusion.INCOMPLETE, Conclusion.ERROR):
        return None
    result = "FAILED" if verdict is Conclusion.NON_CONFORMANT else "PASSED"
    algorithm, _, value = plugin["digest"].partition(":")
    return {
        "_type": STATEMENT,
        "subject": [
            {"name": plugin.get("source") or plugin["target"], "digest": {algorithm: value}}
        ],
        "predicateType": PREDICATE,
        "predicate": {
            "result": "WARNED" if result == "PASSED" and advice else result,
            # What was run, and how, stands in the certificate.
            "configuration": [{"name": CERTIFICATE, "digest": {"sha256": digest}}],
            "passedTests": [
                rule["id"] for rule in certificate["rules"] if rule["verdict"] == Verdict.PASS.value
            ],
            "warnedTests": advice,
            "failedTests": broken,
        },
    }


def _named(certificate: Mapping[str, Any], level: Level) -> list[str]:
    """Return the rules of a level that are broken."""
    return [
        rule["id"]
        for rule in certificate["rules"]
        if rule["verdict"] == Verdict.FAIL.value and rule["level"] == level.value
    ]
