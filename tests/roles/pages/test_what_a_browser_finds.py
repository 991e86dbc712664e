"""What the tests of pages look for in a browser is found where it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.browser import PHONE, looking

pytestmark = pytest.mark.long

FAULTS = {
    "pale": "<p style='color: #999'>pale</p>",
    "wide": "<p style='width: 500px'>wide</p>",
    "clipped": "<div style='overflow: hidden'><p style='width: 500px'>clipped</p></div>",
    "complaint": "<script>throw new Error('raised')</script>",
    "stranger": "<img alt='' src='http://192.0.2.1/one.png'>",
}


def body(content: str) -> str:
    return f"<body style='background: #fff; margin: 0'><p>sound</p>{content}</body>"


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(tmp_path: Path, fault: str) -> None:
    page = tmp_path / "page.html"
    page.write_text(body(FAULTS[fault]))
    with looking(page.as_uri(), PHONE) as sight:
        found = {
            "pale": [one for one in sight.pale() if one.endswith("pale")],
            "wide": sight.too_wide() if sight.overflow() > 0 else [],
            "clipped": sight.too_wide() if sight.overflow() <= 0 else [],
            "complaint": [one for one in sight.complaints if "raised" in one],
            "stranger": sight.strange_requests,
        }
        assert [name for name, what in found.items() if what] == [fault]
        with pytest.raises(AssertionError):
            sight.require_sound()


def test_what_scrolls_and_what_only_readers_of_the_screen_get_is_no_fault(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(
        body(
            "<div style='overflow: auto'><p style='width: 500px'>scrolls</p></div>"
            "<div class='unseen' style='position: absolute; width: 1px; overflow: hidden'>"
            "<p style='width: 500px'>read aloud</p></div>"
        )
    )
    with looking(page.as_uri(), PHONE) as sight:
        sight.require_sound()
