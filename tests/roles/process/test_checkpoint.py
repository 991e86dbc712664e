"""Checkpoints: whole or not at all, three times over, and only under the settings they were made for."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.refusals import refusal
from veilsum.protocol.chain.record import ChainRecord
from veilsum.protocol.chain.state import ChainState
from veilsum.protocol.chain.votes import Ballot, Certificate, Vote
from veilsum.protocol.errors import AbortReason
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.decisions import AttemptEntered, RoundSpent, UpdateGiven, VoteCast
from veilsum.protocol.machines.events import DecisionMade, RoundCommitted, RoundFailed
from veilsum.protocol.machines.participation import Given, Spent
from veilsum.roles.process.checkpoint import KEPT, CheckpointError, StateFolder
from veilsum.roles.process.persistent_state import PersistentState

ALICE, BOB, CAROL = (PartyId(name) for name in ("alice", "bob", "carol"))
SETTINGS = bytes(32)
CHAIN = bytes(range(16))


def model(value: float) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.full(5, value, dtype=np.float32)


def open_folder(path: Path, settings: bytes = SETTINGS) -> StateFolder:
    folder = StateFolder(path, ALICE, settings)
    folder.acquire()
    return folder


def committed(state: PersistentState, round_number: int) -> PersistentState:
    state.note(RoundCommitted(round_number, 0, (ALICE, BOB), bytes(32), model(round_number)))
    return state


def filled(path: Path, rounds: int = 5) -> StateFolder:
    folder, state = open_folder(path), PersistentState(0, model(-1.0))
    folder.save(state)
    for round_number in range(rounds):
        folder.save(committed(state, round_number))
    return folder


def test_what_was_saved_comes_back(tmp_path: Path) -> None:
    """Rounds, attempt, spent rounds, cohorts and the model's bytes."""
    folder = filled(tmp_path / "state", 2)
    state = folder.load().state
    for decision in (
        UpdateGiven(2, 1, b"\xcd" * 32, b"\xef" * 32),
        RoundSpent(2, 1, frozenset({ALICE, BOB}), frozenset({ALICE, BOB, CAROL})),
    ):
        state.note(DecisionMade(decision))
    folder.save(state)
    folder.release()
    saved = open_folder(tmp_path / "state").load()
    assert saved.state.rounds_done == 2
    assert saved.state.attempt == 2
    assert saved.state.record.spent == {2: Spent(frozenset({ALICE, BOB}), frozenset({ALICE, BOB, CAROL}))}
    assert saved.state.record.given == Given(2, {b"\xcd" * 32: b"\xef" * 32})
    assert saved.state.record.cohorts == [frozenset({ALICE, BOB})]
    assert saved.state.model is not None
    assert saved.state.model.tobytes() == model(1).tobytes()
    assert not saved.passed_over


def voted(position: int = 2) -> ChainRecord:
    """A record with all that it can have."""
    state = ChainState.of(CHAIN, position, b"\x01" * 32, model(1), b"memory")
    after = ChainState.of(CHAIN, position + 1, state.hash, model(2), b"next")
    ballot = Ballot(position + 1, state.hash, after.hash, (ALICE, BOB, CAROL), (ALICE, BOB))
    certificate = Certificate(replace(ballot, position=position), {ALICE: b"\x02" * 64})
    vote = Vote(ballot, b"\x03" * 64)
    public = Vote(ballot.without_hashes(), b"\x04" * 64)
    return ChainRecord(
        position, state, certificate, certificate, public, vote, after, votes_here=False, anchor=b"\x05" * 32
    )


def test_chain_vote_and_entered_attempts_come_back(tmp_path: Path) -> None:
    """A restarted party states the same attempts, casts no other vote and has the state that it voted for."""
    folder, chain = filled(tmp_path / "state", 2), voted()
    state = folder.load().state
    for decision in (
        AttemptEntered(2, 0, b"\x06" * 32, (ALICE, BOB, CAROL)),
        UpdateGiven(2, 0, b"\xcd" * 32, b"\xef" * 32),
        RoundSpent(2, 0, frozenset({ALICE, BOB}), frozenset({ALICE, BOB, CAROL})),
        VoteCast(2, 0, chain),
    ):
        state.note(DecisionMade(decision))
    state.model = chain.known_state.model
    folder.save(state)
    folder.release()
    again = open_folder(tmp_path / "state").load().state
    assert again.record == state.record
    assert len(again.record.attempts_at(2)) == 1
    kept = again.chain
    assert kept is not None
    for found, expected in ((kept.state, chain.state), (kept.next_state, chain.next_state)):
        assert found is not None
        assert expected is not None
        assert found.model.tobytes() == expected.model.tobytes()
        assert found == expected
    assert replace(kept, state=chain.state, next_state=chain.next_state) == chain


@pytest.mark.parametrize("remembered", [True, False])
def test_after_damage_a_party_has_no_vote_but_the_one_that_it_remembers(
    tmp_path: Path, remembered: bool
) -> None:
    folder, chain = filled(tmp_path / "state", 2), replace(voted(), votes_here=True)
    state = folder.load().state
    state.chain = chain if remembered else replace(chain, vote=None, sealed_vote=None, next_state=None)
    state.model = chain.known_state.model
    folder.save(state)
    folder.save(state)
    max(folder.folder.glob("checkpoint-*")).write_bytes(b"")
    kept = folder.load().state.chain
    assert kept is not None
    assert kept.votes_here is remembered


def test_another_format_is_refused_with_a_way_on_and_nothing_is_changed(tmp_path: Path) -> None:
    folder = filled(tmp_path / "state")
    newest = max(folder.folder.glob("checkpoint-*"))
    newest.write_text(newest.read_text().replace('"format_version": 5', '"format_version": 4'))
    before = {path: path.read_bytes() for path in folder.folder.iterdir()}
    with refusal(CheckpointError, "format", "--fresh", path=newest):
        folder.load()
    assert {path: path.read_bytes() for path in folder.folder.iterdir()} == before


def test_three_checkpoints_and_their_models_are_kept_and_nobody_else_may_read_them(tmp_path: Path) -> None:
    filled(tmp_path / "state")
    files = sorted(tmp_path.joinpath("state").iterdir())
    names = [path.name.partition("-")[0] for path in files]
    assert names.count("checkpoint") == KEPT
    assert names.count("model") == 2 * KEPT
    assert not [path for path in files if path.stat().st_mode & 0o077]


def test_a_decision_does_not_write_the_model_again(tmp_path: Path) -> None:
    folder = filled(tmp_path / "state", 1)
    state = folder.load().state
    before = {path: path.stat().st_mtime_ns for path in folder.folder.glob("model-*")}
    state.note(DecisionMade(AttemptEntered(1, 0)))
    folder.save(state)
    assert {path: path.stat().st_mtime_ns for path in folder.folder.glob("model-*")} == before


def test_an_optimiser_that_has_not_stepped_yet_remembers_just_that(tmp_path: Path) -> None:
    """After a first round without a step the memory is empty, which is not the same as missing."""
    folder = open_folder(tmp_path)
    state = committed(PersistentState(0, model(0.0), memory={1: b""}), 0)
    folder.save(state)
    assert folder.load().state.memory == {1: b""}


def test_what_an_optimiser_remembers_belongs_to_its_round(tmp_path: Path) -> None:
    folder = open_folder(tmp_path)
    state = PersistentState(0, model(0))
    for round_number in range(KEPT + 2):
        state.memory[round_number + 1] = f"after round {round_number}".encode()
        folder.save(committed(state, round_number))
    again = folder.load().state
    assert again.memory == {KEPT + 2: f"after round {KEPT + 1}".encode()}
    assert len(list(tmp_path.glob("memory-*"))) == 2 * KEPT
    for path in sorted(tmp_path.glob("memory-*"))[-2:]:
        path.write_bytes(b"nothing")
    passed_over = folder.load()
    assert passed_over.state.memory == {KEPT + 1: f"after round {KEPT}".encode()}
    assert "is not the file it should be" in passed_over.passed_over[0]


@pytest.mark.parametrize("harm", ["truncate", "change", "model"])
def test_a_damaged_newest_checkpoint_is_passed_over_with_a_warning(tmp_path: Path, harm: str) -> None:
    """The one before counts, and the number of the damaged one is never used again."""
    folder = filled(tmp_path / "state")
    newest = max(folder.folder.glob("checkpoint-*"))
    if harm == "model":
        for path in sorted(folder.folder.glob("model-*"))[-2:]:
            path.write_bytes(b"nothing")
    elif harm == "truncate":
        newest.write_bytes(newest.read_bytes()[:-40])
    else:
        newest.write_text(newest.read_text().replace('"rounds_done": 5', '"rounds_done": 6'))
    saved = folder.load()
    assert saved.state.rounds_done == 4
    assert newest.name in saved.passed_over[0]
    assert folder.next_life > int(newest.stem.rpartition("-")[2])


def test_after_damage_a_round_that_was_under_way_counts_as_spent(tmp_path: Path) -> None:
    """The lost lines may have said that a sum over our update is open."""
    folder = filled(tmp_path / "state", 1)
    state = folder.load().state
    for decision in (AttemptEntered(1, 0), RoundSpent(1, 0, frozenset({ALICE}), frozenset())):
        state.note(DecisionMade(decision))
        folder.save(state)
    max(folder.folder.glob("checkpoint-*")).write_bytes(b"")
    assert folder.load().state.record.spent == {1: None}


@pytest.mark.parametrize(("lost", "spent"), [(1, set()), (2, {1})])
def test_after_two_damaged_files_the_next_round_counts_as_spent(
    tmp_path: Path, lost: int, spent: set[int]
) -> None:
    """One lost file can only have opened the round; two can have opened it and uploaded, unseen by the third."""
    folder = filled(tmp_path / "state", 1)
    state = folder.load().state
    for decision in (AttemptEntered(1, 0), RoundSpent(1, 0, frozenset({ALICE}), frozenset()))[:lost]:
        state.note(DecisionMade(decision))
        folder.save(state)
    for path in sorted(folder.folder.glob("checkpoint-*"))[-lost:]:
        path.write_bytes(b"")
    saved = folder.load()
    assert (saved.state.rounds_done, saved.state.attempt) == (1, 0)
    assert saved.state.record.spent.keys() == spent


def test_old_files_that_cannot_be_removed_are_a_typed_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new checkpoint is on disk all the same."""
    folder = filled(tmp_path / "state", 3)
    state = folder.load().state

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "unlink", refuse)
    with refusal(CheckpointError, "removed", "denied"):
        folder.save(committed(state, 3))
    assert folder.load().state.rounds_done == 4


def test_nothing_readable_is_an_error_that_names_the_folder(tmp_path: Path) -> None:
    folder = filled(tmp_path / "state")
    for path in folder.folder.glob("checkpoint-*"):
        path.write_bytes(b"{}")
    with refusal(CheckpointError, "readable", "--fresh", path=folder.folder):
        folder.load()


def test_other_settings_are_refused_with_both_hashes_and_nothing_is_changed(tmp_path: Path) -> None:
    folder = filled(tmp_path / "state")
    folder.release()
    files = {path: path.read_bytes() for path in folder.folder.iterdir()}
    with pytest.raises(CheckpointError) as refused:
        open_folder(tmp_path / "state", bytes([1]) * 32).load()
    assert SETTINGS.hex() in str(refused.value)
    assert "01" * 32 in str(refused.value)
    assert {path: path.read_bytes() for path in folder.folder.iterdir()} == files


def test_the_folder_of_another_party_is_refused(tmp_path: Path) -> None:
    filled(tmp_path / "state").release()
    with refusal(CheckpointError, "alice", "bob"):
        StateFolder(tmp_path / "state", BOB, SETTINGS).load()


def test_one_process_at_a_time_lives_in_a_folder(tmp_path: Path) -> None:
    folder = filled(tmp_path / "state")
    with refusal(CheckpointError, "alice", "running"):
        open_folder(tmp_path / "state")
    folder.release()
    open_folder(tmp_path / "state").release()


class PowerCut(BaseException):
    """Stands for the end of everything in the middle of a write."""


def cut_at(monkeypatch: pytest.MonkeyPatch, last: int, error: BaseException) -> Callable[[], int]:
    """Raise before the `last`-th flush or rename; returns how many there have been."""
    done = 0

    def guard(operation: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(*arguments: Any, **named: Any) -> Any:
            nonlocal done
            done += 1
            if done == last:
                raise error
            return operation(*arguments, **named)

        return guarded

    monkeypatch.setattr(os, "fsync", guard(os.fsync))
    monkeypatch.setattr(os, "replace", guard(os.replace))
    return lambda: done


@pytest.mark.parametrize("last", range(1, 10))
def test_after_a_cut_at_any_write_the_state_is_the_old_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: int
) -> None:
    """Model, its copy and checkpoint take nine operations; after each, what loads is whole, and saving works again."""
    folder = filled(tmp_path / "state", 3)
    state = committed(folder.load().state, 3)
    with monkeypatch.context() as patch:
        cut_at(patch, last, PowerCut())
        with pytest.raises(PowerCut):
            folder.save(state)
    folder.release()
    again = open_folder(tmp_path / "state")
    saved = again.load()
    assert saved.state.rounds_done in (3, 4)
    assert saved.state.rounds_done == 4 or last < 9
    assert saved.state.model is not None
    assert saved.state.model[0] == saved.state.rounds_done - 1
    assert not list(again.folder.glob(".*"))
    again.save(committed(saved.state, saved.state.rounds_done))
    assert again.load().state.rounds_done == saved.state.rounds_done


def test_a_full_disk_is_named_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = filled(tmp_path / "state", 3)
    state = committed(folder.load().state, 3)
    with monkeypatch.context() as patch:
        cut_at(patch, 1, OSError(errno.ENOSPC, "No space left on device"))
        with refusal(CheckpointError, "disk", "full"):
            folder.save(state)
    assert folder.load().state.rounds_done == 3


def test_events_that_need_not_survive_are_not_noted() -> None:
    state = PersistentState(1, None)
    assert not state.note(RoundFailed(1, 0, AbortReason.TIMED_OUT))
    assert state == PersistentState(1, None)


@pytest.mark.parametrize("which", ["checkpoint-", "model-"])
def test_what_may_not_be_read_is_not_passed_over_for_an_older_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    """As after a start by another user: the owner is corrected, and nothing was lost or written over."""
    filled(tmp_path / "a", 3).release()
    newest = max((tmp_path / "a").glob(f"{which}*"), key=lambda path: path.stat().st_mtime_ns)
    opening = os.open

    def denied(path: Any, *arguments: Any, **named: Any) -> int:
        if Path(path).name == newest.name:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opening(path, *arguments, **named)

    monkeypatch.setattr(os, "open", denied)
    folder = open_folder(tmp_path / "a")
    with refusal(CheckpointError, newest.name, "denied", "owner"):
        folder.load()
    monkeypatch.undo()
    assert folder.load().state.rounds_done == 3


def test_a_folder_that_is_moved_away_under_its_process_is_not_made_anew(tmp_path: Path) -> None:
    """What is there goes on where it is now; a second one would lack the model and the lock."""
    folder = filled(tmp_path / "a", 2)
    (tmp_path / "a").rename(tmp_path / "moved")
    with refusal(CheckpointError, str(tmp_path / "a"), "moved", "--resume"):
        folder.save(PersistentState(2, model(1.0)))
    assert not (tmp_path / "a").exists()
    folder.release()
    assert open_folder(tmp_path / "moved").load().state.rounds_done == 2
