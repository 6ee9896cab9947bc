# SPDX-License-Identifier: Apache-2.0
"""``io/request`` and ``io/data``: IO processor plugins of pooling models."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from conformance.interface import CHECK_CASE, ClassSource, Field, Generation, refuses
from conformance.io_processor.catalogue import DATA_RULES, REQUEST_RULES

#: The two generations, for what differs between them.
REQUEST, DATA = "io/request", "io/data"

FIELDS: Mapping[str, Field] = {
    "valid": Field(list, "Data that it answers, as a client sends it.", "[{ KEYS }]"),
    "invalid": Field(list, "Data that it must refuse as the client's error.", '["nonsense"]'),
    "expected": Field(
        str,
        "What it means: a function of the data and the outputs that returns the answer.",
        '"my_module:expected"',
    ),
    "tolerance": Field(
        dict, "How near to `expected` numbers must be, in proportion.", "{ rtol = 1e-4 }"
    ),
    "model": Field(str, "The model it is for, where a tiny one cannot do.", '"path/to/model"'),
    "unsupported_configurations": refuses("data-parallel-2"),
}


#: The kinds of cases that both generations write.
CASES: Mapping[str, frozenset[str]] = {
    "check": CHECK_CASE,
    "traffic": frozenset(("rule", "seed", "model", "requests", "moves", "awaited", "trouble")),
}


#: Servers' own models of requests, which take longest to be made.
_PRELOAD = ("vllm.entrypoints.pooling.pooling.io_processor", "conformance.io_processor.checks")


def _of_data(source: ClassSource) -> bool:
    return "IOProcessor" in source.bases


def _of_request(source: ClassSource) -> bool:
    parses = source.defines & {"parse_request", "parse_data"}
    return "IOProcessor" in source.bases and parses == {"parse_request"}


_DATA = Generation(
    interface="io-processor",
    name=DATA,
    title="IO processor (parse_data, vLLM 0.17 and later)",
    loading_rule="IO-01",
    survival_rule="IO-37",
    configured="IO-41",
    meaning_rule="IO-40",
    rules=DATA_RULES,
    fields=FIELDS,
    suite="conformance.io_processor.suites.data",
    cases=CASES,
    program="conformance.counterexample.io_program:program",
    likely=_of_data,
    sign=r"\bIOProcessor\b|\bvllm\.plugins\.io_processors\b",
    group="vllm.io_processor_plugins",
    preload=_PRELOAD,
    order=2,
)

generations = (
    _DATA,
    attrs.evolve(
        _DATA,
        name=REQUEST,
        title="IO processor (parse_request, vLLM 0.10 to 0.28)",
        rules=REQUEST_RULES,
        suite="conformance.io_processor.suites.request",
        likely=_of_request,
        sign=r"\bdef parse_request\b",
        group=None,
        order=3,
    ),
)
