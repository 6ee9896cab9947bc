# SPDX-License-Identifier: Apache-2.0
"""Whether a defective plugin fails by its own rule and by no other: ``python tests/alone.py NAME``.

The kill matrices judge one rule of each plugin; this judges all of them, which takes a minute.
NAME is that of a file in ``fixtures/defective``, without its folder and ``.py``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from support import FIXTURES, GENERATIONS, PROFILES, ROOT, Specimen, as_toml, gallery


def specimens(name: str) -> list[Specimen]:
    """Return the defective plugins in a file of this name: one for each profile and generation."""
    folders = (FIXTURES / "defective" / each for each in GENERATIONS)
    galleries = (gallery(folder) for folder in folders if folder.is_dir())
    return [each for plugins in galleries for each in plugins if each.name == name]


def failing(specimen: Specimen) -> dict[str, str]:
    """Certify a plugin with all of its rules; return those that fail, and what they say."""
    with TemporaryDirectory() as folder:
        profile = Path(folder, "profile.toml")
        profile.write_text(as_toml(specimen.profile, specimen.section), encoding="utf-8")
        command = [sys.executable, "-m", "conformance.cli", "certify"]
        command += [f"{specimen.target}@{specimen.generation}", "--plugin-profile", str(profile)]
        command += ["--evidence", specimen.evidence.value, "--conformance-report", folder]
        environment = os.environ | {"PYTHONPATH": f"{PROFILES}:{ROOT}"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        found = list(Path(folder).rglob("certificate.json"))
        if not found:
            sys.exit(done.stderr or done.stdout)
        rules = json.loads(found[0].read_text(encoding="utf-8"))["rules"]
    return {each["id"]: each.get("message") or "" for each in rules if each["verdict"] == "fail"}


def main(names: list[str]) -> int:
    """Print what each plugin fails by; return 1 where one does by another rule than its own."""
    if not names:
        sys.exit(__doc__)
    wrong = 0
    for name in names:
        found = specimens(name)
        if not found:
            sys.exit(f"no index.toml in fixtures/defective names a file {name}.py")
        for specimen in found:
            rules = failing(specimen)
            alone = rules.keys() - specimen.advice == {specimen.rule}
            wrong += not alone
            said = f"fails {specimen.rule}, and no other rule" if alone else "fails"
            sys.stdout.write(f"{specimen.label} ({specimen.generation}) {said}\n")
            for rule, message in rules.items():
                sys.stdout.write(f"  {rule}  {' '.join(message.split())}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
