# SPDX-License-Identifier: Apache-2.0
"""The table of configurations, as data."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from support import ROOT

from conformance.commands.configurations import markdown
from conformance.configuration.table import PLAIN, TABLE, chosen, parse, unsupported
from conformance.settings import UsageError


def test_names_are_different() -> None:
    """A name stands for one configuration, and the plain one is the first."""
    names = [each.name for each in TABLE]

    assert len(names) == len(set(names))
    assert TABLE[0] is PLAIN


def test_all_are_chosen_in_their_own_order() -> None:
    """Whatever the order in which they are named, they run as the table has them."""
    assert parse("all") == tuple(each.name for each in TABLE)
    assert parse("chunked-prefill,plain") == ("plain", "chunked-prefill")
    assert parse(None) == ()


def test_a_wrong_name_is_told_the_nearest() -> None:
    """A typing mistake is answered with the name that was meant."""
    with pytest.raises(UsageError, match="Did you mean 'prefix-caching'"):
        parse("prefix-cashing")


def test_only_servers_matter_to_what_a_front_end_runs() -> None:
    """What is not about a generation is not run for its plugins."""
    names = {each.name for each in chosen(parse("all"), "hook/rfc")}

    servers = {"server", "api-servers-2", "data-parallel-2", "stream-interval", "clients-200"}
    assert names == servers
    assert [each.name for each in chosen(("plain",), "logits/slot")] == ["plain"]
    assert all(each.server is not None for each in chosen(parse("all"), "io/data"))


def test_a_profile_names_only_what_may_be_refused() -> None:
    """What matters to a generation and is refusable; the message has the nearest name."""
    may = {"unsupported_configurations": ["data-parallel-2"]}
    assert unsupported(may, "io/data") == ("data-parallel-2",)
    for name, generation in (("api-servers-2", "io/data"), ("tensor-parallel-2", "hook/rfc")):
        with pytest.raises(UsageError, match=f"may have data-parallel-2, not '{name}'"):
            unsupported({"unsupported_configurations": [name]}, generation)


def test_the_list_imports_no_host() -> None:
    """The command that lists them answers without vLLM, as JSON too."""
    program = (
        "import sys; from conformance.cli import main\n"
        "try: main(['configurations', '--json'])\n"
        "finally: assert 'vllm' not in sys.modules and 'torch' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert [each["name"] for each in json.loads(done.stdout)] == [each.name for each in TABLE]


def test_the_page_shows_what_was_kept() -> None:
    """The table of the page is drawn from the report."""
    kept = json.loads((ROOT / "reports" / "configurations.json").read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "configurations.md").read_text(encoding="utf-8")

    assert markdown(kept) in page


def test_a_table_is_narrow_however_many_plugins_there_are() -> None:
    """Plugins are numbered; a reason that several have is told once, without what vLLM made up."""
    told = "KeyError: '0-0-{}'"
    rows: dict[str, list[dict[str, Any]]] = {}
    for number, name in enumerate(("b357c645", "afc67140", "", "0123abcd")):
        ranks = {"name": "ranks", "verdict": "not-applicable", "message": told.format(name)}
        plain = {"name": "plain", "verdict": "pass", "message": None}
        rows[f"p.py:P{number}"] = [plain, ranks] if name else [plain]
    drawn = markdown(rows)

    assert drawn.startswith("1. `p.py:P0`\n2. `p.py:P1`\n")
    assert "| plain | ✓ | ✓ | ✓ | ✓ |\n| ranks | - | - |  | - |\n" in drawn
    assert drawn.endswith("\n- ranks: KeyError: '0-0-...' (1-2, 4)")
