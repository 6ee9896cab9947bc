# SPDX-License-Identifier: Apache-2.0
"""Parsers that find in one way, whole or streamed, what they do not find in the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support import Specimen, certify

from conformance.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.worker import Zygote

#: Each finds something in one way only.
PARSERS = """\
from reference_plugins.parser.tagged_calls import TaggedCallsParser
from reference_plugins.parser.thinking import ThinkingParser
from vllm.entrypoints.generate.base.protocol import DeltaMessage

class ThinksWhole(ThinkingParser):
    def extract_reasoning_streaming(self, previous, current, delta, *ids):
        return DeltaMessage(content=delta)

class ThinksStreamed(ThinkingParser):
    def extract_reasoning(self, model_output, request):
        return None, model_output

class CallsWhole(TaggedCallsParser):
    def extract_tool_calls_streaming(self, previous, current, delta, *ids):
        return DeltaMessage(content=delta)
"""

#: An answer of which the profile does not say what it means.
THOUGHT = {
    "samples": [{"text": "<think>Two and two.</think>Four."}],
    "special_tokens": ["<think>", "</think>"],
}

pytestmark = pytest.mark.usefixtures("shared_zygote")


@pytest.mark.parametrize(
    ("name", "broken", "waiting"),
    [
        ("ThinksWhole", "RP-04", ("RP-09",)),
        ("ThinksStreamed", "RP-04", ("RP-03",)),
        ("CallsWhole", "TP-04", ("TP-07", "TP-08", "TP-09")),
    ],
)
def test_what_is_found_in_one_way_only_is_one_rules_to_tell(
    zygote: Zygote, tmp_path: Path, name: str, broken: str, waiting: tuple[str, ...]
) -> None:
    """That rule fails; those that look at the other way wait for it, and ask for no samples."""
    path = tmp_path / "one_way.py"
    path.write_text(PARSERS, encoding="utf-8")
    generation = "parser/tool" if broken.startswith("TP") else "parser/reasoning"
    profile = THOUGHT if generation == "parser/reasoning" else {}
    specimen = Specimen(f"{path}:{name}", None, profile, generation=generation)
    results = certify(zygote, specimen, tmp_path, rules={broken, *waiting})

    assert results[broken].verdict is Verdict.FAIL
    for rule in waiting:
        assert results[rule].verdict is Verdict.NOT_VERIFIED
        assert results[rule].waits_for == (broken,), results[rule].message
