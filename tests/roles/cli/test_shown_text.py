"""Whatever others sent, nothing that a person is shown of it starts a line or steers a terminal."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.roles.cli import main as cli
from veilsum.roles.cli.exit_codes import EXIT_FAILED
from veilsum.roles.cli.output import Table, publish
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.launch.display import LiveView
from veilsum.simulations.audit.report import markdown
from veilsum.simulations.audit.report.page import Report, render
from veilsum.simulations.audit.rows.row import Row

EVIL = "\x1b[2J\x1b]0;owned\x07\x7f\u202e\ud800\n| <script>"
texts = st.text(st.characters(exclude_categories=()))


def require_harmless(shown: str) -> None:
    assert all(line.isprintable() for line in shown.split("\n"))


@given(texts)
@example(EVIL)
def test_cells_of_a_table_stay_on_their_line(text: str) -> None:
    shown = Table(text, ("party", "phase"), [("p1", text), (text, "waiting")]).render()
    require_harmless(shown)
    assert shown.count("\n") == 6


def test_what_a_command_publishes_is_printable_on_any_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """The text is escaped, and the JSON beside it printable and exact."""
    publish(f"two\nlines {EVIL}", {"text": EVIL}, "-")
    written = capsys.readouterr()
    require_harmless(written.err)
    assert written.err.startswith("two\nlines \\x1b[2J")
    require_harmless(written.out)
    assert json.loads(written.out) == {"schema": 2, "text": EVIL}


def test_errors_that_quote_others_are_one_printable_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise Rejection(AbortReason.BAD_ENCODING, EVIL)

    monkeypatch.setattr(cli, "run_table", fail)
    assert cli.main(["status"]) == EXIT_FAILED
    said = capsys.readouterr().err
    require_harmless(said)
    assert said.count("\n") == 1


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()], ids=["lines", "terminal"])
def test_facts_of_processes_reach_the_live_view_escaped(stream: io.StringIO) -> None:
    """On a terminal the table itself steers it, and what it shows does not."""
    config = FederationConfig.from_options(
        {"scheme": "plain", "parties": 2, "task": "vectors:4", "rounds": 1}
    )
    with LiveView(config, stream) as view:
        view.on_fact({"party": "server", "fact": "run_failed", "reason": EVIL, "detail": "[red]markup[/red]"})
        view.on_fact({"party": EVIL, "fact": f"warning {EVIL}", "text": EVIL})
        view.on_fact({"party": "p1", "fact": "warning", "text": EVIL})
    shown = stream.getvalue()
    assert "\x1b]0;owned" not in shown
    assert "\x1b[2J" not in shown
    assert "\u202e" not in shown
    if not stream.isatty():
        require_harmless(shown)


@pytest.mark.parametrize("number", [None, 0, -1, 1.5, "2", EVIL, [], 10**30])
def test_a_fact_of_a_round_that_cannot_be_is_shown_and_ends_nothing(number: object) -> None:
    config = FederationConfig.from_options(
        {"scheme": "plain", "parties": 2, "task": "vectors:4", "rounds": 1}
    )
    with LiveView(config, shown := io.StringIO()) as view:
        for what in ("round_began", "round_committed", "measured"):
            view.on_fact({"party": "server", "fact": what, "round": number, "members": ["p1"]})
            view.on_fact({"party": "p1", "fact": what, "round": number, "metrics": {"accuracy": 0.5}})
    assert len(shown.getvalue().splitlines()) == 3
    require_harmless(shown.getvalue())


def test_reports_escape_what_a_view_quotes() -> None:
    """Neither a terminal that shows the file nor a browser or a reader of Markdown is steered by it."""
    row = Row(EVIL, EVIL, EVIL, EVIL, "L0", "attack", EVIL, 1, 0.1, note=EVIL, threat=EVIL)
    for shown in (
        render(Report(EVIL, EVIL, "quick", [row])),
        markdown.figures("veilsum audit all", [row], [(EVIL,) * 4], []),
    ):
        require_harmless(shown)
        assert "<script>" not in shown
