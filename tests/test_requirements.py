# SPDX-License-Identifier: Apache-2.0
"""Every passage of the source document is accounted for, and every source says what is cited."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from support import FIXTURES, ROOT

from conformance.generations import all_generations
from conformance.reporting.requirements import (
    Entry,
    Fate,
    Passage,
    account,
    load,
    quotes,
    read_entry,
    sentences,
    take_apart,
)

DEMANDED = {
    generation.name: (generation, demanded)
    for generation in all_generations()
    if (demanded := load(generation)) is not None
}


def _pairs(name: str) -> list[tuple[Passage, Entry]]:
    """Return the passages of a generation's document, each with its entry."""
    _, demanded = DEMANDED[name]
    document = (FIXTURES / "documents" / demanded.file).read_text(encoding="utf-8")
    return account(take_apart(document), demanded.entries)


GENERATION, REQUIREMENTS = DEMANDED["logits/batch"]
PASSAGES = [passage for passage, _ in _pairs("logits/batch")]
SOURCES = [(rule.id, source) for rule in GENERATION.rules for source in rule.sources]
SYMBOLS = {source.where for _, source in SOURCES if ".py:" in source.where}
SYMBOLS |= {
    source.where
    for rule in GENERATION.host_rules
    for source in rule.sources
    if ".py:" in source.where
}
SYMBOLS |= {one.where for one in (*REQUIREMENTS.beyond, *DEMANDED["io/request"][1].beyond)}


def test_documents_are_taken_apart() -> None:
    """Every interface that has a document of its own has a table of what that demands."""
    assert set(DEMANDED) == {"hook/rfc", "io/request", "logits/batch"}


@pytest.mark.parametrize("name", DEMANDED)
def test_every_passage_is_accounted_for(name: str) -> None:
    """Each passage of the document has one entry, and each entry a passage."""
    assert len(_pairs(name)) == len(DEMANDED[name][1].entries)


@pytest.mark.parametrize("name", DEMANDED)
def test_entries_name_rules_that_exist(name: str) -> None:
    """An entry belongs to rules of the catalogue, and its reasons refer to such."""
    generation, demanded = DEMANDED[name]
    rules = {rule.id for rule in generation.rules}
    host_rules = {rule.id for rule in generation.host_rules}
    reasons = [entry.why for entry in demanded.entries]
    reasons += [one.why for one in demanded.beyond]

    assert {rule for entry in demanded.entries for rule in entry.rules} <= rules
    assert {rule for entry in demanded.entries for rule in entry.host} <= host_rules
    assert set(re.findall(r"\b[A-Z]{2}-\d+", " ".join(reasons))) <= rules | host_rules


QUOTED = [
    (name, rule.id, source.says)
    for name, (generation, demanded) in DEMANDED.items()
    for rule in (*generation.rules, *generation.host_rules)
    for source in rule.sources
    if source.where == demanded.document
]


@pytest.mark.parametrize(("name", "rule", "says"), QUOTED)
def test_rules_quote_the_document(name: str, rule: str, says: str) -> None:
    """What a rule cites is in one passage, word for word, and the passage names the rule."""
    claimed = {
        entry.says: (*entry.rules, *entry.host)
        for passage, entry in _pairs(name)
        if quotes(passage, says)
    }

    assert claimed, f"these words are nowhere in the document of {name}: {says!r}"
    assert any(rule in rules for rules in claimed.values()), (
        f"add {rule} to the rules of this passage in requirements.toml of {name}, "
        f"and draw the page again: {claimed}"
    )


def test_documents_are_the_document() -> None:
    """A source that is no symbol of vLLM is the document that is taken apart, or the profile."""
    titles = {source.where for _, source in SOURCES if not re.search(r"\.py:|#\d", source.where)}

    assert titles == {REQUIREMENTS.document, "the plugin's profile"}


@pytest.mark.parametrize("where", sorted(SYMBOLS))
def test_cited_symbols_exist(where: str) -> None:
    """A symbol that a rule or a requirement cites is in the installed vLLM."""
    spec = importlib.util.find_spec("vllm")
    assert spec is not None
    assert spec.origin is not None
    file, _, symbol = where.partition(":")
    node: ast.AST | None = ast.parse((Path(spec.origin).parent / file).read_text(encoding="utf-8"))
    for name in symbol.split("."):
        assert node is not None
        node = next((child for child in ast.walk(node) if name in _names(child)), None)

    assert node is not None


def _names(node: ast.AST) -> list[str]:
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return [name]
        case ast.Assign(targets=targets):
            return [target.id for target in targets if isinstance(target, ast.Name)]
        case _:
            return []


@pytest.mark.parametrize(
    "caption",
    [
        "Example custom logits processor definition",
        "Example of Wrapping a Request-Level Logits Processor",
    ],
)
def test_the_documented_example_is_the_document_s(caption: str) -> None:
    """The example that is certified is the one in the document, class for class."""
    (code,) = [passage.code for passage in PASSAGES if passage.text == caption]
    certified = (ROOT / "fixtures" / "documented_example.py").read_text(encoding="utf-8")
    classes = re.findall(r"^class .*?(?=^\S|\Z)", dedent(code), re.DOTALL | re.MULTILINE)

    assert classes
    assert all(one.rstrip() in certified for one in classes)


DOCUMENT = """\
<!-- A comment
is no passage. -->
# Title

A paragraph goes on
in the next line. It has `two.` sentences.

!!! note
    What is noted. Twice.

## Items of `code`

* **First.** With more, i.e. this.
    * Nested
      and long

1. Numbered. Twice.
2. In a row

??? code "A caption"

    ``` python
    # Not a heading.

    * = "not an item"
    ```

Text again:
```bash
run it
```
| a | b |
|---|:--|
| 1 | 2. 3. |
"""


def test_a_document_is_taken_apart() -> None:
    """Sentences, items, code and rows of tables are passages, under their headings."""
    found = [(passage.section, passage.line, passage.text) for passage in take_apart(DOCUMENT)]

    assert found == [
        ("Title", 5, "A paragraph goes on in the next line."),
        ("Title", 5, "It has `two.` sentences."),
        ("Title", 9, "What is noted."),
        ("Title", 9, "Twice."),
        ("Items of code", 13, "**First.**"),
        ("Items of code", 13, "With more, i.e. this."),
        ("Items of code", 14, "Nested and long"),
        ("Items of code", 17, "Numbered."),
        ("Items of code", 17, "Twice."),
        ("Items of code", 18, "In a row"),
        ("Items of code", 22, "A caption"),
        ("Items of code", 28, "Text again:"),
        ("Items of code", 29, "run it"),
        ("Items of code", 32, "| a | b |"),
        ("Items of code", 34, "| 1 | 2. 3. |"),
    ]


def test_code_is_kept_whole() -> None:
    """Code keeps its lines, blank ones too."""
    code = [passage.code for passage in take_apart(DOCUMENT) if passage.code]

    assert code == ['    # Not a heading.\n\n    * = "not an item"', "run it"]


@pytest.mark.parametrize(
    ("paragraph", "expected"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("One (in brackets.) `two` follows.", ["One (in brackets.)", "`two` follows."]),
        ("**Loud.** Calm.", ["**Loud.**", "Calm."]),
        ('He said "so." Then (1) left.', ['He said "so."', "Then (1) left."]),
        ("Cut, e.g. LB-06 or i.e. `this`, no.", ["Cut, e.g. LB-06 or i.e. `this`, no."]),
        ("Run vllm serve ... Then wait.", ["Run vllm serve ... Then wait."]),
        ("vLLM 0.10. 2 rows", ["vLLM 0.10.", "2 rows"]),
        ("ends without a stop", ["ends without a stop"]),
    ],
)
def test_a_paragraph_is_cut_into_sentences(paragraph: str, expected: list[str]) -> None:
    """Abbreviations, dots and what closes after a full stop do not mislead."""
    assert sentences(paragraph) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("the update may be None", True),
        ("The update", False),
        ("update ... be None", True),
        ("None ... update", False),
        ("is a list", True),
        ("updated", False),
    ],
)
def test_quotations_are_word_for_word(words: str, *, expected: bool) -> None:
    """Markdown does not count; letters do, and parts come in the order of the document."""
    passage = Passage("", 1, "**Note:** the [update](to.md) may be `None`", code="is a\n  list")

    assert quotes(passage, words) is expected


ONE = Passage("", 1, "A plugin `must`.")
TWO = Passage("", 2, "A host may.")


@pytest.mark.parametrize(
    ("entries", "complaint"),
    [
        (["A plugin must"], "line 2 needs one entry: A host may."),
        (["A", "A host"], "line 2 needs one entry: A host may."),
        (["A plugin", "A host", "A fork"], "this entry needs one passage: A fork"),
        (["A host", "A plugin"], "line 1 has its entry in another place: A plugin `must`."),
    ],
)
def test_what_is_not_accounted_for_is_told(entries: list[str], complaint: str) -> None:
    """A passage without an entry, an entry without a passage and disorder are told apart."""
    with pytest.raises(ValueError, match=f"^{re.escape(complaint)}"):
        account([ONE, TWO], [Entry(says, Fate.INFORMS) for says in entries])


def test_an_entry_has_one_fate() -> None:
    """What a passage demands is shown by rules, or not testable, or nothing: one of these."""
    entry = read_entry(says="A", rules=["LB-01"], host=["HB-01"])

    assert entry == Entry("A", Fate.RULES, rules=("LB-01",), host=("HB-01",))


@pytest.mark.parametrize(
    "fates", [{}, {"rules": []}, {"ruels": ["LB-01"]}, {"informs": "x", "untestable": "y"}]
)
def test_an_entry_without_a_fate_is_refused(fates: dict[str, Any]) -> None:
    """An entry with no fate, an empty or misspelt one, or two, is an error."""
    with pytest.raises(ValueError, match=r"^'A' needs one of rules, untestable, informs"):
        read_entry(says="A", **fates)
