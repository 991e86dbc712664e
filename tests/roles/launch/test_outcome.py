"""What a launch says of its end: the first cause, who was lost, and the exit code, from what its processes told."""

from __future__ import annotations

import asyncio
import io
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.federations import make_federation
from tests.support.refusals import require_mentions
from veilsum.roles.federation.folder import LoadedFederation
from veilsum.roles.launch.children import Child
from veilsum.roles.launch.display import LiveView, describe, figures_of
from veilsum.roles.launch.nursery import Forked
from veilsum.roles.launch.outcome import Outcome


@pytest.fixture(scope="module")
def fed(tmp_path_factory: pytest.TempPathFactory) -> LoadedFederation:
    """Two rounds of three parties."""
    return make_federation(tmp_path_factory.mktemp("outcome") / "fed", "plain", 3)


def fact(second: int, what: str, **fields: Any) -> dict[str, Any]:
    return {"at": f"2026-01-01T00:00:{second:02}.5+00:00", "fact": what, **fields}


def committed(second: int, number: int) -> dict[str, Any]:
    return fact(second, "round_committed", round=number, attempt=1, members=["p1", "p2", "p3"])


def child(name: str, code: int, *facts: dict[str, Any], ended: int = 50, stopped: bool = False) -> Child:
    """A process that ended with this code after it told these facts."""

    async def make() -> Forked:
        process = Forked(0, asyncio.StreamReader(), asyncio.StreamReader())
        process.end_with(code)
        return process

    at = f"2026-01-01T00:00:{ended:02}.5+00:00"
    return Child(name, asyncio.run(make()), list(facts), told_to_stop=stopped, ended_at=at)


def finished(name: str) -> Child:
    return child(name, 0, fact(40, "run_finished", rounds=2))


def outcome(loaded: LoadedFederation, *children: Child, **more: Any) -> Outcome:
    return Outcome(loaded, {one.name: one for one in children}, 1.0, **more)


def summary(ended: Outcome) -> list[str]:
    return describe(ended, figures_of(ended, None, {})).splitlines()


def run_failed(second: int, reason: str, culprit: str = "", detail: str = "") -> dict[str, Any]:
    return fact(second, "run_failed", reason=reason, culprit=culprit, detail=detail)


def test_the_summary_of_a_run_that_failed_after_a_round_says_how_to_go_on(fed: LoadedFederation) -> None:
    for facts, goes_on in (([], False), ([committed(1, 1)], True)):
        said = summary(outcome(fed, child("server", -9, *facts), finished("p1")))
        require_mentions(said[-1], "failed", "server", "SIGKILL")
        assert any(f"veilsum launch {fed.folder} --resume" in line for line in said) is goes_on


@pytest.mark.parametrize("how", ["on disk", "told by a party", "committed since"])
def test_a_run_that_went_on_and_was_stopped_says_how_many_rounds_there_are_and_how_to_go_on(
    fed: LoadedFederation, how: str
) -> None:
    """Also where it was stopped before any process had told anything."""
    told = {"told by a party": [fact(1, "started", rounds_done=1)], "committed since": [committed(1, 1)]}
    server = child("server", 130, *told.get(how, ()), stopped=True)
    ended = outcome(fed, server, interrupted=True, rounds_kept=1 if how == "on disk" else 0)
    said = summary(ended)
    require_mentions(said[-1], 1, 2)
    require_mentions(said[-2], "launch", fed.folder, "--resume")
    assert "--resume" not in "".join(
        summary(outcome(fed, child("server", 130, stopped=True), interrupted=True))
    )


def test_the_cause_is_what_came_first_and_stands_in_the_last_line(fed: LoadedFederation) -> None:
    """A party is killed, the server then says that too few are left, the others that the server is gone."""
    ended = outcome(
        fed,
        child("server", 1, committed(1, 1), run_failed(9, "NO_QUORUM", detail="only 2 came")),
        child("p1", 1, run_failed(12, "TIMED_OUT", detail="no server")),
        child("p2", -9, ended=5),
        child("p3", 1, run_failed(11, "TIMED_OUT", detail="no server")),
    )
    assert (ended.exit_code, ended.failed) == (1, True)
    assert [one.party for one in ended.lost] == ["p2"]
    said = summary(ended)
    assert said[-1] == "the run failed: p2: ended by SIGKILL"
    assert said[-2].split() == ["then", "server:", "NO_QUORUM:", "only", "2", "came"]


def test_a_loss_that_a_later_round_survived_is_no_cause(fed: LoadedFederation) -> None:
    ended = outcome(
        fed,
        child("server", 1, committed(6, 1), run_failed(9, "DIFFERENCING", "p1", "two sums")),
        child("p1", 1, run_failed(10, "DIFFERENCING")),
        child("p2", -9, ended=5),
        finished("p3"),
    )
    assert summary(ended)[-1] == "the run failed: server: DIFFERENCING; p1; two sums"
    assert [one.party for one in ended.lost] == ["p2"]


def test_a_run_with_all_its_rounds_is_not_failed_by_a_late_interruption(fed: LoadedFederation) -> None:
    """Everybody is stopped after the last commitment: nobody is lost, nothing failed, exit code 0."""
    ended = outcome(
        fed,
        child("server", 130, committed(1, 1), committed(2, 2), stopped=True),
        *(child(name, 130, stopped=True) for name in ("p1", "p2", "p3")),
        interrupted=True,
    )
    assert (ended.exit_code, ended.failed, ended.lost) == (0, False, [])
    assert not [line for line in summary(ended) if "failed" in line or "stopped" in line]


def test_an_interrupted_run_names_its_rounds_and_neither_failure_nor_losses(fed: LoadedFederation) -> None:
    ended = outcome(
        fed,
        child("server", 130, committed(1, 1), stopped=True),
        *(child(name, 130, stopped=True) for name in ("p1", "p2", "p3")),
        interrupted=True,
    )
    assert (ended.exit_code, ended.failed, ended.lost) == (130, False, [])
    assert summary(ended)[-1] == "stopped after 1 of 2 rounds"


def test_a_party_that_finished_is_not_lost_however_its_process_left(fed: LoadedFederation) -> None:
    """It told that the run finished, and was stopped or failed on its way out."""
    done = (committed(1, 1), committed(2, 2), fact(3, "run_finished", rounds=2))
    for code in (1, -15, -9, 130):
        late = child("p1", code, fact(4, "run_finished", rounds=2), stopped=code < 0)
        ended = outcome(fed, child("server", 0, *done), late, finished("p2"), finished("p3"))
        assert (ended.exit_code, ended.lost) == (0, [])


def test_who_ends_during_a_run_that_goes_on_is_named_with_its_reason(fed: LoadedFederation) -> None:
    """In the order of their ends; one that hangs after the server has finished is named, too."""
    ended = outcome(
        fed,
        child("server", 0, committed(1, 1), committed(30, 2)),
        child("p1", -9, stopped=True, ended=49),
        child("p2", 1, run_failed(20, "CheckpointError", "p2", "the disk is full")),
        finished("p3"),
    )
    assert ended.exit_code == 0
    p2, p1 = ended.lost
    require_mentions(str(p2), "p2", "CheckpointError", "disk")
    require_mentions(str(p1), "p1", "had", "not", "ended")
    assert any("CheckpointError" in line for line in summary(ended))


def test_a_run_whose_model_nobody_took_is_a_failure_with_its_reason(fed: LoadedFederation) -> None:
    """All parties end over what the server committed: its exit code alone says nothing of that."""
    lengths = run_failed(9, "LocalProtocolError", detail="a model of 7 values, not 40")
    ended = outcome(
        fed,
        child("server", 0, committed(1, 1), committed(2, 2)),
        *(child(name, 1, lengths) for name in ("p1", "p2", "p3")),
    )
    assert (ended.exit_code, ended.failed) == (1, True)
    require_mentions(summary(ended)[-1], "failed", "p1", "7", "40")


@pytest.mark.parametrize(("code", "exit_code"), [(2, 2), (1, 1)])
def test_a_refused_start_has_the_exit_code_of_who_refused(
    fed: LoadedFederation, code: int, exit_code: int
) -> None:
    refusal = fact(1, "start_failed", reason="ParameterError", culprit="p2", detail="no key", exit_code=code)
    waiting = [child(name, 130, stopped=True) for name in ("p1", "p3")]
    ended = outcome(fed, child("p2", code, refusal), *waiting, refused=["p2"])
    assert (ended.exit_code, ended.interrupted) == (exit_code, False)
    assert summary(ended)[-1] == "no round was begun: p2: no key"
    server = outcome(fed, child("server", code, refusal), *(finished(name) for name in ("p1", "p2", "p3")))
    assert server.exit_code == exit_code


def test_parties_with_test_sets_of_their_own_are_shown_by_their_mean_once_all_have_measured(
    fed: LoadedFederation,
) -> None:
    own = replace(fed, config=replace(fed.config, split="own"))
    found = {"p1": 0.5, "p2": 0.75, "p3": 1.0}
    stream = io.StringIO()
    view = LiveView(own.config, stream)
    view.on_fact(committed(10, 1) | {"party": "server"})
    before = stream.getvalue()
    told = {name: fact(11, "measured", round=1, metrics={"accuracy": one}) for name, one in found.items()}
    for name, one in told.items():
        view.on_fact(one | {"party": name})
    (said,) = stream.getvalue().removeprefix(before).splitlines()
    require_mentions(said, "all", "0.7500", "own")
    children = [child(name, 0, one) for name, one in told.items()]
    ended = outcome(own, child("server", 0, committed(10, 1)), *children)
    assert figures_of(ended, None, {})["rounds"][0]["metrics"] == {"accuracy": 0.75}


def test_the_command_to_go_on_with_can_be_pasted_whatever_the_folder_is_called(fed: LoadedFederation) -> None:
    named = replace(fed, folder=Path("two words/it's a fed"))
    said = summary(outcome(named, child("server", -9, committed(1, 1)), finished("p1")))
    (command,) = [line.partition("veilsum ")[2] for line in said if "--resume" in line]
    assert shlex.split(command) == ["launch", str(named.folder), "--resume"]
