# SPDX-License-Identifier: Apache-2.0
"""Case documents and the programs that are made of them, without vLLM."""

from __future__ import annotations

import ast
import json
import math
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import PLUGIN, sample

from conformance.counterexample import of_loading, program
from conformance.counterexample.source import (
    WIDTH,
    call,
    decoded,
    encoded,
    flat,
    keywords,
    laid_out,
    literal,
)
from conformance.reporting import folder
from conformance.reporting.certificate import FILE_NAME
from conformance.running.replay import replay_case
from conformance.settings import UsageError
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

_NUMBERS = st.booleans() | st.integers() | st.floats(allow_nan=False)
_SCALARS = st.none() | _NUMBERS | st.text() | st.binary(max_size=4)
_KEYS = st.text() | st.integers() | st.tuples(st.integers(), st.text())
VALUES = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(_KEYS, inner, max_size=4)
        | st.sets(st.integers(), max_size=4)
    ),
    max_leaves=12,
)

#: Two requests join and one row is compared with the one that the request gets alone.
COUNTEREXAMPLE: dict[str, Any] = {
    "kind": "calls",
    "rule": "LB-23",
    "seed": 7,
    "parameters": [],
    "logits": {"vocabulary": 512, "tokens": [67, 7]},
    "bare": True,
    "calls": [
        {"do": "new", "name": "plugin", "max_num_seqs": 8},
        {"do": "params", "name": "params", "of": "plugin", "keywords": {"min_p": 0.5}},
        {"do": "list", "name": "outputs", "of": "plugin", "value": []},
        {
            "do": "update",
            "of": "plugin",
            "update": {
                "batch_size": 2,
                "removed": [3],
                "added": [[0, "params", None, "outputs"]],
                "moved": [[1, 0, "UNIDIRECTIONAL"], [2, 4, "SWAP"]],
            },
        },
        {"do": "apply", "of": "plugin", "rows": [4, 12], "to": "expected"},
        {"do": "append", "name": "outputs", "of": "plugin", "values": [-1]},
        {"do": "update", "of": "plugin", "update": None},
        {"do": "set", "name": "outputs", "of": "plugin", "index": 0, "value": 67},
        {"do": "apply", "of": "plugin", "rows": [4, 12], "to": "result"},
    ],
    "expect": {"is": "same", "got": ["result", 1], "expected": ["expected", 1]},
}


def case(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON values
    """Return a case document."""
    return {
        "schema": 1,
        "rule": "LB-23",
        "target": PLUGIN.target,
        "generation": PLUGIN.generation,
        "message": "on[0], step 1: token 5 is another one",
        "plugin": {"module": PLUGIN.module, "qualname": PLUGIN.qualname, "root": PLUGIN.root},
        "counterexample": {**COUNTEREXAMPLE, **changes},
    }


@settings(deadline=None)  # a busy machine
@given(VALUES)
def test_parameters_survive_json(value: object) -> None:
    """Infinity, tuples, sets and integers as keys come back from a case file."""
    assert decoded(json.loads(json.dumps(encoded(value), allow_nan=False))) == value


def test_what_is_no_data_becomes_its_repr() -> None:
    """An object that a Python profile holds is at least named."""
    assert encoded({"stop": len}) == {"stop": "<built-in function len>"}


@settings(deadline=None)  # a busy machine
@given(VALUES)
def test_values_are_written_as_they_are(value: object) -> None:
    """The source of a value evaluates to it, on one line and on many."""
    names = {"float": float, "set": set, "frozenset": frozenset, "dict": dict}
    expressions = [flat(literal(value)), "\n".join(laid_out(literal(value), indent=80)).strip()]
    for expression in expressions:
        assert eval(expression, names) == value  # noqa: S307 - what is under test


def test_long_calls_are_laid_out_as_ruff_does() -> None:
    """All arguments on a line of their own if they fit there, else one on each line."""
    values = {"stop": ["word"] * 6, "seed": 3}
    short = call("SamplingParams", *keywords(values))
    long = call("SamplingParams", *keywords({**values, "bad_words": ["other"] * 8}))

    assert laid_out(short, 32) == [
        " " * 32 + "SamplingParams(",
        " " * 36 + 'stop=["word", "word", "word", "word", "word", "word"], seed=3',
        " " * 32 + ")",
    ]
    assert laid_out(long, 4)[1] == (
        '        stop=["word", "word", "word", "word", "word", "word"],'
    )
    assert max(map(len, laid_out(long, 4))) <= WIDTH


def test_what_repeats_itself_within_a_text_is_a_product() -> None:
    """Also behind a marker, and before another one."""
    text = "<think>It" + " rain" * 500 + "s."

    written = literal(text)

    assert isinstance(written, str)
    assert (eval(written), len(written) < WIDTH) == (text, True)  # noqa: S307 - written above


def test_a_program_is_the_calls_in_their_order() -> None:
    """Updates are literal, placeholders and their repair are assignments to the same list."""
    source = program(case())
    ast.parse(source)
    wanted = [
        'sys.path.insert(0, "/plugins")',
        "from sample import Sample as Plugin",
        'plugin = Plugin(CONFIG, torch.device("cpu"), False)',
        "params = SamplingParams(min_p=0.5)",
        "outputs = []",
        "added=[(0, params, None, outputs)],",
        "(1, 0, MoveDirectionality.UNIDIRECTIONAL), (2, 4, MoveDirectionality.SWAP)",
        "expected = plugin.apply(rows(4, 12))",
        "outputs.append(-1)",
        "plugin.update_state(None)",
        "outputs[0] = 67",
        "result = plugin.apply(rows(4, 12))",
        "got, expected = result[1], expected[1]",
        "sys.exit(1)",
    ]
    places = [source.find(line) for line in wanted]

    assert -1 not in places, wanted[places.index(-1)]
    assert places == sorted(places)
    assert max(map(len, source.splitlines())) <= WIDTH


def test_a_class_within_a_class_is_imported_by_the_outer_one() -> None:
    """A dotted name is no import."""
    document = case()
    document["plugin"]["qualname"] = "Outer.Inner"

    assert "from sample import Outer\n\nPlugin = Outer.Inner\n" in program(document)


@pytest.mark.parametrize("text", ['says """stop""" here', "a \\d in a pattern", 'ends with "'])
def test_a_message_cannot_break_the_program(text: str) -> None:
    """What a plugin says stands in the docstring, whatever it is."""
    tree = ast.parse(program({**case(), "message": text}))

    assert text.split(maxsplit=1)[0] in str(ast.get_docstring(tree))


def test_a_class_that_does_not_load_has_a_program_too() -> None:
    """It asks vLLM's own loader, and does not import the class before."""
    source = program({**case(), "rule": "LB-01", "counterexample": of_loading(PLUGIN)})

    assert '_load_logitsprocs_by_fqcns(["sample:Sample"])' in source
    assert "from sample" not in source


def test_a_module_without_a_class_has_none() -> None:
    """Where nobody knows which class was meant, there is no name to load."""
    assert of_loading(attrs.evolve(PLUGIN, qualname="")) is None


def test_cases_and_programs_lie_beside_the_certificate(tmp_path: Path) -> None:
    """Those of an earlier run go away, and the certificate holds no calls."""
    old = tmp_path / "cases" / "LB-99.py"
    old.parent.mkdir()
    old.touch()
    document = sample({"LB-23": Verdict.FAIL})
    for rule in document["rules"]:
        if rule["id"] == "LB-23":
            rule["counterexample"] = {**COUNTEREXAMPLE, "bound": encoded(math.inf)}
    folder.write(document, PLUGIN, tmp_path)
    written = json.loads((tmp_path / FILE_NAME).read_text(encoding="utf-8"))
    (found,) = (rule for rule in written["rules"] if rule["id"] == "LB-23")

    assert sorted(path.name for path in old.parent.iterdir()) == ["LB-23.json", "LB-23.py"]
    assert "calls" not in found["counterexample"]
    assert found["case"] == "LB-23"


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("gone.json", None, "there is no case file"),
        ("gone.py", None, "gone.json"),
        ("text.json", "no JSON", "is no case file"),
        ("list.json", "[1]", "is no case file"),
        ("kind.json", json.dumps({"schema": 1, "counterexample": {}, "target": "a"}), "is no case"),
        ("part.json", json.dumps({"schema": 1, "counterexample": {"kind": "calls"}}), "is no case"),
    ],
)
def test_what_is_no_case_is_a_sentence(
    tmp_path: Path, name: str, text: str | None, says: str
) -> None:
    """A wrong or missing file is the user's mistake, and is told as one."""
    path = tmp_path / name
    if text is not None:
        path.write_text(text, encoding="utf-8")

    with pytest.raises(UsageError, match=says):
        replay_case(path, python_path=())
