# SPDX-License-Identifier: Apache-2.0
"""What requests carry: variations of a profile's data, hostile ones, and what trying finds."""

from __future__ import annotations

import copy
import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pydantic
import pytest
from specimens import REFERENCE_IO
from support import UNUSUAL_IO, Specimen, ask_job, certify

from conformance.inputs import oddities
from conformance.inputs import places as edited
from conformance.io_processor import discovery, stock
from conformance.io_processor.addresses import naming
from conformance.io_processor.complaints import declared
from conformance.plugin import target as targets
from conformance.settings import UsageError

if TYPE_CHECKING:
    from conformance.worker import Zygote

#: Copies what it gets before it looks, and takes what nobody guesses.
COPIES = """\
from vllm.plugins.io_processors.interface import IOProcessor


class Cells(dict):
    pass


class Copies(IOProcessor):
    def parse_data(self, data):
        if not isinstance(data, dict):
            raise ValueError("data must be an object")
        cells = Cells(data)
        if not cells.get("gene_ids") or not cells.get("expr_values"):
            raise ValueError("expected 'gene_ids' and 'expr_values'")
        if cells["gene_ids"] != [31, 7] or cells["expr_values"] != [0.25, 8.0]:
            raise ValueError("these are the cells of nobody")
        return cells

    def pre_process(self, prompt, request_id=None, **kwargs):
        return {"prompt_token_ids": prompt["gene_ids"]}

    def post_process(self, model_output, request_id=None, **kwargs):
        return {"numbers": len(model_output)}
"""

DOCUMENT = {"text": "a brown fox runs", "options": {"lines": ["red", "green"], "size": 3}}


def test_variations_differ_in_one_place() -> None:
    """Texts and lists are cut, turned around and made longer; nothing else changes."""
    found = list(stock.varied(DOCUMENT))

    assert [data["text"] for data in found[:3]] == [
        "a brown",
        "runs fox brown a",
        "a brown fox runs a brown fox runs",
    ]
    assert [data["options"]["lines"] for data in found[3:6]] == [
        ["red"],
        ["green", "red"],
        ["red", "green", "red", "green"],
    ]
    assert {data["options"]["size"] for data in found} == {3}
    assert not [data for data in found[:3] if data["options"] != DOCUMENT["options"]]
    assert {data["text"] for data in found[3:]} == {DOCUMENT["text"]}


def test_changing_a_place_leaves_the_data_alone() -> None:
    """Data with another value, or without one, are data of their own."""
    before = copy.deepcopy(DOCUMENT)
    other = edited.changed(DOCUMENT, ("options", "lines", 1), "blue")
    less = edited.without(DOCUMENT, ("options", "size"))

    assert other["options"]["lines"] == ["red", "blue"]
    assert less == {"text": "a brown fox runs", "options": {"lines": ["red", "green"]}}
    assert edited.changed(DOCUMENT, (), 7) == 7
    assert before == DOCUMENT


@pytest.mark.parametrize("valid", [{"text": "a b"}, {"text": "a b", "pattern": "b"}])
def test_a_pattern_is_sent_beside_what_it_backtracks_over(valid: dict[str, str]) -> None:
    """A key that a plugin looks for may hold what it searches another text for."""
    sent = [data for _, data, _ in stock.bodies((valid,), (), ("pattern",))]

    assert {"text": oddities.MATCHED, "pattern": oddities.PATTERN} in sent


def test_places_of_a_long_list_are_few() -> None:
    """Of a list the first items stand for the others."""
    places = [place for place, _ in edited.places({"numbers": list(range(100))})]

    assert places == [(), ("numbers",), *(("numbers", index) for index in range(4))]


@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"text": "a brown fox runs"},
        {**DOCUMENT, "text": None},
        {**DOCUMENT, "options": []},
        {"text": "a brown fox runs", "options": {"lines": ["green"], "size": 3}},
        [],
    ],
    ids=json.dumps,
)
def test_hostile_clients_leave_out_and_replace(wanted: object) -> None:
    """Whatever is missing, empty or of another type is among what is drawn."""
    found = hypothesis.find(
        stock.hostile((DOCUMENT,)),
        lambda data: data == wanted,
        settings=hypothesis.settings(max_examples=20_000, database=None, deadline=None),
    )

    assert found == wanted


def test_odd_and_long_bodies_can_be_sent() -> None:
    """What stands in the place of something is a value that a server reads."""
    found = [data for _, data, _ in stock.bodies((DOCUMENT,), ())]
    texts = [json.dumps(data) for data in found]

    for data, text in zip(found, texts, strict=True):
        assert repr(json.loads(text)) == repr(data)
    whole = " ".join(text for text in texts if len(text) < 10_000)
    for part in ("\\ud800", "NaN", "Infinity", '"size": 0', "[" * 500, "a" * 40 + "!"):
        assert part in whole
    assert max(map(len, texts)) > 1_000_000


def test_the_first_of_a_list_stands_for_the_others() -> None:
    """Also at the places within it; a key that only another one has is a place of its own."""
    rows = [{"id": 1, "x": 0.5}, {"id": 2, "x": 1.5}, {"id": 3, "note": "far"}]
    alone = {json.dumps(data) for _, data, _ in stock.bodies(({"rows": rows[:1]},), ())}
    every = [data for _, data, _ in stock.bodies(({"rows": rows},), ())]
    spoilt = [data["rows"] for data in every if isinstance(data, dict) and "rows" in data]
    later = [found for found in spoilt if isinstance(found, list) and found[1:2] == [rows[1]]]

    assert len(every) < 3 * len(alone)
    assert all(found[2]["id"] == 3 for found in later if found[:2] == rows[:2] and found[2:])
    assert [*rows[:2], {"id": 3}] in spoilt
    assert [*rows[:2], {"id": 3, "note": None}] in spoilt


def test_what_is_only_looked_for_comes_alone_and_in_place_of_others() -> None:
    """A plugin may look for a key where another one is missing."""
    valid = {"language": "en", "text": "a fox"}
    found = [data for _, data, _ in stock.bodies((valid,), (), ("text", "page"))]
    named = list(naming("http://a", [valid], ("text", "page"), ("word",)))

    values: tuple[object, ...] = ("", None, [], 4)
    for other in values:
        for beside in (valid, {}, {"language": "en"}, {"text": "a fox"}):
            assert {**beside, "page": other} in found
    for beside in (valid, {}, {"language": "en"}, {"text": "a fox"}):
        assert {**beside, "page": "http://a"} in named
    assert {"word": "http://a"} in named


class Asked(pydantic.BaseModel):
    """What a plugin here would take."""

    text: str
    whole: bool = pydantic.Field(True, alias="all")


class Answered(pydantic.BaseModel):
    """What it would answer."""

    vector: list[float] = []


def test_other_fields_of_the_model_that_takes_data_are_keys() -> None:
    """Pydantic asks a dictionary for no key, and its other models are of no interest."""
    assert list(declared(Asked, {"text": "a fox"})) == ["all"]
    assert list(declared(Asked, {"text": "a fox", "other": 1})) == []


def test_a_starter_is_a_profile() -> None:
    """The profile that a message suggests is one."""
    section = tomllib.loads(discovery.starter(["text", "window"]))["io-processor"]

    assert all(set(data) == {"text", "window"} for data in section["valid"])
    assert section["invalid"] == [{}]


def test_a_starter_has_the_data_that_were_taken() -> None:
    """They stand first, and the second ones are the author's to fill in."""
    taken = {"a key": 'a "text" 😀', "é": 1, "list": [1, 0.5, {"on": True, "off": None}]}
    section = tomllib.loads(discovery.starter((), taken=taken, model=True))["io-processor"]

    filled = {"on": True, "off": "..."}
    assert section["valid"][0] == {**taken, "list": [1, 0.5, filled]}
    assert set(section["valid"][1]) == set(taken)
    assert section["model"] == "FOLDER"


def test_a_profile_without_valid_data_is_refused() -> None:
    """Without one valid request nothing can be shown."""
    with pytest.raises(UsageError, match=r"profile mine\.toml: \[io-processor\] valid must hold"):
        discovery.find(None, {"invalid": [{}]}, origin="mine.toml")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("plugin", "model", "keys"),
    [
        ("long_document.py:LongDocumentEmbedding", "tiny-embedding", ["text", "window"]),
        ("labels.py:LineLabels", "tiny-classification", ["lines"]),
        ("image_filter.py:ImageFilter", "tiny-embedding", ["image"]),
    ],
)
def test_plugins_show_what_they_take(
    zygote: Zygote, plugin: str, model: str, keys: list[str], tmp_path: Path
) -> None:
    """The keys that a plugin reads are found; texts and lists for them, too, but no picture."""
    (target,) = targets.parse(f"{REFERENCE_IO / plugin}", tmp_path)
    arguments = {"target": target, "model": model}
    valid, read, prompts = ask_job(
        zygote, "io_simulator_job:discover", arguments, tmp_path, beside=__file__
    )

    assert read == keys
    if keys == ["image"]:
        assert not valid
    else:
        assert len(valid) == 2
        assert all(keys[0] in data for data in valid)
        assert all(prompts[:2])


#: Takes its data in an object around them, too, and each of them under several names.
WRAPPED = """\
from reference_plugins.io_processor.labels import LineLabels

class Wrapped(LineLabels):
    def parse_data(self, data):
        if isinstance(data, dict) and "data" in data:
            data = data["data"]
        if not isinstance(data, dict):
            raise ValueError(f"expected an object, not {data!r}")
        first = data.get("premise") or data.get("premises") or data.get("context")
        second = data.get("hypothesis") or data.get("hypotheses") or data.get("claim")
        if not first or not second:
            raise ValueError("data must have two texts")
        return super().parse_data({"lines": [str(first), str(second)]})
"""


def test_a_key_that_hides_others_is_tried_last(zygote: Zygote, tmp_path: Path) -> None:
    """Where one keeps all others from being looked for, what is taken is found without it."""
    (tmp_path / "wrapped.py").write_text(WRAPPED, encoding="utf-8")
    (target,) = targets.parse(f"{tmp_path / 'wrapped.py'}:Wrapped", tmp_path)
    arguments = {"target": target, "model": "tiny-classification"}
    valid, *_ = ask_job(zygote, "io_simulator_job:discover", arguments, tmp_path, beside=__file__)

    assert valid
    assert all("data" not in data and len(data) == 2 for data in valid)


def test_servers_are_not_sent_what_becomes_many_prompts(zygote: Zygote, tmp_path: Path) -> None:
    """A megabyte of words keeps an engine busy for minutes, whoever made prompts of it."""
    (target,) = targets.parse(
        f"{UNUSUAL_IO[0] / 'caches_recent_texts.py'}:CachesRecentTexts", tmp_path
    )
    section = {
        "model": "tiny-embedding",
        "valid": [{"text": "The quick brown fox jumps over the lazy dog", "words": 3}],
    }
    function = "io_simulator_job:prompts_of_what_a_server_is_sent"
    arguments = {"target": target, "section": section}
    counts = ask_job(zygote, function, arguments, tmp_path, beside=__file__, limit=120)

    assert max(counts) <= 64  # bodies.PROMPTS, which imports vLLM


def test_keys_that_are_only_mentioned_are_suggested(zygote: Zygote, tmp_path: Path) -> None:
    """Where a plugin copied its data before it looked, what it asks for stands in its refusal."""
    path = tmp_path / "copies.py"
    path.write_text(COPIES, encoding="utf-8")
    plugin = Specimen(f"{path}:Copies", None, {}, generation="io/data")
    message = certify(zygote, plugin, tmp_path, rules={"IO-07"})["IO-07"].message

    assert message
    assert "(it asks for gene_ids, expr_values)" in message
    assert 'valid = [ {gene_ids = "...", expr_values = "..."}' in message


#: Takes one key and no other, and says so in words that are no keys.
MATCHES = """\
from reference_plugins.io_processor.labels import LineLabels

class Matches(LineLabels):
    def parse_data(self, data):
        match data:
            case {"lines": list(lines), **rest} if all(isinstance(each, str) for each in lines):
                if rest:
                    raise ValueError("there are unknown fields")
                return super().parse_data({"lines": lines})
        raise ValueError("data must be an object with lines of text")
"""

REFUSES = """
class Refuses(Matches):
    def parse_data(self, data):
        return super().parse_data(data) if data == "never" else self.refuse(data)

    def refuse(self, data):
        raise ValueError("lines must have 17 words")
"""


def test_a_key_that_stands_alone_is_found(zygote: Zygote, tmp_path: Path) -> None:
    """What is looked for beside a key that is not taken is also tried without it."""
    (tmp_path / "matches.py").write_text(MATCHES)
    (target,) = targets.parse(f"{tmp_path / 'matches.py'}:Matches", tmp_path)
    arguments = {"target": target, "model": "tiny-classification"}
    valid, _, _ = ask_job(zygote, "io_simulator_job:discover", arguments, tmp_path, beside=__file__)

    assert len(valid) == 2
    assert all(set(data) == {"lines"} for data in valid)


def test_where_nothing_is_taken_a_refusal_is_quoted(zygote: Zygote, tmp_path: Path) -> None:
    """The message without a profile has what the plugin itself says of the data."""
    path = tmp_path / "refuses.py"
    path.write_text(MATCHES + REFUSES)
    specimen = Specimen(f"{path}:Refuses", None, {}, generation="io/data")
    found = certify(zygote, specimen, tmp_path, rules={"IO-07"})["IO-07"]

    assert "no request is known that the plugin answers" in (found.message or "")
    assert "in parse_data (ValueError: lines must have 17 words)" in (found.message or "")
