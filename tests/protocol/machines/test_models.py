"""The models of specs/models/ hold, find every planted bug, and have the phases and moves of the transition tables."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support import check_models
from tests.support.check_models import CIRCLE, ENDLESS, MODELS, RUNS, STUCK, TAGS, Run, Searched
from veilsum.protocol.machines.transitions import Phase, Trigger, name_of
from veilsum.protocol.schemes.masked.client import MaskedClient, MaskedClientPhase
from veilsum.protocol.schemes.masked.round import MaskedServerPhase
from veilsum.protocol.schemes.masked.server import MaskedServer

Move = tuple[str, str, str]
"""From which phase, on what, to which."""

needs_spin = pytest.mark.skipif(
    not all(shutil.which(name) for name in check_models.PROGRAMS),
    reason="no SPIN here (apt install spin gcc libc6-dev); where CI=true `make test` fails without",
)
ORDER = [phase.value for phase in MaskedServerPhase]


def modelled(who: str) -> set[Move]:
    text = (MODELS / "attempt.pml").read_text(encoding="utf-8").replace("_moves(me, ", "_moves(")
    found = re.findall(rf"^(?!#).* {who}_moves\((\w+), (\w+), (\w+)\)", text, re.MULTILINE)
    return {(start.replace("_", "-"), on, end.replace("_", "-")) for start, on, end in found}


def in_table(moves: Mapping[tuple[Phase, Trigger], tuple[Phase, ...]]) -> Iterator[Move]:
    for (phase, trigger), targets in moves.items():
        yield from ((phase.value, name_of(trigger), target.value) for target in targets)


def left_out(move: Move) -> bool:
    """What the model says it leaves out: no change, `loss`, and rounds without votes or without recovery.

    A message or work that closes the attempt at once is left out too: deadlines do the same.
    """
    start, trigger, end = move
    skips = {start, end} <= set(ORDER) and ORDER.index(end) > ORDER.index(start) + 1
    client_skips = (start, end) in {
        ("advertising", "masking"),
        ("masking", "awaiting-result"),
        ("awaiting-survivors", "awaiting-result"),
    }
    return (
        start == end
        or trigger == "loss"
        or client_skips
        or (skips and end != "closed")
        or (skips and trigger != "deadline")
    )


@pytest.mark.parametrize(
    ("who", "table", "phases"),
    [
        ("server", MaskedServer.table.moves, MaskedServerPhase),
        ("client", MaskedClient.table.moves, MaskedClientPhase),
    ],
)
def test_the_model_of_an_attempt_moves_as_the_tables_say(
    who: str, table: Mapping[tuple[Phase, Trigger], tuple[Phase, ...]], phases: type[Phase]
) -> None:
    model, real = modelled(who), set(in_table(table))
    assert {phase for start, _, end in model for phase in (start, end)} == {one.value for one in phases}
    assert model <= real
    assert not [move for move in real - model if not left_out(move)]


def test_phases_that_other_models_name_are_phases_of_a_client() -> None:
    declared = re.search(r"mtype = \{ (.*?) \};", (MODELS / "survivors.pml").read_text(encoding="utf-8"))
    assert declared is not None
    names = {name.replace("_", "-") for name in declared[1].split(", ")}
    assert names < {phase.value for phase in MaskedClientPhase}


def test_every_bug_that_a_model_can_have_is_planted_and_every_property_has_one() -> None:
    written = {
        (path.stem, bug)
        for path in MODELS.glob("*.pml")
        for bug in re.findall(r"\bBUG_\w+", path.read_text(encoding="utf-8"))
        if path.stem != "common"
    }
    planted = {(run.property.model, run.bug) for run in RUNS if run.bug}
    assert written == {(model, bug) for model, bug in planted if bug != "BUG_TWO_THIRDS"}
    assert {run.property for run in RUNS if run.bug} == {run.property for run in RUNS}


@needs_spin
def test_the_small_model_holds_and_its_bugs_are_found(repository: Path) -> None:
    done = subprocess.run(
        [sys.executable, repository / "tests/support/check_models.py", TAGS.model],
        capture_output=True,
        text=True,
        check=False,
    )
    found = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert found["ok"] is True
    assert all(one["states"] > 200 and one["violations"] == 0 for one in found["properties"])
    assert len(found["bugs"]) == 3
    assert all(one["found"] for one in found["bugs"])


@needs_spin
@pytest.mark.long
def test_every_model_holds_and_every_planted_bug_is_found() -> None:
    assert check_models.check()["ok"] is True


@pytest.mark.parametrize(
    ("run", "found"),
    [
        (Run(TAGS), Searched(10, 5, 1, check_models.ASSERTED, True)),
        (Run(TAGS), Searched(10, 5, 0, "", False)),
        (Run(TAGS, bug="BUG_OLD_HELLO"), Searched(10, 5, 0, "", True)),
        (Run(TAGS, bug="BUG_OLD_HELLO"), Searched(10, 5, 1, STUCK, True)),
        (Run(ENDLESS, bug="BUG_RENEWED_DEADLINE"), Searched(10, 5, 1, STUCK, True)),
    ],
    ids=["violated", "not completed", "bug unseen", "another thing seen", "stuck instead of endless"],
)
def test_what_is_not_as_it_must_be_fails_the_whole(
    run: Run, found: Searched, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(check_models, "RUNS", (run,))
    monkeypatch.setattr(check_models, "search", lambda run: found)
    monkeypatch.setattr(check_models, "PROGRAMS", ())
    assert check_models.main(()) == 1
    assert json.loads(capsys.readouterr().out)["ok"] is False


def test_a_bug_that_is_found_by_its_own_property_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_models, "RUNS", (Run(ENDLESS, bug="BUG_RENEWED_DEADLINE"),))
    monkeypatch.setattr(check_models, "search", lambda run: Searched(10, 5, 1, CIRCLE, True))
    assert check_models.check()["ok"] is True


def test_without_a_checker_and_for_an_unknown_model_nothing_is_checked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(check_models, "PROGRAMS", ("no-such-program",))
    assert check_models.main(()) == 2
    assert "no-such-program" in capsys.readouterr().err
    monkeypatch.setattr(check_models, "PROGRAMS", ())
    assert check_models.main(("tag",)) == 2
    said = capsys.readouterr().err
    assert all(run.property.model in said for run in RUNS)
