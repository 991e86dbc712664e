"""A round whose sum may be open is repeated for the very same sum, and for no other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.refusals import mentions
from veilsum.protocol.errors import AbortReason
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines import on_chain
from veilsum.protocol.machines.events import RoundCommitted, RunFailed, Warned
from veilsum.protocol.machines.participation import ParticipationRecord
from veilsum.protocol.numbers.model import LocalResult, Model
from veilsum.protocol.schemes.ampc.messages import ResultDigest
from veilsum.protocol.schemes.masked.messages import RoundKeys
from veilsum.protocol.secure_sum.shares import ReleasedShares, SealedShares
from veilsum.protocol.secure_sum.survivors import SurvivorProof
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.wire.messages import Message
from veilsum.simulations.testing import Table, check_invariants

SCHEMES = ("plain", "masked", "mpc", "ampc", "perturbed", "bilateral")
SECURE = ("masked", "mpc", "ampc")


def moments(scheme: str) -> int:
    """How many messages a run of one round has."""
    table, count = started(scheme), 0
    while table.wire:
        table.deliver(table.wire[0])
        count += 1
    return count


def started(scheme: str, parties: int = 3, learner: object = None) -> Table:
    table = Table.build(scheme, parties, rounds=1, learner=learner)  # type: ignore[arg-type]  # or the default one
    table.start()
    return table


def stopped_after_release(scheme: str, learner: object = None, *, lost: str | None = None) -> Table:
    """Five parties have released their shares when the server stops; what was on the wire is gone."""
    table = Table.build(scheme, 5, rounds=1, learner=learner)  # type: ignore[arg-type]  # or the default one
    if lost is not None:
        table.crash_before(lost, MaskedInput)
    table.start()
    while len(releases(table)) < 5 - (lost is not None):
        if table.wire:
            table.deliver(table.wire[0])
        else:
            assert table.advance()
    table.wire.clear()
    table.crash(SERVER)
    return table


def releases(table: Table) -> list[ReleasedShares]:
    return [one.message for one in table.trace.sent if isinstance(one.message, ReleasedShares)]


def forget(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is one that does not care which sum was opened before, whatever it is told."""
    table.disks[SERVER].record = ParticipationRecord()
    monkeypatch.setattr(on_chain, "proven_release", lambda hellos, position, colluders: None)


def commits(table: Table) -> list[RoundCommitted]:
    return [one for name, one in table.trace.commits if name == SERVER]


def refusals(table: Table) -> set[AbortReason]:
    return {one.error.reason for one in table.trace.refusals}


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("who", ["server", "p1"])
def test_whoever_stops_at_whatever_moment_the_run_ends_with_its_round(scheme: str, who: str) -> None:
    for moment in range(moments(scheme)):
        table = started(scheme)
        for _ in range(moment):
            table.deliver(table.wire[0])
        table.crash(who)
        table.restart(who)
        table.run()
        check_invariants(table)
        assert table.server.rounds_done == 1, f"{who} stopped after {moment} messages"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_after_a_power_cut_at_whatever_moment_the_run_ends_with_its_round(scheme: str) -> None:
    for moment in range(moments(scheme)):
        table = started(scheme)
        for _ in range(moment):
            table.deliver(table.wire[0])
        power_cut(table)
        table.run()
        check_invariants(table)
        assert table.server.rounds_done == 1, f"the power was cut after {moment} messages"


def power_cut(table: Table) -> None:
    names = list(table.machines)
    for name in names:
        table.crash(name)
    table.wire.clear()
    for name in names:
        table.restart(name)


@pytest.mark.parametrize("scheme", ["mpc", "ampc"])
@pytest.mark.parametrize("lies", [False, True])
def test_a_peer_believes_the_only_one_that_committed_if_it_computed_the_same(scheme: str, lies: bool) -> None:
    """A liar's other model is refused by everyone, whose own is certified; they go on without it."""
    table = Table.build(scheme, 5, rounds=2)
    table.start()
    while not table.trace.commits:
        table.deliver(table.wire[0])
    (ahead, commit), *_ = table.trace.commits
    assert commit.model is not None
    if lies:
        disk = table.disks[ahead]
        assert disk.chain is not None
        other = replace(disk.chain.known_state, model=commit.model + np.float32(1), hash=bytes(32))
        disk.chain = replace(disk.chain, state=other)
    power_cut(table)
    table.run()
    check_invariants(table)
    committed = {name for name, one in table.trace.commits if one.round == 1}
    assert committed == set(table.machines) - ({ahead} if lies else set())


@pytest.mark.parametrize("scheme", SECURE)
def test_the_second_sum_is_the_first_one_again(scheme: str) -> None:
    table = stopped_after_release(scheme)
    table.restart(SERVER)
    table.run()
    check_invariants(table)
    attempts = {(one.stamp.session, one.stamp.attempt) for one in releases(table)}
    assert len(attempts) == 2
    assert [one.members for one in commits(table)] == [table.participants]
    uploads = [one.message for one in table.trace.sent if isinstance(one.message, MaskedInput)]
    assert len({one.vector.tobytes() for one in uploads}) == 10, "masks are never used twice"


@pytest.mark.parametrize("scheme", SECURE)
def test_who_was_not_in_the_first_sum_is_left_out_of_the_second(scheme: str) -> None:
    table = stopped_after_release(scheme, lost="p2")
    table.restart(SERVER)
    table.restart("p2")
    table.run()
    check_invariants(table)
    first = tuple(name for name in table.participants if name != "p2")
    assert [one.members for one in commits(table)] == [first]
    again = [one for one in table.trace.sent if isinstance(one.message, MaskedInput) and one.sender == "p2"]
    assert again, "p2 uploaded, and is not in the sum"


@pytest.mark.parametrize("scheme", SECURE)
def test_a_server_that_asks_for_another_sum_gets_no_shares(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It forgot, or says that it forgot, over whom the first sum was; p4 is in the session and drops out of it."""
    table = stopped_after_release(scheme)
    before = len(releases(table))
    forget(table, monkeypatch)
    table.crash_before("p4", MaskedInput)
    table.restart(SERVER)
    table.run()
    check_invariants(table)
    assert len(releases(table)) == before
    assert AbortReason.DIFFERENCING in refusals(table)
    assert isinstance(table.trace.endings[SERVER], RunFailed)


@pytest.mark.parametrize("scheme", SECURE)
def test_without_one_of_the_first_cohort_nobody_uploads_again(scheme: str) -> None:
    table = stopped_after_release(scheme)
    uploaded = sum(isinstance(one.message, MaskedInput) for one in table.trace.sent)
    table.crash("p4")
    table.restart(SERVER)
    table.run()
    check_invariants(table)
    assert sum(isinstance(one.message, MaskedInput) for one in table.trace.sent) == uploaded
    ending = table.trace.endings[SERVER]
    assert isinstance(ending, RunFailed)
    assert ending.reason is AbortReason.DIFFERENCING
    assert mentions(ending.detail, "p4")
    assert mentions(ending.detail, "checkpoint")


@pytest.mark.parametrize(
    ("scheme", "point"), [("masked", RoundKeys), *((scheme, SealedShares) for scheme in SECURE)]
)
def test_an_attempt_that_lost_one_of_the_first_cohort_ends_before_the_others_upload(
    scheme: str, point: type[Message]
) -> None:
    """And the next one, with that party back, gives the sum."""
    table = stopped_after_release(scheme)
    table.crash_before("p4", point)
    table.restart(SERVER)
    while not (failed := [one for name, one in table.trace.failures if name == SERVER]):
        if table.wire:
            table.deliver(table.wire[0])
        else:
            assert table.advance()
    assert failed[0].reason is AbortReason.DIFFERENCING
    assert sum(isinstance(one.message, MaskedInput) for one in table.trace.sent) == 5
    table.restart("p4")
    table.run()
    check_invariants(table)
    assert [one.members for one in commits(table)] == [table.participants]


class Fickle:
    """A learner of which p0 never trains the same thing twice."""

    def __init__(self) -> None:
        self.calls = 0

    def train(self, party: PartyId, round: int, model: Model) -> LocalResult:
        self.calls += 1
        value = self.calls / 100 if party == "p0" else 0.5
        return LocalResult(np.full(len(model), value, dtype=np.float32), 10)


@pytest.mark.parametrize("scheme", SECURE)
def test_another_update_for_the_same_sum_is_not_given(scheme: str) -> None:
    """The difference of the two sums would be the difference of one party's updates."""
    table = stopped_after_release(scheme, Fickle())
    table.crash("p0")
    for name in ("p0", SERVER):
        table.restart(name)
    table.run()
    ending = table.trace.endings[SERVER]
    assert isinstance(ending, RunFailed)
    assert not commits(table)
    told = [one.event.text for one in table.trace.entries if isinstance(one.event, Warned)]
    assert any("p0 withdrew" in text for text in told)
    uploads = [one for one in table.trace.sent if isinstance(one.message, MaskedInput) and one.sender == "p0"]
    assert len(uploads) == 1


@pytest.mark.parametrize("scheme", SECURE)
def test_a_party_that_was_kept_from_voting_gives_no_other_update_either(scheme: str) -> None:
    """p0 does not know of the first sum, which holds its update all the same."""
    table = Table.build(scheme, 5, rounds=1, learner=Fickle())
    table.start()
    while len(releases(table)) < 4:
        flight = table.wire[0]
        kept_back = isinstance(flight.message, SurvivorProof) and flight.receiver == "p0"
        table.drop(flight) if kept_back else table.deliver(flight)
    assert not table.disks[PartyId("p0")].record.spent
    power_cut(table)
    table.run()
    uploads = [one.sender for one in table.trace.sent if isinstance(one.message, MaskedInput)]
    assert uploads.count(PartyId("p0")) == 1
    assert len(releases(table)) == 4
    assert not commits(table)


@pytest.mark.parametrize("scheme", SECURE)
def test_who_took_no_part_in_the_first_sum_waits_until_it_was_repeated(scheme: str) -> None:
    table = Table.build(scheme, 5, rounds=2)
    table.crash("p4")
    table.start()
    while len(releases(table)) < 4:
        if table.wire:
            table.deliver(table.wire[0])
        else:
            assert table.advance()
    table.crash(SERVER)
    table.wire.clear()
    for name in (SERVER, "p4"):
        table.restart(name)
    table.run()
    check_invariants(table)
    everyone = table.participants
    assert [one.members for one in commits(table)] == [everyone[:4], everyone]


def voted_on(table: Table, name: PartyId, position: int) -> bool:
    chain = table.disks[name].chain
    return chain is not None and chain.next_state is not None and chain.next_state.position == position


@pytest.mark.parametrize("scheme", ["mpc", "ampc"])
def test_a_second_power_cut_does_not_undo_the_result_that_was_taken_back_after_the_first(scheme: str) -> None:
    """One peer committed round 0, the others voted for it; nobody committed round 1 when all stop again."""
    table = Table.build(scheme, 5, rounds=3)
    table.start()
    while not table.trace.commits:
        table.deliver(table.wire[0])
    power_cut(table)
    while not all(voted_on(table, name, 2) for name in table.participants):
        if table.wire:
            table.deliver(table.wire[0])
        else:
            assert table.advance()
    assert all(one.round == 0 for _, one in table.trace.commits)
    power_cut(table)
    table.run()
    check_invariants(table)
    assert table.server.rounds_done == 3


@pytest.mark.parametrize("scheme", ["mpc", "ampc"])
def test_a_round_that_only_the_server_heard_of_is_repeated_and_told_once(scheme: str) -> None:
    """Every result digest between peers is lost: no peer commits what the server has committed."""
    table = Table.build(scheme, 4, rounds=2)
    table.start()
    while not commits(table):
        if not table.wire:
            table.advance()
        elif isinstance(table.wire[0].message, ResultDigest) and table.wire[0].receiver != SERVER:
            table.drop(table.wire[0])
        else:
            table.deliver(table.wire[0])
    assert {name for name, _ in table.trace.commits} == {SERVER}
    table.run()
    check_invariants(table)
    assert [one.round for one in commits(table)] == [0, 1]
    assert {name for name, one in table.trace.commits if one.round == 1} == {SERVER, *table.participants}
