# SPDX-License-Identifier: Apache-2.0
"""Pages of the published plugins, their badges and an Atom feed, for MkDocs.

Everything is drawn from ``reports/published``: certificates are the facts, and ``plugins.toml``
says how each plugin was obtained.  The harness is not imported, so the site needs MkDocs alone.
"""

from __future__ import annotations

import html
import json
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin
from xml.etree import ElementTree as ET

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

PUBLISHED = Path(__file__).parents[1] / "reports" / "published"
FEED = "published/feed.xml"
ATOM = "http://www.w3.org/2005/Atom"


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the table of ``reports/published``, a page and a badge for each plugin, and the feed."""
    from mkdocs.structure.files import File  # here, since tests read the pages without MkDocs

    table = (PUBLISHED / "README.md").read_text(encoding="utf-8").replace("(../../docs/", "(../")
    table = table.replace("(plugins.toml)", "(../../reports/published/plugins.toml)")
    texts = {"published/README.md": table, FEED: feed(config.site_url or "")}
    for folder, certificate in certificates().items():
        texts[f"published/{folder}/summary.md"] = page(certificate, _entry(certificate, folder))
        texts[f"published/{folder}/badge.svg"] = _read(folder, "badge.svg")
    for place, text in texts.items():
        files.append(File.generated(config, place, content=text))
    return files


@cache
def certificates() -> Mapping[str, dict[str, Any]]:
    """Return the certificates by their folders, the newest first."""
    found = {
        str(path.parent.relative_to(PUBLISHED)): json.loads(path.read_text(encoding="utf-8"))
        for path in PUBLISHED.glob("vllm-*/*/certificate.json")
    }
    newest = sorted(found, key=lambda folder: found[folder]["run"]["finished"], reverse=True)
    return {folder: found[folder] for folder in newest}


def page(certificate: Mapping[str, Any], entry: Mapping[str, Any]) -> str:
    """Return the page of one certificate, in Markdown."""
    plugin, environment, run = (certificate[key] for key in ("plugin", "environment", "run"))
    rules, evidence = certificate["rules"], ",".join(run["evidence"])
    pages = f"../../../rules/{plugin['generation'].replace('/', '-')}.md"
    failed = [rule for rule in rules if rule["verdict"] == "fail"]
    unseen = [rule for rule in rules if rule["verdict"] in ("not-verified", "error")]
    facts = {
        "Obtained as": f"`{origin(entry)}`",
        "Interface": plugin["generation"],
        "vLLM": environment["vllm"] or entry["vllm"],
        "Evidence": ", ".join(run["evidence"]),
        "Rule set": certificate["harness"]["rules"],
        "Certified": run["finished"][:10],
    }
    return "\n".join([
        f"# {_title(certificate, entry)}\n",
        f"![{certificate['verdict']}](badge.svg)\n",
        f"| Plugin | `{plugin['target']}` |\n|---|---|",
        *(f"| {name} | {value} |" for name, value in facts.items()),
        f"\n{entry['says'].strip()}\n",
        *_listed("Failing", failed, pages),
        *_listed("Not shown", unseen, pages),
        "## All rules\n",
        "| rule | title | level | verdict | acted / run |\n|---|---|---|---|---|",
        *(
            f"| {_link(rule, pages)} | {_plain(rule['title'])} | {rule['level']} "
            f"| {rule['verdict']} | {rule['acted']} / {rule['examples']} |"
            for rule in rules
        ),
        "\n## Run it yourself\n",
        "In `reports/published/profiles`, with the plugin on `PYTHONPATH`:\n",
        f"    vllm-conformance certify '{entry['target']}' --evidence {evidence} \\",
        f"      --plugin-profile {entry['profile']} --conformance-seed {run['seed']}",
    ])  # fmt: skip


def feed(site: str) -> str:
    """Return the certificates as an Atom feed; ``site`` is the address of the site, or empty."""
    root = ET.Element("feed", xmlns=ATOM)
    _element(root, "id", urljoin(site, FEED) if site else "urn:vllm-plugin-conformance:published")
    _element(root, "title", "vLLM plugins, certified")
    _element(root, "updated", next(iter(certificates().values()))["run"]["finished"])
    _element(_element(root, "author"), "name", "vLLM plugin conformance")
    if site:
        ET.SubElement(root, "link", rel="self", href=urljoin(site, FEED))
    for folder, certificate in certificates().items():
        entry = ET.SubElement(root, "entry")
        place = f"published/{folder}/summary/"
        address = urljoin(site, place) if site else f"urn:vllm-plugin-conformance:{folder}"
        _element(entry, "id", address)
        _element(entry, "title", _title(certificate, _entry(certificate, folder)))
        _element(entry, "updated", certificate["run"]["finished"])
        _element(entry, "summary", _entry(certificate, folder)["says"].strip())
        if site:
            ET.SubElement(entry, "link", href=address)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


@cache
def entries() -> tuple[dict[str, Any], ...]:
    """Return the entries of ``plugins.toml``, each with its release of vLLM and its evidence."""
    document = tomllib.loads((PUBLISHED / "plugins.toml").read_text(encoding="utf-8"))
    usual = {"vllm": document["vllm"], "evidence": document["evidence"]}
    return tuple({**usual, **entry} for entry in document["plugin"])


def _entry(certificate: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """Return what ``plugins.toml`` says of a certificate."""
    target, release = certificate["plugin"]["target"], Path(folder).parent.name
    for entry in entries():
        same = target in (entry["target"], entry["target"].partition("@")[0])
        if same and release == f"vllm-{entry['vllm']}":
            return entry
    raise LookupError(f"reports/published/{folder} is not in plugins.toml")


def origin(entry: Mapping[str, Any]) -> str:
    """Return what was certified: a requirement, or a repository at a commit."""
    if "repository" in entry:
        return f"{entry['repository']}@{entry['commit'][:10]}"
    return str(entry["requirement"])


def _title(certificate: Mapping[str, Any], entry: Mapping[str, Any]) -> str:
    named = certificate["plugin"]["target"].partition("@")[0].rpartition("/")[2].rpartition(":")[2]
    source = entry.get("repository") or entry["requirement"].partition("==")[0]
    return f"{source}: {named} is {certificate['verdict']}"


def _listed(title: str, rules: list[dict[str, Any]], pages: str) -> list[str]:
    if not rules:
        return []
    return [
        f"## {title}\n",
        *(
            f"- {_link(rule, pages)} ({rule['level']}) {_plain(rule['title'])}"
            + (f":\n  {_plain(rule['message'])}" if rule["message"] else "")
            for rule in rules
        ),
        "",
    ]


def _link(rule: Mapping[str, Any], pages: str) -> str:
    return f"[{rule['id']}]({pages}#{rule['id'].lower()})"


def _plain(text: str) -> str:
    """Return Markdown that is read as the text."""
    return re.sub(r"([\\`*_\[\]#|])", r"\\\1", html.escape(text, quote=False))


def _element(parent: ET.Element, name: str, text: str | None = None) -> ET.Element:
    made = ET.SubElement(parent, name)
    made.text = text
    return made


def _read(folder: str, name: str) -> str:
    return (PUBLISHED / folder / name).read_text(encoding="utf-8")
