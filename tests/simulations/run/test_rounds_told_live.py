"""`veilsum simulate` tells each round with loss and metric on standard error, as it is committed."""

from __future__ import annotations

import io
import json
import re
from itertools import count

import pytest

from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.events import Event
from veilsum.roles.cli import progress as module
from veilsum.roles.cli.main import main
from veilsum.roles.cli.progress import Progress
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.simulations.run import simulate as simulations
from veilsum.simulations.run.simulate import RoundProgress, simulate

DIGITS = ["simulate", "--scheme", "ampc", "--task", "digits", "--rounds", "3", "--seed", "7"]
TOLD = re.compile(r"ampc: round (\d) of 3, loss (\d\.\d{4}), accuracy (\d\.\d{4}), 5 parties.*")


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No quiet time, and no line is too soon after another."""
    monkeypatch.setattr(module, "QUIET_S", 0.0)
    monkeypatch.setattr(module, "KEPT_EVERY_S", 0.0)


@pytest.mark.usefixtures("at_once")
def test_the_rounds_told_are_those_of_the_result_and_standard_output_stays_json(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([*DIGITS, "--json", "-"]) == 0
    printed = capsys.readouterr()
    rounds = json.loads(printed.out)["rounds"]
    told = [TOLD.fullmatch(line) for line in printed.err.splitlines() if "round" in line]
    expected = [
        (str(one["round"]), f"{one['loss']:.4f}", f"{one['metrics']['accuracy']:.4f}") for one in rounds
    ]
    assert [one.groups() for one in told if one] == expected
    assert len(expected) == 3


def test_a_short_run_tells_nothing_but_its_result(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "QUIET_S", 600.0)
    assert main(DIGITS) == 0
    assert "round 1" not in capsys.readouterr().err


def test_a_round_is_told_once_before_the_next_one_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many parties commit it, and whoever is the first."""
    stream, seconds = io.StringIO(), count(10.0, 1.0)
    monkeypatch.setattr(simulations, "Progress", lambda *what: Progress(*what, stream, lambda: next(seconds)))
    lines: list[int] = []

    class Counted(RoundProgress):
        def noted(self, now: float, party: PartyId, event: Event) -> None:
            super().noted(now, party, event)
            lines.append(stream.getvalue().count("round ") - len(self._recorder.rounds))

    monkeypatch.setattr(simulations, "RoundProgress", Counted)
    result = simulate(FederationConfig(scheme="masked", task="vectors:12", rounds=4, seed=7), progress=True)
    assert [one.round for one in result.rounds] == [1, 2, 3, 4]
    assert set(lines[-4:]) == {0}
    assert re.findall(r"masked: round (\d) of 4", stream.getvalue()) == ["1", "2", "3", "4"]
