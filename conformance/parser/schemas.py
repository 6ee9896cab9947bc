# SPDX-License-Identifier: Apache-2.0
"""Checks of the schemas of tools: a client may send any that JSON Schema has."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

import attrs
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from conformance.checking import checks
from conformance.findings import Finding
from conformance.parser.bench import WHOLE, Bench, NotMade
from conformance.parser.messages import quoted
from conformance.parser.samples import Sample
from conformance.parser.tokens import Answer
from conformance.parser.tools import an_object
from conformance.parser.trial import Judged, Trial

#: What a schema of an argument is: an object with keywords, or a bool.
Schema = Mapping[str, Any] | bool

#: Definitions that references name: one refers to itself, as trees do.
DEFINITIONS: Mapping[str, Schema] = {
    "place": {"type": "string"},
    "node": an_object({"name": {"type": "string"}, "next": {"$ref": "#/$defs/node"}}),
}

#: Schemas of an argument without another one in them.
PLAIN: tuple[Schema, ...] = (
    True,
    {},
    {"$ref": "#/$defs/place"},
    {"$ref": "#/$defs/node"},
    {"$ref": "#"},
    {"type": ["string", "null"]},
    {"enum": ["Paris", 1, None]},
    {"const": "Paris"},
    {"type": "array"},
    {"type": "object"},
    {"not": {"type": "integer"}},
)

#: Schemas of all arguments at once, where they are not those of an object with properties.
PARAMETERS: tuple[Mapping[str, Any], ...] = (
    {},
    {"type": "object"},
    {"type": "object", "additionalProperties": {"type": "string"}},
    {"anyOf": [an_object({"city": {"type": "string"}}), {"$ref": "#/$defs/node"}]},
    {"$ref": "#/$defs/node"},
)

#: Answers that are tried with each of these.
FEW = 1


@attrs.frozen
class Other:
    """A schema that tools have instead of their own, of each argument or of all of them."""

    schema: Schema
    whole: bool = False

    def of(self, tool: Mapping[str, Any]) -> dict[str, Any]:
        """Return a tool with this schema."""
        function = tool["function"]
        own = function.get("parameters") or {}
        if self.whole and not isinstance(self.schema, bool):
            parameters = self.schema
        else:
            properties = dict.fromkeys(own.get("properties", {}), self.schema)
            parameters = {**own, "properties": properties}
        parameters = {**parameters, "$defs": DEFINITIONS}
        return {**tool, "function": {**function, "parameters": parameters}}


def _within(schema: Schema) -> tuple[Schema, ...]:
    """Return schemas with another one in them."""
    return (
        {"anyOf": [schema, {"type": "null"}]},
        {"oneOf": [schema]},
        {"allOf": [schema]},
        {"type": "array", "items": schema},
        {"type": "array", "prefixItems": [schema], "items": False},
        {"type": "object", "additionalProperties": schema},
        an_object({"a": schema}, required=["a"]),
    )


_TREE = {"$ref": "#/$defs/node"}
KNOWN = (
    *(Other(schema) for schema in (*PLAIN, *_within(PLAIN[0]), *_within(_TREE))),
    *(Other(schema, whole=True) for schema in PARAMETERS),
)

DRAWN: SearchStrategy[Other] = st.recursive(
    st.sampled_from(PLAIN),
    lambda inner: inner.flatmap(lambda schema: st.sampled_from(_within(schema))),
    max_leaves=3,
).map(Other)


@checks("TP-21", after=("TP-03",))
def any_schema(trial: Trial) -> Finding:
    """Give answers to requests whose tools have other schemas: the parser raises nothing."""

    def judge(_: Sample, bench: Bench, intact: Answer, other: Other) -> Judged:
        tools = tuple(map(other.of, bench.tools))
        # What is raised with the tool's own schema, other rules tell.
        wrong = _wrong(attrs.evolve(bench, tools=tools), intact, other)
        if wrong is not None and _wrong(bench, intact, other) is None:
            return wrong
        return trial.right(bench.whole(intact))

    known = [(sample, other) for sample in trial.first()[:FEW] for other in KNOWN]
    return trial.search_with(DRAWN, judge, besides=known)


def _wrong(bench: Bench, answer: Answer, other: Other) -> Judged | None:
    """Say that the parser raises where tools have another schema, or return None."""
    of = "arguments" if other.whole else "each argument"
    told = f"{quoted(answer.text)}, the schema of {of} being {json.dumps(other.schema)}"
    try:
        for how, cuts, message in bench.ways(answer):
            if message.raised is not None:
                scene = partial(bench.scene, "reads" if how == WHOLE else "goes_on", answer, cuts)
                return Judged(wrong=f"{told}, {how}: {message}", scene=scene)
    except NotMade as error:
        scene = partial(bench.scene, "reads", answer)
        return Judged(wrong=f"{told}: making an instance raised {error}", scene=scene)
    return None
