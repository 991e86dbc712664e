"""Draws specs/figures/page.png anew: the live page of a real run, in the middle of it, as Chromium shows it.

    PYTHONPATH=. .venv/bin/python tests/support/picture.py [FILE]

Four parties train on digits under `ampc`, as processes of this machine; about a minute. What is in the picture (times,
rounds, bytes) is of that one run.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

from tests.support.browser import FLAGS, require_chromium
from tests.support.federations import free_port
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.federation.enrolment import create_federation

TARGET = Path(__file__).parents[2] / "specs" / "figures" / "page.png"
WINDOW = {"width": 1180, "height": 905}
SECONDS = 240.0
SHOWN_FROM = 24
"""So many rounds are done when the picture is taken."""


def veilsum(*words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-P", "-m", "veilsum", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def take_picture(url: str, target: Path) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=require_chromium(), args=list(FLAGS))
        context = browser.new_context(viewport=WINDOW, device_scale_factor=1.4, color_scheme="light")  # type: ignore[arg-type]
        page = context.new_page()
        page.goto(url)
        rows = page.locator("#rounds tbody tr")
        expect(rows.nth(SHOWN_FROM - 1)).to_be_visible(timeout=SECONDS * 1000)
        page.screenshot(path=target)
        browser.close()


def main() -> None:
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "hospitals"
        names = ("amsterdam", "bern", "cork", "delft")
        settings = {"scheme": "ampc", "task": "digits", "rounds": 40, "broker_host": "localhost"}
        config = {**settings, "name": "hospitals", "parties": names, "broker_port": free_port()}
        create_federation(folder, FederationConfig.from_options(config))
        page = veilsum("page", str(folder))
        assert page.stdout is not None
        launch = veilsum("launch", str(folder))
        try:
            take_picture(page.stdout.readline().strip(), target)
        finally:
            for process in (launch, page):
                process.send_signal(signal.SIGINT)
                process.communicate(timeout=SECONDS)
    sys.stdout.write(f"{target}: {target.stat().st_size // 1024} KiB\n")


if __name__ == "__main__":
    main()
