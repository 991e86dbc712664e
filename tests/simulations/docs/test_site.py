"""The documentation site: every page of the repository, working links, and nothing from elsewhere."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.support.sources import ROOT

LOADING = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


class Page(HTMLParser):
    """What a page links to, what it loads, and which anchors it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in LOADING and LOADING[tag] in given:
            self.loads.append(given[LOADING[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("furo") is None:
        pytest.skip("the site's libraries are not installed: make site installs them")
    target = tmp_path_factory.mktemp("site") / "site"
    command = [sys.executable, str(ROOT / "specs/site/build.py"), str(target)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return target


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}


def inside(pages: dict[Path, Page]) -> Iterator[tuple[Path, Path, str]]:
    """Page, file and anchor of every link and of everything loaded that lies in the site."""
    for path, page in pages.items():
        for link in (*page.links, *page.loads):
            parts = urlsplit(link)
            if not parts.scheme and not parts.netloc:
                file = (path.parent / unquote(parts.path)).resolve() if parts.path else path
                yield path, file, parts.fragment


@pytest.mark.long
def test_every_page_of_the_repository_is_in_the_site_and_the_readme_is_its_first(
    site: Path, pages: dict[Path, Page]
) -> None:
    wanted = {path.relative_to(ROOT).with_suffix(".html") for path in (ROOT / "specs").rglob("*.md")}
    wanted |= {path.relative_to(ROOT).with_suffix(".html") for path in (ROOT / "specs").rglob("*.ipynb")}
    assert {site / path for path in wanted} <= pages.keys()
    assert (site / "index.html").read_text() == (site / "README.html").read_text()


@pytest.mark.long
def test_every_link_between_pages_leads_to_a_page_and_to_a_place_on_it(
    site: Path, pages: dict[Path, Page]
) -> None:
    lost = [(path, file) for path, file, _ in inside(pages) if not file.exists()]
    assert not lost
    nowhere = [
        (str(path.relative_to(site)), str(file.relative_to(site)), anchor)
        for path, file, anchor in inside(pages)
        if anchor and file in pages and unquote(anchor) not in pages[file].anchors
    ]
    assert not nowhere


@pytest.mark.long
def test_no_page_loads_anything_from_elsewhere_and_none_needs_a_server(
    site: Path, pages: dict[Path, Page]
) -> None:
    """Links to other sites are for people; scripts, styles, fonts and pictures lie in the site, by relative paths."""
    outside = [(path.name, load) for path, page in pages.items() for load in page.loads if "//" in load]
    assert not outside
    rooted = [link for page in pages.values() for link in (*page.links, *page.loads) if link.startswith("/")]
    assert not rooted
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert "url(http" not in styles
    assert "@import" not in styles
