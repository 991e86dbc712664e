"""What long work tells while it runs, by a clock that the tests set."""

from __future__ import annotations

import io

import pytest

from veilsum.roles.cli.progress import EARLIER, Progress


class Stream(io.StringIO):
    """Standard error, as a terminal or as a file."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal

    def take(self) -> str:
        """What was written since this was asked before."""
        text = self.getvalue()
        self.truncate(0)
        self.seek(0)
        return text


class Shown:
    """Progress over ten steps that began at second 0, and the second that it is."""

    def __init__(self, terminal: bool = False) -> None:
        self.now = 0.0
        self.stream = Stream(terminal)
        self.progress = Progress("ampc", 10, self.stream, lambda: self.now)

    def at(self, now: float, done: int, note: str = "", keep: str = "") -> str:
        self.now = now
        self.progress.update(done, note, keep)
        return self.stream.take()

    def tick(self, now: float) -> str:
        self.now = now
        self.progress.tick()
        return self.stream.take()

    def close(self) -> str:
        self.progress.close()
        return self.stream.take()


@pytest.mark.parametrize("terminal", [True, False])
def test_work_that_ends_within_two_seconds_tells_nothing(terminal: bool) -> None:
    shown = Shown(terminal)
    assert shown.at(0.5, 5, "rounds", keep="round 1") == ""
    assert shown.at(1.9, 10, "rounds", keep="round 2") == ""
    assert shown.close() == ""


def test_what_was_kept_in_the_quiet_time_is_told_when_it_is_over_though_nothing_else_comes() -> None:
    shown = Shown()
    shown.at(0.5, 1, keep="round 1")
    shown.at(1.0, 2, keep="round 2")
    assert shown.tick(1.9) == ""
    assert shown.tick(2.0) == "ampc: round 1\nampc: round 2, about 8 s left\n"
    assert shown.tick(2.1) == ""


def test_every_line_is_told_as_it_comes_where_steps_take_half_a_second_or_more() -> None:
    shown = Shown()
    assert shown.at(2.0, 1, keep="round 1") == "ampc: round 1, about 18 s left\n"
    assert shown.at(2.5, 2, keep="round 2") == "ampc: round 2, about 10 s left\n"
    assert shown.at(20.0, 10, keep="round 10") == "ampc: round 10\n"
    assert shown.close() == ""


def test_a_file_gets_one_line_for_half_a_second_of_quick_steps_the_newest_and_the_last_of_all() -> None:
    shown = Shown()
    assert shown.at(2.0, 1, keep="round 1") != ""
    assert shown.at(2.1, 2, keep="round 2") == ""
    assert shown.at(2.4, 3, keep="round 3") == ""
    assert shown.at(2.5, 4, keep="round 4") == "ampc: round 4, about 4 s left\n"
    assert shown.at(2.6, 5, keep="round 5") == ""
    assert shown.close() == "ampc: round 5\n"


def test_a_file_gets_a_limited_number_of_lines_of_the_quiet_time() -> None:
    shown = Shown()
    for number in range(1000):
        shown.at(1.0, 1, keep=f"round {number}")
    told = shown.tick(2.0).splitlines()
    assert len(told) == EARLIER
    assert told[-1].startswith("ampc: round 999")


def test_on_a_terminal_all_that_is_kept_scrolls_above_a_line_that_is_drawn_anew() -> None:
    shown = Shown(terminal=True)
    shown.at(1.0, 1, "rounds", keep="round 1")
    assert shown.at(2.0, 2, "rounds", keep="round 2") == (
        "\r\x1b[2Kampc: round 1\nampc: round 2\nampc: 2/10 rounds, about 8 s left"
    )
    assert shown.at(2.1, 3, "rounds", keep="round 3") == (
        "\r\x1b[2Kampc: round 3\nampc: 3/10 rounds, about 5 s left"
    )
    assert shown.close() == "\r\x1b[2K"


def test_work_that_keeps_nothing_has_a_line_every_ten_seconds_in_a_file() -> None:
    """So do audits and benchmarks."""
    shown = Shown()
    assert shown.at(9.0, 1, "% dlg") == ""
    assert shown.at(10.0, 2, "% dlg") == "ampc: 2/10 % dlg, about 40 s left\n"
    assert shown.at(19.0, 3, "% idlg") == ""
    assert shown.at(20.0, 5, "% idlg") == "ampc: 5/10 % idlg, about 20 s left\n"


def test_work_that_keeps_nothing_has_its_line_drawn_anew_at_each_step_on_a_terminal() -> None:
    shown = Shown(terminal=True)
    assert shown.at(1.0, 1, "% dlg") == ""
    assert shown.at(2.0, 2, "% dlg") == "\r\x1b[2Kampc: 2/10 % dlg, about 8 s left"
    assert shown.at(2.1, 0, "% dlg") == "\r\x1b[2Kampc: 0/10 % dlg"
    assert shown.close() == "\r\x1b[2K"
