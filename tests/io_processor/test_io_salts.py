# SPDX-License-Identifier: Apache-2.0
"""Cache salts: each request has its own, whatever its author makes them of."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest
from support import DEFECTIVE_IO, certify, gallery

from conformance.verdict import Verdict

if TYPE_CHECKING:
    from conformance.worker import Zygote

SALTED = next(
    each for each in gallery(DEFECTIVE_IO[0]) if each.name == "caches_prompts_without_their_salt"
)

CACHED = 'return self.prompts.setdefault(text, {"prompt": text, "cache_salt": tenant})'

RULES = {"IO-26", "IO-27", "IO-28", "IO-30"}


def test_a_salt_of_another_request_is_told(zygote: Zygote, tmp_path: Path) -> None:
    """The message names the salt and the request that it is of."""
    found = certify(zygote, SALTED, tmp_path, rules={"IO-26"})["IO-26"]

    assert found.verdict is Verdict.FAIL
    assert "came to the engine with the cache_salt" in (found.message or "")
    assert "of request A; alone, with" in (found.message or "")


@pytest.mark.parametrize(
    "salt",
    ["tenant", "str(len(self.prompts))", "secrets.token_hex(8)"],
    ids=["tenant", "counter", "random"],
)
def test_salts_are_made_of_anything(zygote: Zygote, tmp_path: Path, salt: str) -> None:
    """A salt that is counted or drawn is nobody's."""
    source = Path(SALTED.target.rpartition(":")[0]).read_text(encoding="utf-8")
    assert CACHED in source
    count = "self.prompts[len(self.prompts)] = text\n        "
    prompt = f'return {{"prompt": text, "cache_salt": {salt}}}'
    source = source.replace(CACHED, count + prompt)
    path = tmp_path / "salted.py"
    path.write_text(source.replace("\nfrom vllm", "\nimport secrets\nfrom vllm", 1))
    specimen = attrs.evolve(SALTED, target=f"{path}:CachesPromptsWithoutTheirSalt", rule=None)
    found = certify(zygote, specimen, tmp_path, rules=RULES)

    assert {result.verdict for result in found.values()} == {Verdict.PASS}
