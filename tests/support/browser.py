"""A page in the system's Chromium, as people meet it: on a wide screen, or on a phone 375 pixels wide.

Tests that use it are marked `long`. Without Chromium they are skipped; where CI=true that is an error. What a page
asks of the network, logs as an error or raises is kept, and `require_sound` says what must hold for each of our pages.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import ConsoleMessage, Error, Page, ViewportSize, sync_playwright

PHONE: ViewportSize = {"width": 375, "height": 740}
WIDE: ViewportSize = {"width": 1280, "height": 900}
NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
OWN_SCHEMES = {"file", "data", "about", "blob"}
LOOPBACK = {"127.0.0.1", "localhost", "::1"}
WITHIN_MS = 30_000

Scheme: TypeAlias = Literal["light", "dark"]

_TOO_WIDE = """() => {
  const wide = document.documentElement.clientWidth;
  const out = [...document.querySelectorAll('body *')].filter(one => {
    const box = one.getBoundingClientRect();
    if (!box.width || box.right <= wide + 1) return false;
    if (one.closest('.unseen')) return false;
    for (let up = one.parentElement; up; up = up.parentElement)
      if (['auto', 'scroll'].includes(getComputedStyle(up).overflowX)) return false;
    return true;
  });
  return out.map(one => `${one.tagName}.${one.getAttribute('class') || ''}`).slice(0, 5);
}"""

_CUT = """() => [...document.querySelectorAll('body *')]
  .filter(one => ['auto', 'scroll'].includes(getComputedStyle(one).overflowX) && one.scrollWidth > one.clientWidth + 1)
  .map(one => `${one.tagName}.${one.getAttribute('class') || ''}: ${one.getAttribute('aria-label') || ''}`)"""

_PARTS_OF_TABLES = {"table", "row", "columnheader", "rowheader", "cell"}

_PALE = """() => {
  const read = text => { const found = text.match(/^rgba?\\(([^)]+)\\)/);
    if (!found) return null;
    const [r, g, b, a = 1] = found[1].split(/[ ,/]+/).map(Number); return {rgb: [r, g, b], a}; };
  const light = rgb => { const [r, g, b] = rgb.map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = one => { for (let up = one; up; up = up.parentElement) {
    const paint = read(getComputedStyle(up).backgroundColor);
    if (paint === null) return null;
    if (paint.a === 1) return paint.rgb; } return [255, 255, 255]; };
  const out = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const one = walker.currentNode.parentElement, style = getComputedStyle(one);
    if (!walker.currentNode.textContent.trim() || one.closest('script, style, title, desc')) continue;
    if (!one.getClientRects().length) continue;
    const ink = read(one.closest('svg') ? style.fill : style.color), paper = behind(one);
    if (!ink || !paper) continue;
    const [low, high] = [light(ink.rgb), light(paper)].sort((a, b) => a - b);
    const contrast = (high + 0.05) / (low + 0.05);
    if (contrast < 4.5) out.push(`${one.tagName} ${contrast.toFixed(2)}: ${one.textContent.trim().slice(0, 40)}`);
  }
  return out;
}"""


@dataclass
class Sight:
    """A page that is open, and what it did that nobody saw."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    """Errors of its console and errors that it raised."""
    requests: list[str] = field(default_factory=list)
    """Every address that it asked for, itself included."""

    @property
    def strange_requests(self) -> list[str]:
        """Those that leave this machine."""
        return [url for url in self.requests if not _is_here(url)]

    def overflow(self) -> int:
        """By how many pixels the page is wider than its window."""
        script = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        return int(self.page.evaluate(script))

    def too_wide(self) -> list[str]:
        """The elements that reach out of the window and cannot be scrolled into it."""
        return list(self.page.evaluate(_TOO_WIDE))

    def cut(self) -> list[str]:
        """What shows its whole width only to who scrolls it sideways."""
        return list(self.page.evaluate(_CUT))

    def parts_of_tables(self) -> Counter[tuple[str, str]]:
        """Role and name of every part of a table that the browser tells a screen reader."""
        session = self.page.context.new_cdp_session(self.page)
        nodes = session.send("Accessibility.getFullAXTree")["nodes"]
        told = (
            (one["role"]["value"], one.get("name", {}).get("value", "")) for one in nodes if "role" in one
        )
        return Counter(
            (role, "" if role == "row" else name) for role, name in told if role in _PARTS_OF_TABLES
        )

    def pale(self) -> list[str]:
        """Texts whose contrast to what is behind them is below that of WCAG AA."""
        return list(self.page.evaluate(_PALE))

    def by_tab(self, times: int = 60) -> list[str]:
        """What gets the focus when the tab key is pressed again and again: the name of the element and its text."""
        script = """() => {
          const one = document.activeElement;
          if (!one || one === document.body) return '';
          const name = one.getAttribute('aria-label') || one.textContent || '';
          return `${one.tagName.toLowerCase()}: ${name.trim().slice(0, 60)}`;
        }"""
        reached: list[str] = []
        for _ in range(times):
            self.page.keyboard.press("Tab")
            reached.append(str(self.page.evaluate(script)))
        return reached

    def require_sound(self) -> None:
        """Nothing sticks out, nothing was logged as an error, and nobody outside this machine was asked."""
        assert self.complaints == []
        assert self.strange_requests == []
        assert self.overflow() <= 0, self.too_wide()
        assert self.too_wide() == []
        assert self.pale() == []


@contextlib.contextmanager
def looking(
    url: str, size: ViewportSize = WIDE, *, scheme: Scheme = "light", scripts: bool = True
) -> Iterator[Sight]:
    """The page at an address (`path.as_uri()` for a file) in a browser of its own, which is closed at the end."""
    program = require_chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        try:
            context = browser.new_context(
                viewport=size, color_scheme=scheme, java_script_enabled=scripts, reduced_motion="reduce"
            )
            page = context.new_page()
            page.set_default_timeout(WITHIN_MS)
            sight = Sight(page)
            page.on("console", lambda message: _keep_errors(sight, message))
            page.on("pageerror", lambda error: _keep_raised(sight, error))
            page.on("request", lambda request: sight.requests.append(request.url))
            page.goto(url, wait_until="load")
            yield sight
        finally:
            browser.close()


def require_chromium() -> str:
    """Where Chromium is; without it the test is skipped, or fails where CI=true."""
    found = next((path for path in map(shutil.which, NAMES) if path), None)
    if found is None:
        missing = "no chromium here (apt install chromium)"
        if os.environ.get("CI") == "true":
            pytest.fail(f"{missing}: CI must run every test")
        pytest.skip(missing)
    return found


def _keep_errors(sight: Sight, message: ConsoleMessage) -> None:
    if message.type == "error":
        sight.complaints.append(message.text)


def _keep_raised(sight: Sight, error: Error) -> None:
    sight.complaints.append(str(error))


def _is_here(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme in OWN_SCHEMES or parts.hostname in LOOPBACK
