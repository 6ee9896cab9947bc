# SPDX-License-Identifier: Apache-2.0
"""Answers for parsers that are drawn, and their cuts, have the variety they are meant to have."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from conformance.parser import formats
from conformance.parser.samples import Drawing, cuts
from conformance.parser.tools import TOOLS
from conformance.search import examples

DRAWN, SEED = 300, 88


@pytest.mark.parametrize("form", formats.TOOL_FORMATS, ids=lambda form: form.name)
def test_calls_vary(form: formats.Format) -> None:
    """Answers have one call and several, with and without text, of all types that there are."""
    samples = examples(Drawing(form, TOOLS).samples(), DRAWN, SEED)
    messages = [sample.says for sample in samples if sample.says is not None]
    calls = [call for message in messages for call in message.calls]
    counts = Counter(len(message.calls) for message in messages)
    values = [value for call in calls for value in json.loads(call.arguments).values()]
    types = Counter(type(value) for value in values)

    assert set(counts) == ({1, 2, 3} if form.several else {1})
    assert min(counts.values()) >= 0.15 * DRAWN
    assert (sum(bool(message.content) for message in messages) >= 0.25 * DRAWN) is form.content
    assert types[str] >= 0.15 * len(values)
    for kind in (int, bool, dict, list):
        assert types[kind] >= 0.02 * len(values), kind
    assert 0.1 * len(calls) <= sum(call.arguments == "{}" for call in calls) <= 0.6 * len(calls)
    assert len({call.name for call in calls}) >= 3
    assert sum(sample.pieces for sample in samples) >= 0.25 * DRAWN
    assert sum(not sample.text.isascii() for sample in samples) >= 0.05 * DRAWN
    assert len({sample.text for sample in samples}) >= 0.6 * DRAWN


def test_arguments_of_each_type_are_always_tried() -> None:
    """Whatever the seed: each argument of the tools alone, and all of a tool."""
    (hermes,) = (form for form in formats.TOOL_FORMATS if form.name == "hermes")
    known = Drawing(hermes, TOOLS).of_each_type()
    tried = {
        (call.name, tuple(json.loads(call.arguments)))
        for sample in known
        if sample.says is not None
        for call in sample.says.calls
    }

    for tool in TOOLS:
        name, schema = tool["function"]["name"], tool["function"]["parameters"]
        assert {(name, (key,)) for key in schema["properties"]} <= tried
        assert (name, tuple(schema["properties"])) in tried


@pytest.mark.parametrize("form", formats.REASONING_FORMATS, ids=lambda form: form.name)
def test_thoughts_vary(form: formats.Format) -> None:
    """Thoughts and what is said are short and long, in letters of any kind."""
    samples = examples(Drawing(form, TOOLS).samples(), DRAWN, SEED)
    thoughts = [sample.says.reasoning for sample in samples if sample.says is not None]

    assert len({sample.text for sample in samples}) >= 0.8 * DRAWN
    assert len(set(thoughts)) >= 0.4 * DRAWN
    assert sum(len(thought) >= 20 for thought in thoughts) >= 0.2 * DRAWN
    assert sum(len(thought) < 12 for thought in thoughts) >= 0.03 * DRAWN
    assert sum(not thought.isascii() for thought in thoughts) >= 0.1 * DRAWN
    assert sum("\n" in thought for thought in thoughts) >= 0.03 * DRAWN


def test_cuts_vary() -> None:
    """Answers are cut in equal parts of each length, and in few and many places anywhere."""
    drawn = examples(cuts(), DRAWN, SEED)
    equal = {part.step for part in drawn if isinstance(part, range)}
    places = [part for part in drawn if not isinstance(part, range)]
    counts = Counter(len(part) for part in places)

    assert equal == {2, 3, 5, 8, 16, 1000}
    assert len(counts) >= 10
    assert sum(counts[n] for n in range(4)) >= 0.1 * DRAWN
    assert sum(counts[n] for n in range(8, 13)) >= 0.1 * DRAWN
    assert {place // 20 for part in places for place in part} == set(range(7))
