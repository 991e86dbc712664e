"""One flipped bit in a file of a model costs nothing; a model that is gone with its copy costs no caution."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from tests.support.refusals import refusal
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.events import AttemptBegan, RoundCommitted
from veilsum.roles.process.checkpoint import KEPT, CheckpointError, NothingReadable, StateFolder
from veilsum.roles.process.disk.part_files import COPY
from veilsum.roles.process.persistent_state import PersistentState

ALICE = PartyId("alice")
SETTINGS = bytes(32)


def folder_with(path: Path, rounds: int, decisions: int) -> PersistentState:
    """The state after some rounds, and some checkpoints more of the round that is next."""
    folder, state = StateFolder(path, ALICE, SETTINGS), PersistentState(0, np.zeros(8, dtype="<f4"))
    folder.acquire()
    folder.save(state)
    for number in range(rounds):
        model = np.full(8, number + 1, dtype="<f4")
        state.note(RoundCommitted(number, 0, (ALICE,), bytes(32), model))
        folder.save(state)
        for attempt in range(decisions):
            state.note(AttemptBegan(number + 1, attempt))
            folder.save(state)
    folder.release()
    return state


def reopened(path: Path) -> tuple[PersistentState, list[str]]:
    saved = StateFolder(path, ALICE, SETTINGS).load()
    return saved.state, saved.passed_over


def flip_a_bit(path: Path, seed: int) -> None:
    content, chance = bytearray(path.read_bytes()), random.Random(seed)
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(bytes(content))


def newest_model_files(path: Path) -> list[Path]:
    return sorted(path.glob("model-000000000004-*"))


@pytest.mark.parametrize("seed", range(8))
def test_one_flipped_bit_in_any_file_of_the_newest_model_loses_no_round(tmp_path: Path, seed: int) -> None:
    before = folder_with(tmp_path, rounds=4, decisions=4)
    files = newest_model_files(tmp_path)
    assert len(files) == 2
    flip_a_bit(files[seed % 2], seed)
    state, told = reopened(tmp_path)
    assert (state.rounds_done, state.attempt, state.record.spent) == (4, before.attempt, {})
    assert state.model is not None
    assert state.model.tobytes() == np.full(8, 4, dtype="<f4").tobytes()
    assert len(told) == 1
    assert files[seed % 2].name in told[0]


HARMS: dict[str, Callable[[Path], object]] = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "empty": lambda path: path.write_bytes(b""),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "missing": lambda path: path.unlink(),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "another model": lambda path: path.write_bytes(np.full(8, 9, dtype="<f4").tobytes()),
}


@pytest.mark.parametrize("turn", [0, 1])
@pytest.mark.parametrize("harm", HARMS)
def test_whatever_became_of_one_of_the_two_files_nothing_is_lost(
    tmp_path: Path, harm: str, turn: int
) -> None:
    before = folder_with(tmp_path, rounds=4, decisions=2)
    HARMS[harm](newest_model_files(tmp_path)[turn])
    state, told = reopened(tmp_path)
    assert (state.rounds_done, state.attempt, state.record.spent) == (4, before.attempt, {})
    assert state.model is not None
    assert state.model[0] == 4
    assert len(told) == 1


@pytest.mark.parametrize("lost", [set(found) for size in range(4) for found in combinations((2, 3, 4), size)])
def test_the_newest_model_that_is_whole_is_the_one_to_go_on_from(tmp_path: Path, lost: set[int]) -> None:
    """All eight subsets of three models, each lost with its copy; without any there is nothing to go on from."""
    folder_with(tmp_path, rounds=4, decisions=4)
    for rounds in lost:
        for path in tmp_path.glob(f"model-{rounds:012}-*"):
            flip_a_bit(path, rounds)
    left = max({2, 3, 4} - lost, default=None)
    if left is None:
        with refusal(NothingReadable, str(tmp_path), "--fresh"):
            reopened(tmp_path)
        return
    state, _ = reopened(tmp_path)
    assert state.rounds_done == left
    assert state.model is not None
    assert state.model.tobytes() == np.full(8, left, dtype="<f4").tobytes()
    assert state.record.spent == ({} if left == 4 else {4: None}), (
        "what was done at the newest one stays spent"
    )


def test_what_was_damaged_is_written_anew_from_the_other_file(tmp_path: Path) -> None:
    folder_with(tmp_path, rounds=4, decisions=4)
    for turn in (0, 1):
        flip_a_bit(newest_model_files(tmp_path)[turn], turn)
        reopened(tmp_path)
        assert reopened(tmp_path)[1] == []


def test_without_the_model_and_its_copy_an_older_model_is_left_and_what_was_done_since_stays_spent(
    tmp_path: Path,
) -> None:
    folder_with(tmp_path, rounds=4, decisions=4)
    for path in newest_model_files(tmp_path):
        path.unlink()
    state, told = reopened(tmp_path)
    assert (state.rounds_done, state.attempt) == (3, 0)
    assert state.model is not None
    assert state.model[0] == 3
    assert state.record.spent == {4: None}
    assert len(told) == KEPT


def test_the_newest_checkpoint_of_each_of_three_models_is_kept(tmp_path: Path) -> None:
    folder_with(tmp_path, rounds=6, decisions=5)
    models = {path.name.removesuffix(COPY) for path in tmp_path.glob("model-*")}
    assert sorted(int(name.split("-")[1]) for name in models) == [4, 5, 6]
    assert len(list(tmp_path.glob("checkpoint-*"))) == KEPT + 2


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def too_long(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


@pytest.mark.parametrize("harm", [endless, a_pipe, too_long])
@pytest.mark.parametrize("which", ["model-*", "checkpoint-*"])
def test_what_a_stranger_laid_into_a_folder_is_neither_waited_for_nor_read_for_ever(
    tmp_path: Path, which: str, harm: Callable[[Path], None]
) -> None:
    folder_with(tmp_path / "alice", 2, 0)
    for path in list((tmp_path / "alice").glob(which)):
        path.unlink()
        harm(path)
    with refusal(NothingReadable, "alice"):
        reopened(tmp_path / "alice")


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    """Whoever made the folder would have a file made where we may write."""
    (tmp_path / "alice").mkdir(mode=0o700)
    (tmp_path / "alice" / "lock").symlink_to(tmp_path / "target")
    with refusal(CheckpointError, "lock"):
        StateFolder(tmp_path / "alice", ALICE, SETTINGS).acquire()
    assert not (tmp_path / "target").exists()
