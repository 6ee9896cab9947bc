# SPDX-License-Identifier: Apache-2.0
"""The report page: what it says, and how it looks in a browser."""

from __future__ import annotations

import shutil
from html.parser import HTMLParser
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import attrs
import pytest
from click.testing import CliRunner
from samples import COUNTEREXAMPLE, GENERATION, PLUGIN, SETTINGS, results, sample

from conformance.cli import main
from conformance.reporting import certificate, folder, page
from conformance.rules import Level
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

ADVICE = next(rule.id for rule in GENERATION.rules if rule.level is Level.SHOULD)
MIXED = {
    "LB-06": Verdict.FAIL,
    "LB-07": Verdict.NOT_VERIFIED,
    "LB-08": Verdict.NOT_APPLICABLE,
    ADVICE: Verdict.FAIL,
}

#: Width and height of a phone and of a desktop.
WINDOWS = {"phone": (390, 844), "desktop": (1280, 900)}

#: The contrast that WCAG 2.2 demands of ordinary text, and where it is less.
CONTRAST = 4.5
PALE = """() => {
  const luminance = colour => {
    const parts = colour.match(/[\\d.]+/g).map(Number).slice(0, 3).map(value => {
      const share = value / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
  };
  const behind = element => {
    for (let each = element; each; each = each.parentElement) {
      const colour = getComputedStyle(each).backgroundColor;
      if (!/, 0\\)$/.test(colour)) return colour;
    }
  };
  const found = [];
  for (const element of document.querySelectorAll("body *:not(svg, svg *)")) {
    if (![...element.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
    const pair = [getComputedStyle(element).color, behind(element)].map(luminance);
    const contrast = (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
    if (contrast < LIMIT) found.push(`${element.textContent.trim().slice(0, 40)}: ${contrast}`);
  }
  return found;
}"""


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """A certificate with everything in it that a page has a place for."""
    found = [
        attrs.evolve(result, counterexample=COUNTEREXAMPLE)
        if result.rule in ("LB-06", ADVICE)
        else result
        for result in results(MIXED)
    ]
    built = certificate.build(
        PLUGIN, found, settings=SETTINGS, context={"vllm": "0.32.0", "profile": {"on": [1]}}
    )
    long = "x" * 300
    built["rules"][0] |= {"verdict": "not-verified", "message": f"a <b>word</b> of `{long}`"}
    built["notes"] = [{"about": "Model Runner V2", "says": ["keyed by `slot`, not by row"]}]
    return built


@pytest.fixture(scope="module")
def written(document: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of that certificate on disk, with a program."""
    place = tmp_path_factory.mktemp("report")
    (place / "cases").mkdir()
    (place / "cases" / "LB-06.py").write_text("import torch\n" + "y" * 300)
    path = place / page.FILE_NAME
    path.write_text(page.render(document, {"LB-06": "import torch\n" + "y" * 300}))
    return path


class _Outline(HTMLParser):
    """The ids, links and resources of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        named = dict(attributes)
        self.ids |= {named["id"]} if named.get("id") else set()  # type: ignore[arg-type] # tested
        if tag == "a":
            self.links.add(named["href"] or "")
        if tag in ("link", "script", "img", "iframe"):
            self.loads.append(tag)


def test_the_page_is_one_file(written: Path) -> None:
    """It loads nothing, and each of its own links leads somewhere."""
    outline = _Outline()
    outline.feed(written.read_text())

    assert outline.loads == []
    assert {link[1:] for link in outline.links if link.startswith("#")} <= outline.ids


def test_the_page_says_what_the_certificate_says(document: dict[str, Any], written: Path) -> None:
    """Verdict, failures with steps and program, what was not verified and why, every rule."""
    text = written.read_text()

    assert "non-conformant" in text
    for rule in document["rules"]:
        assert rule["id"] in text
    assert 'id="failure-LB-06"' in text
    assert "vllm-conformance replay cases/LB-06.json" in text
    assert "A finishes, B joins (off[0], 1 tokens)" in text
    assert "import torch" in text
    assert "LB-07 is not-verified" in text
    assert "--conformance-seed 20261121" in text
    assert "[![vLLM logits/batch: " in text


def test_words_of_a_plugin_are_no_markup(written: Path) -> None:
    """Whatever a message holds is shown as it is."""
    text = written.read_text()

    assert "<b>word</b>" not in text
    assert "a &lt;b&gt;word&lt;/b&gt; of <code>xxx" in text


@pytest.mark.parametrize("verdict", list(Verdict))
def test_every_certificate_has_a_page(verdict: Verdict, tmp_path: Path) -> None:
    """It lies beside the certificate, whatever the verdict is."""
    folder.write(sample({"LB-06": verdict}), PLUGIN, tmp_path)

    assert page.FILE_NAME in {path.name for path in tmp_path.iterdir()}


def test_a_page_lists_all_certificates(tmp_path: Path) -> None:
    """``report --draw`` writes it above their folders, and each line leads to a page."""
    for name, verdict in (("a#b", Verdict.PASS), ("c", Verdict.FAIL), ("d", Verdict.NOT_VERIFIED)):
        folder.write(sample({"LB-06": verdict}), PLUGIN, tmp_path / name)
        (tmp_path / name / page.FILE_NAME).unlink()
    told = CliRunner().invoke(main, ["report", str(tmp_path), "--draw"])
    outline = _Outline()
    outline.feed((tmp_path / page.FILE_NAME).read_text())

    assert told.exit_code == 1
    assert outline.links == {"#main", "a%23b/index.html", "c/index.html", "d/index.html"}
    assert all((tmp_path / unquote(link)).is_file() for link in outline.links - {"#main"})
    assert "1 non-conformant" in (tmp_path / page.FILE_NAME).read_text()


def test_rules_of_another_release_are_shown(document: dict[str, Any]) -> None:
    """A rule that the catalogue no longer has keeps its line."""
    strange = {**document["rules"][3], "id": "LB-99", "title": "Something of old"}
    text = page.render({**document, "rules": [*document["rules"], strange]}, {})

    assert "Rules of another release" in text
    assert "Something of old" in text


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless Chromium."""
    sync_api = pytest.importorskip("playwright.sync_api")
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        pytest.skip("no Chromium on PATH: install one, for example with apt install chromium")
    with sync_api.sync_playwright() as playwright:
        # Without a sandbox, since containers have no user for it.
        running = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(params=[(w, s) for w in WINDOWS for s in ("light", "dark")], ids="-".join)
def shown(request: pytest.FixtureRequest, browser: Browser, written: Path) -> Iterator[Page]:
    """The page in a window, opened from disk; it may ask for nothing and complain of nothing."""
    name, scheme = request.param
    width, height = WINDOWS[name]
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, offline=True
    )
    tab = context.new_page()
    complaints: list[str] = []
    tab.on("console", lambda message: complaints.append(message.text))
    tab.on("requestfailed", lambda request: complaints.append(request.url))
    tab.goto(written.as_uri())
    yield tab
    context.close()
    assert complaints == []


def test_the_page_fits_its_window(shown: Page) -> None:
    """Long names and tables scroll by themselves; the page never scrolls sideways."""
    shown.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")

    assert shown.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_the_words_can_be_read(shown: Page) -> None:
    """Every text has the contrast that WCAG demands, in both colour schemes."""
    assert shown.evaluate(PALE.replace("LIMIT", str(CONTRAST))) == []


def test_the_keyboard_reaches_everything(shown: Page) -> None:
    """The first key leads past the header, and details open by key."""
    shown.keyboard.press("Tab")
    assert shown.evaluate("document.activeElement.textContent") == "Skip to the results"
    shown.keyboard.press("Enter")
    assert shown.evaluate("location.hash") == "#main"
    shown.focus("details summary")
    shown.keyboard.press("Enter")
    assert shown.evaluate("document.querySelector('details').open")


def test_a_screen_reader_finds_its_way(shown: Page) -> None:
    """One main part, headings without gaps, tables with captions and headed cells."""
    levels = shown.evaluate("[...document.querySelectorAll('h1,h2,h3')].map(h => +h.tagName[1])")
    tables = shown.evaluate(
        "[...document.querySelectorAll('table')].map(t => !!t.caption && !!t.querySelector('th'))"
    )

    assert shown.locator("main").count() == 1
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert tables
    assert all(tables)
