# SPDX-License-Identifier: Apache-2.0
"""The pages of published plugins: what stands there is what their certificates say."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest
from support import ROOT

from docs import registry

CERTIFICATES = registry.certificates()


@pytest.mark.parametrize("folder", CERTIFICATES)
def test_a_page_names_what_failed(folder: str) -> None:
    """Failing rules are listed, and all stand in the table, linked to a place that is there."""
    certificate = CERTIFICATES[folder]
    text = registry.page(certificate, registry._entry(certificate, folder))
    listed, _, table = text.partition("## All rules")
    rules = ROOT / "docs" / "rules" / f"{certificate['plugin']['generation'].replace('/', '-')}.md"
    places = rules.read_text(encoding="utf-8")

    for rule in certificate["rules"]:
        assert f"| {rule['verdict']} | {rule['acted']} / {rule['examples']} |" in table
        assert f'<a id="{rule["id"].lower()}"></a>' in places
        quiet = rule["verdict"] in ("pass", "not-applicable")
        assert (f"- [{rule['id']}](" in listed) != quiet
    assert f"![{certificate['verdict']}](badge.svg)" in listed


@pytest.mark.parametrize("site", ["", "https://example.org/conformance/"])
def test_the_feed_has_every_certificate(site: str) -> None:
    """It is Atom: the newest first, ids that differ, and links where the address is known."""
    root = ET.fromstring(registry.feed(site))  # noqa: S314 - it was made a line before
    space = {"a": registry.ATOM}
    entries = root.findall("a:entry", space)
    ids = {entry.findtext("a:id", namespaces=space) for entry in entries}
    dates = [entry.findtext("a:updated", "", space) for entry in entries]
    links = [link.get("href", "") for link in root.findall("a:entry/a:link", space)]

    assert len(ids) == len(entries) == len(CERTIFICATES)
    assert dates == sorted(dates, reverse=True)
    assert root.findtext("a:updated", namespaces=space) == dates[0]
    assert len(links) == (len(entries) if site else 0)
    assert all(link.startswith(f"{site}published/vllm-") for link in links)


def test_text_is_not_taken_for_markup() -> None:
    """What a rule's message holds is read as it is: names in brackets, stars and pipes."""
    assert registry._plain("a <lambda> | b_c*") == r"a &lt;lambda&gt; \| b\_c\*"
