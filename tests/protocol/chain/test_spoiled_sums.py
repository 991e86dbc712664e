"""One party spoils the sum: nothing is committed there, and the organiser's checkpoint goes on to the last round."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.tables.checkpointed import after_checkpoint
from tests.support.tables.lying_table import lying_table, participant, reasons, told
from tests.support.tables.lying_uploads import lying_uploader
from veilsum.protocol.errors import AbortReason
from veilsum.protocol.identifiers import SERVER
from veilsum.protocol.machines.events import RunFailed, RunFinished
from veilsum.simulations.testing.table import Table

SECURE = ("masked", "mpc", "ampc")
REASON = AbortReason
ROUNDS = 3


def spoiled(scheme: str, *, at: int, tagged: bool) -> Table:
    """p3 adds 1 to its check coordinate in one round, in every attempt."""
    table = lying_table(scheme, 6, rounds=ROUNDS)
    table.tamper = lying_uploader(table, "p3", -1, 1, tagged=tagged, in_round=at)
    return table.run()


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("tagged", [True, False])
def test_a_spoiled_sum_ends_the_run_with_its_reason_and_commits_nothing(
    scheme: str, at: int, tagged: bool
) -> None:
    table = spoiled(scheme, at=at, tagged=tagged)
    seen_by_server = scheme == "masked"
    expected = REASON.CHECK_FAILED if tagged or seen_by_server else REASON.SUM_FALSIFIED
    assert reasons(table) == {expected}
    ending = told(table, SERVER).ending
    assert isinstance(ending, RunFailed)
    assert (ending.reason, ending.culprit) == (expected, "")
    assert "checkpoint" in ending.detail
    for name in table.participants:
        assert [commit.round for commit in told(table, name).commits] == list(range(at))
        assert participant(table, name).rounds_done == table.disks[name].rounds_done == at


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("tagged", [True, False])
def test_after_a_checkpoint_all_go_on_to_the_last_round_if_the_spoiler_is_honest_then(
    scheme: str, at: int, tagged: bool
) -> None:
    table = after_checkpoint(spoiled(scheme, at=at, tagged=tagged), "p0")
    table.run()
    endings = [told(table, name).ending for name in (SERVER, *table.participants)]
    assert all(isinstance(ending, RunFinished) and ending.rounds == ROUNDS for ending in endings)
    held = {bytes(memoryview(np.asarray(participant(table, name).model))) for name in table.participants}
    assert len(held) == 1


@pytest.mark.parametrize("scheme", SECURE)
def test_without_a_checkpoint_the_position_stays_closed(scheme: str) -> None:
    """Started anew under the same roster, the parties repeat the same sum, and end as before."""
    table = spoiled(scheme, at=0, tagged=True)
    for name in (SERVER, *table.participants):
        table.crash(name)
    for name in (SERVER, *table.participants):
        table.restart(name)
    table.run()
    assert not any(told(table, name).commits for name in table.participants)
    assert isinstance(told(table, SERVER).ending, RunFailed)
