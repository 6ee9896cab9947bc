# SPDX-License-Identifier: Apache-2.0
"""Whether two reports say the same of the same plugins: for a change that may judge nothing anew.

    ./run certify --conformance-report reports/local/before ...
    python tests/compare_certificates.py reports/local/before reports/local/after

Compared are plugins, verdicts, rules, and the evidence that shows each; not times, counts or
sentences, which depend on the machine.  Exit status 1 tells that something differs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

#: What is said where the other side has nothing.
_NOTHING = "nothing"


def read(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the certificates below a folder, by the folders that they lie in."""
    return {
        path.parent.relative_to(folder).as_posix(): json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(folder.glob("**/certificate.json"))
    }


def differences(
    before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
    """Yield a line for each thing that two sets of certificates say otherwise."""
    for name in sorted({*before, *after}):
        first, second = (_said(side[name]) if name in side else {} for side in (before, after))
        for what in {**first, **second}:
            old, new = first.get(what, _NOTHING), second.get(what, _NOTHING)
            if old != new:
                yield f"{name}: {what}: {old} before, {new} after"


def _said(document: Mapping[str, Any]) -> dict[str, str]:
    """Return what a certificate says that a machine does not change."""
    rules = {
        rule["id"]: f"{rule['verdict']} ({', '.join(rule['evidence'])})"
        for rule in document["rules"]
    }
    return {"certificate": document["verdict"], **rules}


def main(arguments: Sequence[str]) -> int:
    """Compare two folders of certificates."""
    if len(arguments) != 2:
        sys.stderr.write("usage: python tests/compare_certificates.py BEFORE AFTER\n")
        return 4
    before, after = (read(Path(folder)) for folder in arguments)
    for folder, found in zip(arguments, (before, after), strict=True):
        if not found:
            sys.stderr.write(f"there is no certificate below {folder}\n")
            return 4
    lines = list(differences(before, after))
    rules = sum(len(document["rules"]) for document in after.values())
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.stdout.write(
        f"{len(after)} certificates, {rules} rules: "
        + (f"{len(lines)} differences\n" if lines else "the same\n")
    )
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
