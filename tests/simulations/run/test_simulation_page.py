"""What a simulation shows beside its table: a page, a notebook's view, a fair comparison, rounds before Ctrl-C."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

from veilsum.protocol.machines.events import Event, RoundCommitted
from veilsum.roles.cli import main as cli
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.simulations.run import simulate as module
from veilsum.simulations.run.record import Recorder
from veilsum.simulations.run.result import what_was_seen
from veilsum.simulations.run.simulate import simulate

DIGITS = ("simulate", "--scheme", "plain", "--parties", "3", "--task", "digits", "--model", "mlp2:8")


class Seen(HTMLParser):
    """The elements and the text of a page, and whatever it would fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.fetched: list[str] = []
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href") and value]

    def handle_data(self, data: str) -> None:
        self.words += data


def test_the_page_has_curves_rounds_and_who_saw_what_and_fetches_nothing(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert cli.main([*DIGITS, "--rounds", "2", "--html", str(page)]) == 0
    seen = Seen(page.read_text(encoding="utf-8"))
    assert seen.tags.count("svg") == 3
    assert seen.tags.count("caption") == 2
    assert seen.tags.count("h1") == 1
    assert not [place for place in seen.fetched if not place.startswith("#")]
    for role in ("server", "client", "broker"):
        assert role in seen.words


def test_a_notebook_shows_curves_and_tables_of_a_result() -> None:
    result = simulate(FederationConfig(scheme="masked", parties=3, task="vectors:5", rounds=2))
    shown = Seen(result._repr_html_())
    assert shown.tags.count("table") == 2
    assert "svg" in shown.tags


def test_a_number_of_parties_makes_their_names() -> None:
    assert FederationConfig(parties=4).parties == ("p1", "p2", "p3", "p4")


def test_plain_is_compared_without_the_defence() -> None:
    defended = FederationConfig(
        scheme="plain", parties=3, task="digits", rounds=1, model="mlp2:8", defence="dp:clip=1,sigma=5"
    )
    beside = simulate(defended, compare="plain")
    alone = simulate(FederationConfig(scheme="plain", parties=3, task="digits", rounds=1, model="mlp2:8"))
    figures = beside.figures()
    assert figures["baseline_sha256"] == alone.figures()["model_sha256"] != figures["model_sha256"]
    assert figures["baseline_defence_left_out"] is True


def test_a_role_that_knows_nothing_is_no_better_than_chance_on_unbalanced_data(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result = simulate(FederationConfig(scheme="plain", parties=3, task="digits", rounds=1, model="mlp2:8"))
    learner = next(iter(result.federation.learners.values()))
    always_the_frequent_class = {"accuracy": 0.87, "balanced_accuracy": 0.5}
    monkeypatch.setattr(type(learner), "evaluate", lambda *_: always_the_frequent_class)
    told = dict(what_was_seen(result))["server"]
    assert "0.50" in told
    assert "0.87" not in told


def test_finished_rounds_survive_ctrl_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noted = Recorder.noted

    def interrupted(self: Recorder, now: float, party: str, event: Event) -> None:
        noted(self, now, module.PartyId(party), event)
        if isinstance(event, RoundCommitted) and len(self.rounds) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Recorder, "noted", interrupted)
    figures, page = tmp_path / "figures.json", tmp_path / "page.html"
    asked = [*DIGITS, "--rounds", "5", "--compare", "plain", "--json", str(figures), "--html", str(page)]
    assert cli.main(asked) == 130
    told = json.loads(figures.read_text())
    assert [one["round"] for one in told["rounds"]] == [1, 2]
    assert told["interrupted"] is True
    assert page.stat().st_size > 1000
